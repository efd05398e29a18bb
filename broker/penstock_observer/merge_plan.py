"""Which sealed segments become one, and which polls of them stay: old history is kept once a minute.

Pure. Source: docs/reference/lag-job.md, "Merged segments"; docs/decisions/063-ledger.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock_api.ledger_format import HOUR_MS, SegmentName
from penstock_observer.observed_time import LONGEST_GAP_MS, observed_ages_ms

__all__ = ["LEVELS", "Level", "LoggedPoll", "Mergeable", "contained", "kept_polls", "plan_merge"]

MINUTE_MS: Final = 60_000

LARGEST_BYTES: Final = 128 * 1024 * 1024
"""Segments are not merged beyond this size: a reader loads a whole file."""

THINNED_SHARE: Final = 4
"""A merged segment is at most as large as its inputs divided by this, if those are not thinned yet."""


@dataclass(frozen=True, slots=True)
class Level:
    """Segments that begin in the same block of the broker's clock become one, once all are older than `after_ms`."""

    after_ms: int
    block_ms: int


LEVELS: Final = (Level(after_ms=HOUR_MS // 4, block_ms=HOUR_MS // 4), Level(after_ms=2 * HOUR_MS, block_ms=HOUR_MS))
"""The first keeps what the usual windows read as it was sealed. Blocks divide an hour."""


@dataclass(frozen=True, slots=True)
class Mergeable:
    """One segment as the plan sees it."""

    name: SegmentName
    bytes: int
    first_ms: int
    last_ms: int
    thinned: bool

    @property
    def merged_bytes(self) -> int:
        """What it adds to a merged segment, at most."""
        return self.bytes if self.thinned else self.bytes // THINNED_SHARE


@dataclass(frozen=True, slots=True)
class LoggedPoll:
    """One broker row."""

    seq: int
    time_ms: int
    complete: bool
    instance: str = ""
    """Of the broker's data folder."""
    started_ms: int | None = None
    """When the broker started; None: not known."""


def plan_merge(
    segments: Iterable[Mergeable], levels: Sequence[Level] = LEVELS, gap_ms: int = LONGEST_GAP_MS
) -> list[Mergeable]:
    """The segments to merge next, in ledger order; none if nothing is due.

    An age is the time that was observed up to the newest row (`observed_ages_ms`), so that a broker's clock that is set
    thins nothing. `gap_ms`: what counts at most between two segments.
    """
    ordered = sorted(segments, key=lambda segment: segment.name)
    spans = [(segment.first_ms, segment.last_ms) for segment in ordered]
    ages_ms = dict(zip((each.name for each in ordered), observed_ages_ms(spans, None, gap_ms), strict=True))
    for level in levels:
        for group in _groups(ordered, level):
            is_old = ages_ms[group[-1].name] >= level.after_ms
            if is_old and (len(group) > 1 or not group[0].thinned):
                return group
    return []


def _groups(ordered: Sequence[Mergeable], level: Level) -> Iterator[list[Mergeable]]:
    """Segments that follow each other without a gap, in one block, and together are not too large."""
    group: list[Mergeable] = []
    for segment in ordered:
        if group and not _belongs(segment, group, level):
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


def _belongs(segment: Mergeable, group: Sequence[Mergeable], level: Level) -> bool:
    last = group[-1]
    return (
        segment.name.epoch == last.name.epoch
        and segment.name.first == last.name.last + 1
        and segment.first_ms // level.block_ms == last.first_ms // level.block_ms
        and sum(each.merged_bytes for each in (*group, segment)) <= LARGEST_BYTES
    )


def kept_polls(polls: Iterable[LoggedPoll]) -> frozenset[int]:
    """The polls whose snapshots stay: in each minute the last that was complete, or the last; of all, the last; and of
    each run of the broker the first that was complete: what appears after it began after it.

    What stays of what stayed before is the same again. All polls have one epoch.
    """
    ordered = sorted(polls, key=lambda poll: poll.seq)
    chosen: dict[int, LoggedPoll] = {}
    first: dict[tuple[str, int | None], LoggedPoll] = {}
    for poll in ordered:
        before = chosen.get(poll.time_ms // MINUTE_MS)
        if before is None or poll.complete or not before.complete:
            chosen[poll.time_ms // MINUTE_MS] = poll
        if poll.complete:
            first.setdefault((poll.instance, poll.started_ms), poll)
    return frozenset(poll.seq for poll in (*chosen.values(), *first.values(), *ordered[-1:]))


def contained(names: Iterable[SegmentName]) -> list[SegmentName]:
    """The segments whose rows are all in another one: what a crash between a merge and its deletions leaves."""
    gone: list[SegmentName] = []
    widest: SegmentName | None = None
    for name in sorted(names, key=lambda name: (name.first, -name.last)):
        if widest is not None and name.last <= widest.last and name.epoch == widest.epoch:
            gone.append(name)
        else:
            widest = name
    return gone
