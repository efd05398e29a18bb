"""The charts of the benchmarks leave out what was not measured."""

from __future__ import annotations

from benching.flow import chart
from benching.open_loop import latency_chart
from benching.results import Run
from benching.sync_senders import LIMIT
from benching.sync_senders import chart as sync_chart


def test_accepts_against_waiting_producers() -> None:
    rows = [
        Run(0, LIMIT, "1 waiting", {"rate": 1000.0}),
        Run(0, LIMIT, "10 waiting", {"rate": 10000.0}),
        Run(0, "ours", "1 waiting", {}),
        Run(0, "ours", "10 waiting", {"rate": 1000.0}),
    ]
    drawn = sync_chart(rows)
    assert drawn.count("<polyline") == 2
    assert drawn.count(",241.0") == 2  # a thousand a second: at 1 for the limit, at 10 for ours


def test_latency_of_brokers_that_kept_up() -> None:
    rows = [
        Run(0, "ours", "1,000/s", {"rate": 1000.0, "p99_ms": 1.0}),
        Run(0, "ours", "50,000/s", {"rate": 20000.0}),
        Run(0, "theirs", "1,000/s", {"rate": 900.0}),
    ]
    drawn = latency_chart(rows, "p99")
    assert (drawn.count("<polyline"), ">ours<" in drawn, ">theirs<" in drawn) == (1, True, False)


def test_bars_of_what_was_measured() -> None:
    rows = [Run(0, "ours", "small", {"rate": 2.0}), Run(0, "theirs", "small", {})]
    drawn = chart("Rates", "per second", rows, "rate")
    assert (">ours<" in drawn, ">theirs<" in drawn) == (True, False)
