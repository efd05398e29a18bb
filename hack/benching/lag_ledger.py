"""Ledgers for `hack/bench lag`: many subscriptions, many polls, always the same rows for the same size.

The observer's own code makes the first poll, and writes it as a segment. The other polls are that one with other
figures, computed for all subscriptions at once, because rows as Python objects would take a quarter of an hour for 30
million of them. They are written as the observer writes them; a segment is a minute long. Histograms are in the last
row that a segment has of each life, and in the first row of the ledger.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingImports=false
# Reason: pyarrow ships no type information, and NumPy is installed for the benchmark alone.

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from observer.samples import START_MS, a_poll, a_subscription

from penstock_api.ledger_format import SegmentName
from penstock_api.management import Owner
from penstock_api.state_documents import DurationHistogram
from penstock_observer.open_segment import OpenSegment
from penstock_observer.parquet import SCHEMA, write_segment
from penstock_observer.rows import RowOrigin

__all__ = ["BROKER", "EPOCH", "NAMESPACE", "LedgerSize", "make_ledger"]

VERSION: Final = 2
"""Counted up whenever the rows of a size change, so that no older ledger is taken for this one."""
BROKER, NAMESPACE, EPOCH = "main", "shop", 3
INTERVAL_MS: Final = 10_000
POLLS_PER_SEGMENT: Final = 6
BUCKETS: Final = 24
HISTOGRAMS: Final = ("sojourn", "wait", "hold")

Integers = Any  # numpy's arrays of 64-bit integers, one per subscription


@dataclass(frozen=True, slots=True)
class LedgerSize:
    """How many subscriptions are polled how often, ten seconds apart."""

    subscriptions: int
    polls: int

    @property
    def rows(self) -> int:
        """One for each subscription, and one that closes the poll."""
        return (self.subscriptions + 1) * self.polls

    @property
    def window_seconds(self) -> int:
        """From the first poll to the last."""
        return (self.polls - 1) * INTERVAL_MS // 1000


def make_ledger(cache: Path, size: LedgerSize) -> Path:
    """The folder of a ledger of this size; made once. A folder that was left half made is made anew."""
    folder = cache / f"ledger-v{VERSION}-{size.subscriptions}x{size.polls}"
    if (folder / "whole.json").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    first = _first_poll(size.subscriptions)
    load = _Load(size.subscriptions)
    for start in range(0, size.polls, POLLS_PER_SEGMENT):
        numbers = range(start, min(start + POLLS_PER_SEGMENT, size.polls))
        polls = [_poll(first, load, number, is_told=number in (0, numbers[-1])) for number in numbers]
        seq = start * (size.subscriptions + 1) + 1
        table = pa.concat_tables(polls).sort_by([("queue_name", "ascending"), ("seq", "ascending")])
        name = SegmentName(first=seq, last=seq + table.num_rows - 1, epoch=EPOCH)
        write_segment(folder, name, table)
    (folder / "whole.json").write_text(json.dumps({"rows": size.rows}))
    return folder


def _first_poll(subscriptions: int) -> Any:
    """As the observer has it in memory: the table of a segment with one poll."""
    histogram = DurationHistogram(indexes=tuple(range(BUCKETS)), counts=(1,) * BUCKETS, sum_ms=1)
    states = [
        a_subscription(
            f"orders-{number:05d}",
            incarnation=100 + number,
            owner=Owner(
                cluster_id="local",
                kind="Subscription",
                namespace=NAMESPACE,
                name=f"orders-{number:05d}",
                uid=f"00000000-0000-4000-8000-{number:012d}",
            ),
            **dict.fromkeys(HISTOGRAMS, histogram),
        )
        for number in range(subscriptions)
    ]
    poll = a_poll(START_MS, *states, epoch=EPOCH)
    segment = OpenSegment(RowOrigin(BROKER, 0, INTERVAL_MS), EPOCH, 1, START_MS)
    segment.add(poll)
    return segment.table().cast(SCHEMA)


class _Load:
    """What happens at the queues: of 20, eight are idle, eight are consumed well, three have a backlog that comes and
    goes, one has lost its consumers at the fifth poll.
    """

    def __init__(self, subscriptions: int) -> None:
        self._random = np.random.default_rng(20)
        number = np.arange(subscriptions)
        self._rate = np.where(number % 20 < 8, 0, 5 + number % 97)
        self._has_backlog = (number % 20 >= 16) & (number % 20 < 19)
        self._is_stuck = number % 20 == 19
        self.enqueued = np.zeros(subscriptions, np.int64)
        self.acked = np.zeros(subscriptions, np.int64)
        self.waits_since = np.full(subscriptions, START_MS, np.int64)

    def pass_poll(self, number: int, now_ms: int) -> None:
        """Until the next poll."""
        self.enqueued += self._random.poisson(self._rate)
        phase = np.sin(number / 9.0 + self._rate)
        taken = np.where(self._has_backlog, self._rate * (1 + phase), 1 << 40).astype(np.int64)
        taken = np.where(self._is_stuck & (number >= 5), 0, taken)
        before = self.enqueued - self.acked
        self.acked += np.minimum(before, taken)
        is_empty = self.enqueued == self.acked
        self.waits_since = np.where(is_empty | (before == 0), now_ms, self.waits_since)

    def figures(self, number: int, now_ms: int) -> Mapping[str, Integers]:
        """Columns of the ledger at this poll."""
        depth = self.enqueued - self.acked
        in_flight = np.minimum(depth, 8) * ~(self._is_stuck & (number >= 5))
        consumers = np.where(self._is_stuck & (number >= 5), 0, 2)
        return {
            "depth": depth,
            "depth_bytes": depth * 512,
            "ready": depth - in_flight,
            "in_flight": in_flight,
            "consumers": consumers,
            "credit": consumers * 10,
            "usable_credit": consumers * 10,
            "usable_consumers": consumers,
            "enqueued": self.enqueued,
            "enqueued_bytes": self.enqueued * 512,
            "delivered": self.acked + in_flight,
            "redelivered": self.acked // 1000,
            "acked": self.acked,
        }


def _poll(first: Any, load: _Load, number: int, *, is_told: bool) -> Any:
    """The table of one poll."""
    now_ms, count = START_MS + number * INTERVAL_MS, first.num_rows - 1
    load.pass_poll(number, now_ms)
    figures = load.figures(number, now_ms)
    seq = number * (count + 1) + 1
    nobody = pa.array([None], pa.int64())
    columns: dict[str, Any] = {
        name: pa.concat_arrays([pa.array(values, pa.int64()), nobody]) for name, values in figures.items()
    }
    columns["seq"] = pa.array(np.arange(seq, seq + count + 1))
    columns["poll"] = pa.array(np.full(count + 1, seq + count))
    columns["time_ms"] = pa.array(np.full(count + 1, now_ms))
    waits = np.append(figures["depth"] > 0, False)
    columns["oldest_available_ms"] = pa.array(np.append(load.waits_since, 0), mask=~waits)
    holds = np.append(figures["in_flight"] > 0, False)
    columns["oldest_hold_ms"] = pa.array(np.full(count + 1, now_ms - 20), mask=~holds)
    for name in HISTOGRAMS:
        columns |= _histogram(name, load.acked if is_told else None, count)
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else first.column(field.name) for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _histogram(name: str, accepted: Integers | None, count: int) -> dict[str, Any]:
    """Columns of one histogram: the accepted messages spread over the buckets; the broker's row has none."""
    longs = pa.list_(pa.int64())
    if accepted is None:
        lists, number = pa.nulls(count + 1, longs), pa.nulls(count + 1, pa.int64())
        return {f"{name}_indexes": lists, f"{name}_counts": lists, f"{name}_sum_ms": number}
    offsets = pa.array(np.append(np.arange(count + 1, dtype=np.int32) * BUCKETS, count * BUCKETS))
    shares = np.arange(1, BUCKETS + 1)
    counts = (accepted[:, None] * shares[None, :] // shares.sum()).ravel()
    buckets = np.tile(np.arange(3, 3 + BUCKETS), count)
    absent = pa.array(np.append(np.zeros(count, bool), True))
    sums = pa.concat_arrays([pa.array(accepted * 25), pa.array([None], pa.int64())])
    return {
        f"{name}_indexes": pa.ListArray.from_arrays(offsets, pa.array(buckets), mask=absent).cast(longs),
        f"{name}_counts": pa.ListArray.from_arrays(offsets, pa.array(counts), mask=absent).cast(longs),
        f"{name}_sum_ms": sums,
    }
