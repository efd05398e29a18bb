"""The time series of a subscription from the ledger, while the ledger is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from observer.samples import START_MS, a_poll, a_subscription

from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.ledger_time_series import time_series
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import RowOrigin


def test_rows_that_are_sealed_while_they_are_read_come_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The poller seals a segment just after a reader of the page has got the rows that wait for it."""
    limits = SealLimits(60, 1000, 10**9), RetentionLimits(10**12, 10**12)
    ledger = Ledger(tmp_path, RowOrigin("main", 0, 10_000), *limits)
    end_ms = START_MS
    for step in range(10):
        end_ms = START_MS + 10_000 * step
        ledger.append(a_poll(end_ms, a_subscription(depth=step, ready=step, enqueued=step)))
    assert (len(ledger.segments), ledger.waiting_rows) == (1, 6)
    read = ledger.waiting

    def waiting(queue_name: str) -> list[dict[str, Any]]:
        rows = read(queue_name)
        ledger.seal(end_ms)
        return rows

    monkeypatch.setattr(ledger, "waiting", waiting)
    found, told = time_series(ledger, "psub:durable:global:orders", end_ms, 0)
    ledger.close()
    assert told is None
    assert (found.snapshots, found.grown.enqueued) == (10, 9)


def test_what_is_stranded_has_no_age_of_0_in_a_plot_either(tmp_path: Path) -> None:
    """Read from a segment, and from the rows that are in none yet; what is due later does not wait."""
    ledger = Ledger(
        tmp_path, RowOrigin("main", 0, 10_000), SealLimits(60, 1000, 10**9), RetentionLimits(10**12, 10**12)
    )
    end_ms = START_MS
    for step in range(9):
        end_ms = START_MS + 10_000 * step
        ledger.append(a_poll(end_ms, a_subscription(depth=2, scheduled=2, stranded=step % 2)))
    assert len(ledger.segments) == 1
    found, _ = time_series(ledger, "psub:durable:global:orders", end_ms, 0)
    ledger.close()
    assert [point.age_seconds for point in found.points] == [0, None, 0, None, 0, None, 0, None, 0]
