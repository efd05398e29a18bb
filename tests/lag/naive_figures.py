"""Growth and spans of each queue as plainly as possible, from the same ledger rows: what the steps on Spark must find.

It keeps everything in lists, goes through them from the front, and shares no code with the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock_lag_rules.figures import Growth, Span

__all__ = ["NaiveFigures", "naive_figures"]

Row = Mapping[str, Any]
TOTALS = ("enqueued", "delivered", "redelivered", "acked", "expired", "dead_lettered", "dropped", "moved")


@dataclass
class NaivePoll:
    """A broker row and what is known of its place."""

    row: Row
    run: int
    folder: int


@dataclass
class Snapshot:
    """A subscription row, what grew since the one before of its life, and whether it had caught up."""

    row: Row
    grown: dict[str, int]
    caught_up: bool


@dataclass
class NaiveFigures:
    """As in penstock_lag_rules.figures.Figures."""

    window: Span
    stretch: Span
    recent: Span
    caught_up_ms: int | None
    progressed_ms: int
    consumed_ms: int | None
    lives: int
    snapshots: list[Snapshot] = field(default_factory=list[Snapshot])


def naive_figures(
    rows: Sequence[Row], allowed_messages: int, allowed_age_ms: int, recent_ms: int
) -> dict[tuple[int, str], NaiveFigures]:
    """By ordinal and queue name, without the queues that the last complete poll no longer had."""
    found: dict[tuple[int, str], NaiveFigures] = {}
    for ordinal in {row["ordinal"] for row in rows}:
        own = sorted((row for row in rows if row["ordinal"] == ordinal), key=lambda row: row["seq"])
        polls = _polls([row for row in own if row["kind"] == "broker"])
        for name in {row["queue_name"] for row in own if row["kind"] == "subscription"}:
            mine = [row for row in own if row["queue_name"] == name]
            last_complete = max((poll.row["seq"] for poll in polls if poll.row["complete"]), default=0)
            if mine[-1]["poll"] >= last_complete:
                found[ordinal, name] = _figures(mine, polls, allowed_messages, allowed_age_ms, recent_ms)
    return found


def _polls(rows: Sequence[Row]) -> list[NaivePoll]:
    polls: list[NaivePoll] = []
    run = folder = 0
    for row in rows:
        if polls:
            before = polls[-1].row
            folder += before["instance"] != row["instance"]
            run += (before["instance"], before["epoch"]) != (row["instance"], row["epoch"])
        polls.append(NaivePoll(row, run, folder))
    return polls


def _figures(
    rows: Sequence[Row], polls: Sequence[NaivePoll], allowed_messages: int, allowed_age_ms: int, recent_ms: int
) -> NaiveFigures:
    position = {poll.row["seq"]: number for number, poll in enumerate(polls)}
    last_of_life: dict[tuple[int, int], Row] = {}
    last_of_incarnation: dict[tuple[int, int], Row] = {}
    snapshots: list[Snapshot] = []
    for row in rows:
        number = position[row["poll"]]
        here = polls[number]
        absent_before = any(poll.row["complete"] and poll.run == here.run for poll in polls[:number])
        life, incarnation = (here.run, row["incarnation"]), (here.folder, row["incarnation"])
        grown = {total: row[total] if absent_before else 0 for total in TOTALS}
        if life in last_of_life:
            grown = {total: row[total] - last_of_life[life][total] for total in TOTALS}
        lost = row["lost_at_restart"] if absent_before else 0
        if incarnation in last_of_incarnation:
            lost = max(row["lost_at_restart"] - last_of_incarnation[incarnation]["lost_at_restart"], 0)
        last_of_life[life] = last_of_incarnation[incarnation] = row
        age_ms = _age_ms(row)
        caught_up = row["depth"] <= allowed_messages or (age_ms is not None and age_ms <= allowed_age_ms)
        snapshots.append(Snapshot(row, {**grown, "lost_at_restart": lost}, caught_up))
    is_new = any(poll.row["complete"] for poll in polls[: position[rows[0]["poll"]]])
    caught = [number for number, snapshot in enumerate(snapshots) if snapshot.caught_up]
    start = caught[-1] if caught else 0
    bound_ms = rows[-1]["time_ms"] - recent_ms
    recent = max(len(rows) - 2, start)
    for number in range(len(rows) - 1, start - 1, -1):
        if rows[number]["time_ms"] >= bound_ms:
            recent = min(recent, number)
    was_empty = is_new and not caught
    progressed = [s.row["time_ms"] for s in snapshots if s.grown["acked"] > 0 or s.grown["moved"] > 0]
    consumed = [row["time_ms"] for row in rows if row["consumers"] > 0]
    return NaiveFigures(
        window=_span(snapshots, is_new),
        stretch=_span(snapshots[start:], was_empty),
        recent=_span(snapshots[recent:], was_empty and recent == 0),
        caught_up_ms=rows[caught[-1]]["time_ms"] if caught else None,
        progressed_ms=progressed[-1] if progressed else rows[0]["time_ms"],
        consumed_ms=consumed[-1] if consumed else None,
        lives=len(last_of_life),
        snapshots=snapshots,
    )


def _span(snapshots: Sequence[Snapshot], began_empty: bool) -> Span:
    rows = [snapshot.row for snapshot in snapshots]
    counted = snapshots if began_empty else snapshots[1:]
    usable = [row["credit"] if row["usable_credit"] is None else row["usable_credit"] for row in rows]
    grown = {total: sum(snapshot.grown[total] for snapshot in counted) for total in (*TOTALS, "lost_at_restart")}
    return Span(
        elapsed_ms=max(rows[-1]["time_ms"] - rows[0]["time_ms"], 0),
        snapshots=len(rows),
        first_depth=0 if began_empty else rows[0]["depth"],
        first_age_ms=_age_ms(rows[0]),
        falls=sum(rows[n]["depth"] < rows[n - 1]["depth"] for n in range(1, len(rows))),
        min_depth=min(row["depth"] for row in rows),
        min_ready=min(row["ready"] for row in rows),
        min_in_flight=min(row["in_flight"] for row in rows),
        min_consumers=min(row["consumers"] for row in rows),
        min_credit=min(usable),
        max_credit=max(row["credit"] for row in rows),
        growth=Growth(**grown),
    )


def _age_ms(row: Row) -> int | None:
    since_ms = row["oldest_available_ms"]
    return None if since_ms is None or since_ms > row["time_ms"] else row["time_ms"] - since_ms
