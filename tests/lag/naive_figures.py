"""The snapshots of each queue as plainly as possible, from the same ledger rows: what the steps on Spark must find.

It keeps everything in lists, goes through them from the front, and shares no code with the steps. The spans come from
penstock_lag_rules.history, which defines them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_lag_rules.figures import TOTALS, Coverage, Figures, Growth, Subject
from penstock_lag_rules.history import Snapshot, figures_of
from penstock_lag_rules.thresholds import Thresholds

__all__ = ["naive_figures"]

Row = Mapping[str, Any]


@dataclass
class NaivePoll:
    """A broker row and what is known of its place."""

    row: Row
    run: int
    folder: int


def naive_figures(rows: Sequence[Row], thresholds: Thresholds) -> dict[tuple[int, str], tuple[Figures, int]]:
    """By ordinal and queue name the figures and the number of lives, without the queues that the last complete poll no
    longer had. The coverage is not filled in.
    """
    found: dict[tuple[int, str], tuple[Figures, int]] = {}
    for ordinal in {row["ordinal"] for row in rows}:
        rows_of_one = sorted((row for row in rows if row["ordinal"] == ordinal), key=lambda row: row["seq"])
        polls = _polls([row for row in rows_of_one if row["kind"] == "broker"])
        for name in {row["queue_name"] for row in rows_of_one if row["kind"] == "subscription"}:
            mine = [row for row in rows_of_one if row["queue_name"] == name]
            last_complete = max((poll.row["seq"] for poll in polls if poll.row["complete"]), default=0)
            if mine[-1]["poll"] >= last_complete:
                subject = Subject(ordinal=ordinal, queue_name=name)
                coverage = Coverage(last_poll_ms=0, elapsed_ms=0, polls=0, interval_ms=0)
                snapshots = _snapshots(mine, polls)
                own = [each for each in snapshots if each.queue == snapshots[-1].queue]  # folders are counted
                figures = figures_of(subject, coverage, snapshots, thresholds)
                found[ordinal, name] = figures, len({each.life for each in own})
    return found


def _polls(rows: Sequence[Row]) -> list[NaivePoll]:
    polls: list[NaivePoll] = []
    run = folder = 0
    for row in rows:
        if polls:
            before = polls[-1].row
            folder += before["instance"] != row["instance"]
            run += any(before[name] != row[name] for name in ("instance", "epoch", "started_ms"))
        polls.append(NaivePoll(row, run, folder))
    return polls


def _snapshots(rows: Sequence[Row], polls: Sequence[NaivePoll]) -> list[Snapshot]:
    position = {poll.row["seq"]: number for number, poll in enumerate(polls)}
    made: list[Snapshot] = []
    for row in rows:
        number = position[row["poll"]]
        here = polls[number]
        life = (str(here.folder), here.run, row["incarnation"], 0)
        was_absent = any(poll.row["complete"] and poll.run == here.run for poll in polls[:number])
        made.append(
            Snapshot(
                time_ms=row["time_ms"],
                life=life,
                is_born=was_absent and all(each.life != life for each in made),
                depth=row["depth"],
                ready=row["ready"],
                in_flight=row["in_flight"],
                scheduled=row["scheduled"],
                stranded=row["stranded"] or 0,
                oldest_available_ms=row["oldest_available_ms"],
                consumers=row["consumers"],
                credit=row["credit"],
                usable_credit=row["credit"] if row["usable_credit"] is None else row["usable_credit"],
                usable_consumers=row["usable_consumers"],
                totals=Growth(**{total: row[total] or 0 for total in TOTALS}),
            )
        )
    return made
