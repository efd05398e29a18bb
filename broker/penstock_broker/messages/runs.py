"""What a batch of messages shares: messages of one turn have their times in common, so these are counted in runs.

Written for speed: `sent_runs` and `accepted_runs` look at every message, compiled if that was built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, TypeAlias

import penstock_native
from penstock_amqp.endpoint.events import AVAILABLE, DATA, FLAGS, NUMBER, Entry, Held

__all__ = ["Runs", "accepted_runs", "sent_runs"]

Runs: TypeAlias = list[tuple[int, int]]
"""Times (microseconds since the epoch) in the order of the messages, and how many messages in a row have each."""

_native: Any = penstock_native.messages


def _runs(times: Iterable[int]) -> Runs:
    return [(time, len(list(same))) for time, same in groupby(times)]


def _sent_runs(entries: list[Entry]) -> tuple[int, Runs]:
    return sum([len(entry[DATA]) for entry in entries]), _runs(entry[AVAILABLE] for entry in entries)


def _accepted_runs(batch: list[Held], flag: int) -> tuple[int, list[int], Runs, Runs]:
    size, waits = _sent_runs([entry for _, entry, _ in batch])
    flagged = [entry[NUMBER] for _, entry, _ in batch if entry[FLAGS] & flag]
    return size, flagged, waits, _runs(sent for _, _, sent in batch)


sent_runs: Callable[[list[Entry]], tuple[int, Runs]] = _native.sent_runs if _native else _sent_runs
"""Bytes of the messages, and when they became available."""

accepted_runs: Callable[[list[Held], int], tuple[int, list[int], Runs, Runs]] = (
    _native.accepted_runs if _native else _accepted_runs
)
"""Of deliveries: their bytes, the numbers of those with a flag, when they became available, and when they were sent."""
