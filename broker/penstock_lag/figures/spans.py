"""The spans of a subscription from its pieces, and which rows of the ledger have to be seen themselves. Pure.

Totals never fall within a life, so what grew in a span is most minus least of each life in it, or, for a life that was
born in the span, the most alone. Source: docs/concepts/lag.md, "Totals and lives"; penstock_lag_rules.history, which
defines the spans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import add, itemgetter, sub
from typing import Any, Final

from penstock_lag.figures.polls import PlacedPoll
from penstock_lag_rules.figures import NO_GROWTH, TOTALS, Growth, Span

__all__ = ["Life", "Starts", "Subscription", "subscription_of"]

LOST: Final = "lost_at_restart"
"""The broker goes on counting it after a restart, so it grows over all lives of an incarnation."""

_least_totals: Final = itemgetter(*(f"least_{total}" for total in TOTALS))
_most_totals: Final = itemgetter(*(f"most_{total}" for total in TOTALS))
_AT_LOST: Final = TOTALS.index(LOST)

_LEAST: Final = ("min_depth", "min_ready", "min_in_flight", "min_consumers", "min_credit")

Piece = Mapping[str, Any]
"""A row of penstock_lag.figures.pieces. Any: what it holds is known by its schema only."""
Starts = Mapping[str, Any]
"""A row of penstock_lag.figures.starts."""


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a subscription in the window."""

    pieces: tuple[Piece, ...]
    """In the order of their snapshots."""
    is_born: bool
    """An earlier complete poll of the same run did not have it: its totals count from zero."""
    goes_on: bool
    """The same incarnation as the life before, in the same data folder."""

    @property
    def first_seq(self) -> int:
        """Its first snapshot in the window."""
        return int(self.pieces[0]["first_seq"])

    def most(self, total: str) -> int:
        """The most of a total; 0 if no snapshot says."""
        return max((each[f"most_{total}"] or 0 for each in self.pieces), default=0)

    def since(self, start: int) -> tuple[Piece, ...]:
        """Its pieces from `start` on: no span starts within a piece."""
        return tuple(each for each in self.pieces if each["first_seq"] >= start)

    @property
    def first_sojourn_seq(self) -> int | None:
        """The first row with a sojourn histogram; None if it counts from zero, or if no row has one."""
        found = [each["first_sojourn_seq"] for each in self.pieces if each["first_sojourn_seq"] is not None]
        return None if self.is_born else min(found, default=None)

    @property
    def last_sojourn_seq(self) -> int | None:
        """The last row with a sojourn histogram."""
        return max((each["last_sojourn_seq"] for each in self.pieces if each["last_sojourn_seq"]), default=None)

    @property
    def hold_seq(self) -> int | None:
        """The last row with a hold histogram."""
        return max((each["hold_seq"] for each in self.pieces if each["hold_seq"]), default=None)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What the pieces of one subscription say."""

    starts: Starts
    lives: tuple[Life, ...]
    window: Span
    stretch: Span
    recent: Span
    consumed_ms: int | None
    progressed_ms: int

    def seqs(self) -> set[int]:
        """The rows that have to be seen themselves."""
        wanted = {self.starts["last_seq"], self.lives[-1].hold_seq}
        for life in self.lives:
            wanted |= {life.first_sojourn_seq, life.last_sojourn_seq}
        return {seq for seq in wanted if seq is not None}


def subscription_of(starts: Starts, pieces: Sequence[Piece], polls: Mapping[int, PlacedPoll]) -> Subscription:
    """From the starts of its spans, its pieces, and the polls of its broker by `seq`."""
    lives = _lives(pieces, polls)
    first, stretch, recent = starts["first_seq"], starts["stretch_start"], starts["recent_start"]
    window = _span(lives, first, starts, starts["window_falls"], _born(lives[0]))
    consumed = [(each["consumed_seq"], each["consumed_ms"]) for each in pieces if each["consumed_seq"] is not None]
    progressed_ms = starts["progressed_ms"]
    return Subscription(
        starts=starts,
        lives=tuple(lives),
        window=window,
        stretch=_span(lives, stretch, starts, starts["stretch_falls"]) if stretch else window,
        recent=_span(lives, recent, starts, starts["recent_falls"]) if recent > first else window,
        consumed_ms=max(consumed)[1] if consumed else None,
        progressed_ms=_first_ms(lives, first) if progressed_ms is None else progressed_ms,
    )


def _lives(pieces: Sequence[Piece], polls: Mapping[int, PlacedPoll]) -> list[Life]:
    lives: list[Life] = []
    ordered = sorted(pieces, key=lambda piece: piece["first_seq"])
    for _, found in groupby(ordered, key=lambda piece: (piece["run_start"], piece["incarnation"])):
        own = tuple(found)
        poll = polls[own[0]["first_poll"]]
        before = lives[-1].pieces[-1] if lives else None
        goes_on = (
            before is not None
            and before["last_poll"] >= poll.instance_start
            and before["incarnation"] == own[0]["incarnation"]
        )
        lives.append(Life(own, is_born=poll.shows_absence, goes_on=goes_on))
    return lives


def _born(first: Life) -> Growth:
    """What had happened before the first snapshot of all, if the queue was made after the poll before. Totals never
    fall within a life, so the least of each is that of its first snapshot.
    """
    return Growth(**dict(zip(TOTALS, _extremes(first.pieces)[0], strict=True))) if first.is_born else NO_GROWTH


def _span(lives: Sequence[Life], start: int, starts: Starts, falls: int, born: Growth = NO_GROWTH) -> Span:
    """The span from the snapshot `start` on. `born`: what had happened in it before that snapshot."""
    found = [piece for life in lives for piece in life.since(start)]
    base = found[0]
    return Span(
        elapsed_ms=max(starts["last_ms"] - base["first_ms"], 0),
        snapshots=sum(each["snapshots"] for each in found),
        first_depth=base["first_depth"],
        first_scheduled=base["first_scheduled"],
        first_age_ms=base["first_age_ms"],
        falls=falls,
        restarts=sum(bool(life.since(start)) for life in lives) - 1,
        **{name: min(each[name] for each in found) for name in _LEAST},
        max_credit=max(each["max_credit"] for each in found),
        growth=_growth(lives, start),
        born=born,
    )


def _growth(lives: Sequence[Life], start: int) -> Growth:
    grown = (0,) * len(TOTALS)
    for number, life in enumerate(lives):
        found = life.since(start)
        if not found:
            continue
        begins_here = life.first_seq > start
        least, most = _extremes(found)
        own = most if begins_here and life.is_born else tuple(map(sub, most, least))
        if begins_here and life.goes_on:
            since_before = max(least[_AT_LOST] - lives[number - 1].most(LOST), 0)
            lost = since_before + most[_AT_LOST] - least[_AT_LOST]
            own = (*own[:_AT_LOST], lost, *own[_AT_LOST + 1 :])
        grown = tuple(map(add, grown, own))
    return Growth(**dict(zip(TOTALS, grown, strict=True)))


def _extremes(pieces: Sequence[Piece]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The least and the most of each total, in the order of TOTALS; 0 if no snapshot says."""
    least, most = [_least_totals(each) for each in pieces], [_most_totals(each) for each in pieces]
    if any(None in each for each in (*least, *most)):
        known = [[value for value in values if value is not None] for values in zip(*least, strict=True)]
        most = [tuple(value or 0 for value in each) for each in most]
        return tuple(min(values, default=0) for values in known), tuple(map(max, *most, most[0]))
    return (least[0], most[0]) if len(pieces) == 1 else (tuple(map(min, *least)), tuple(map(max, *most)))


def _first_ms(lives: Sequence[Life], start: int) -> int:
    return next(int(piece["first_ms"]) for life in lives for piece in life.since(start))
