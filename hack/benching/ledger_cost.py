"""`hack/bench ledger`: what the observer's ledger costs, in bytes per subscription and hour and in processor time.

Polls are made up (`ledger_polls`), everything else is the observer's own code on a real folder.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock_observer.rows import Poll

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "broker"))

HOUR_SECONDS = 3600
MUCH_LATER_MS = 10 * HOUR_SECONDS * 1000


@dataclass(frozen=True)
class Cost:
    """Of one kind of load."""

    name: str
    kilobytes: float
    """Per subscription and hour, in segments as they are sealed."""
    merged_kilobytes: float
    """The same once they have been merged."""
    append_microseconds: float
    """Processor time per row, from the poll to the synced file."""
    merge_microseconds: float
    """Processor time per row of merging, later and on another thread."""


def ledger(subscriptions: int, minutes: int) -> None:
    """Print the cost of busy and of idle subscriptions."""
    print(f"{subscriptions} subscriptions, {minutes} minutes, a poll every 10 s, segments of 60 s")
    print(f"{'load':6} {'kB per subscription-hour':>26} {'merged':>8} {'CPU us per row':>16} {'to merge':>10}")
    for busy in (True, False):
        cost = _measure(subscriptions, busy, minutes * 6)
        sizes = f"{cost.kilobytes:26.1f} {cost.merged_kilobytes:8.1f}"
        print(f"{cost.name:6} {sizes} {cost.append_microseconds:16.1f} {cost.merge_microseconds:10.1f}")


def _measure(subscriptions: int, busy: bool, count: int) -> Cost:
    from benching.ledger_polls import polls

    from penstock_observer.ledger import Ledger, SealLimits
    from penstock_observer.retention import RetentionLimits
    from penstock_observer.rows import RowOrigin

    with tempfile.TemporaryDirectory() as folder:
        made = Ledger(
            Path(folder),
            RowOrigin("main", 0, 10_000),
            SealLimits(60, 10**9, 10**12),
            RetentionLimits(10**12, 10**12),
        )
        spent, rows, last_ms = 0.0, 0, 0
        for poll in polls(subscriptions, busy, count):
            began = time.process_time()
            made.append(poll)
            spent += time.process_time() - began
            rows += len(poll.subscriptions) + 1
            last_ms = poll.broker.now_ms
        made.seal(last_ms)
        hours = subscriptions * count * 10 / HOUR_SECONDS
        sealed = made.bytes
        made.append(_much_later())
        made.seal(last_ms + MUCH_LATER_MS)
        began = time.process_time()
        while made.merge_old():
            pass
        merging = time.process_time() - began
        merged = made.bytes
        made.close()
    kilobytes, merged_kilobytes = sealed / hours / 1000, merged / hours / 1000
    name = "busy" if busy else "idle"
    return Cost(name, kilobytes, merged_kilobytes, spent / rows * 1e6, merging / rows * 1e6)


def _much_later() -> Poll:
    from benching.ledger_polls import polls

    (poll,) = polls(0, False, 1)
    return replace(poll, broker=poll.broker.model_copy(update={"now_ms": poll.broker.now_ms + MUCH_LATER_MS}))
