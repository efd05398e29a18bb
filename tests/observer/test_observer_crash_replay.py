"""An observer that is killed anywhere, any number of times, loses the rows that were in memory and nothing else."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from observer.samples import START_MS, a_poll, a_subscription

from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import Poll, RowOrigin

pq: Any = importlib.import_module("pyarrow.parquet")  # it ships no type information

STEP_MS = 10_000
SEGMENT_SECONDS = 30


def opened(folder: Path) -> Ledger:
    """The ledger of an observer that starts."""
    limits = RetentionLimits(age_ms=10**12, bytes=10**12)
    return Ledger(folder, RowOrigin("main", 0, STEP_MS), SealLimits(SEGMENT_SECONDS, 10**6, 10**9), limits)


def poll_at(number: int) -> Poll:
    """The totals grow from poll to poll."""
    state = a_subscription(enqueued=7 * number, acked=5 * number, depth=2 * number, ready=2 * number)
    return a_poll(START_MS + number * STEP_MS, state)


def rows_in(ledger: Ledger) -> list[dict[str, Any]]:
    """Of all segments, by seq."""
    rows = [row for each in ledger.segments for row in pq.read_table(ledger.folder / each.name).to_pylist()]
    return sorted(rows, key=lambda row: row["seq"])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 20), st.sets(st.integers(1, 20)))
def test_what_was_sealed_is_there_and_the_rest_is_as_if_nobody_had_polled(polls: int, kills: set[int]) -> None:
    """`kills`: the numbers of the polls after which it is killed. A segment is complete with the poll that is 30 s
    after its first one, so it has four.
    """
    sealed: list[int] = []
    waiting: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        ledger = opened(Path(folder))
        for number in range(1, polls + 1):
            ledger.append(poll_at(number))
            waiting.append(number)
            if len(waiting) == 4:
                sealed += waiting
                waiting.clear()
            if number in kills:
                ledger.close()  # as a kill: what is in memory is not written
                waiting.clear()
                ledger = opened(Path(folder))
        ledger.seal(START_MS + polls * STEP_MS)
        sealed += waiting
        rows = rows_in(ledger)
        ledger.close()
    assert [row["seq"] for row in rows] == list(range(1, 2 * len(sealed) + 1))
    told = [(row["time_ms"], row["enqueued"], row["acked"], row["depth"]) for row in rows if row["depth"] is not None]
    assert told == [(START_MS + at * STEP_MS, 7 * at, 5 * at, 2 * at) for at in sealed]
    assert [row["time_ms"] for row in rows if row["kind"] == "broker"] == [START_MS + at * STEP_MS for at in sealed]
