"""What is known of each poll and of its broker: since when an absence can be seen, how well the window is covered.

Pure. A *run* of a broker is a row of polls that follow each other with the same data folder, epoch and start. There is
one poll for thousands of snapshots, so polls are collected and looked at here, and Spark gets the answers back.
Source: docs/concepts/lag.md, "Totals and lives".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock_lag_rules.figures import Coverage

__all__ = ["POLL_COLUMNS", "BrokerPolls", "PlacedPoll", "polls_of", "was_set"]

POLL_COLUMNS: Final = (
    *("seq", "time_ms", "ordinal", "instance", "epoch", "started_ms"),
    *("interval_ms", "complete", "clock_step_ms"),
)
"""What is needed of the broker rows."""

Row = Mapping[str, Any]  # Any: what a row holds is known by the ledger's schema only


@dataclass(frozen=True, slots=True)
class PlacedPoll:
    """A poll and its run."""

    poll: int
    """`seq` of the row that closes it."""
    run_start: int
    """The first poll with the same data folder, epoch and start, without another one in between."""
    instance_start: int
    """The first poll with the same data folder, without another one in between."""
    shows_absence: bool
    """A complete poll of the same run came before: what is not in that one, and in this one, was born in between."""


@dataclass(frozen=True, slots=True)
class BrokerPolls:
    """The polls of one broker in the window, at least one."""

    coverage: Coverage
    placed: tuple[PlacedPoll, ...]
    last_complete: int
    """The last complete poll; 0 if none is."""


def polls_of(rows: Sequence[Row]) -> dict[int, BrokerPolls]:
    """By ordinal, from broker rows with `POLL_COLUMNS` in any order."""
    by_ordinal: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["seq"]):
        by_ordinal.setdefault(row["ordinal"], []).append(row)
    return {
        ordinal: BrokerPolls(
            coverage=_coverage(own),
            placed=tuple(_placed(own)),
            last_complete=max((row["seq"] for row in own if row["complete"]), default=0),
        )
        for ordinal, own in by_ordinal.items()
    }


def _placed(rows: Sequence[Row]) -> list[PlacedPoll]:
    placed: list[PlacedPoll] = []
    run_start = instance_start = rows[0]["seq"]
    complete_before = 0
    for number, row in enumerate(rows):
        before = rows[max(number - 1, 0)]
        if row["instance"] != before["instance"]:
            instance_start = row["seq"]
        if not _is_same_run(before, row):
            run_start = row["seq"]
        placed.append(PlacedPoll(row["seq"], run_start, instance_start, complete_before >= run_start))
        if row["complete"]:
            complete_before = row["seq"]
    return placed


def _is_same_run(before: Row, now: Row) -> bool:
    """Rows of an earlier release do not say when the broker started: then it is only known by its epoch."""
    if (before["instance"], before["epoch"]) != (now["instance"], now["epoch"]):
        return False
    started = (before["started_ms"], now["started_ms"])
    return None in started or started[0] == started[1]


def _coverage(rows: Sequence[Row]) -> Coverage:
    """Without `clock_step_ms`, a clock that was set forward cannot be told from polls that failed; one that was set
    back can.
    """
    first, last = rows[0], rows[-1]
    stepped = [now for before, now in zip((None, *rows), rows, strict=False) if was_set(before, now)]
    return Coverage(
        last_poll_ms=last["time_ms"],
        elapsed_ms=max(last["time_ms"] - first["time_ms"], 0),
        polls=len(rows),
        interval_ms=last["interval_ms"],
        clock_steps=len(stepped),
        clock_step_ms=(stepped[-1]["clock_step_ms"] or None) if stepped else None,
    )


def was_set(before: Row | None, now: Row) -> bool:
    """The broker's clock was set before a poll. It may be the first of the window: then the step is its border."""
    return bool(now["clock_step_ms"]) or (before is not None and now["time_ms"] <= before["time_ms"])
