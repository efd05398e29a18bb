"""The rate of writes, on a clock of the test."""

from __future__ import annotations

from penstock_operator.reconcile.write_pace import WritePace


def test_the_first_write_waits_for_nothing_and_the_next_ones_are_spaced() -> None:
    pace = WritePace(20)
    assert [round(pace.wait(100.0), 3) for _ in range(4)] == [0.0, 0.05, 0.1, 0.15]


def test_twenty_a_second_whoever_asks() -> None:
    """Two writers that ask in turn get their writes at 0, 50, 100, ... ms together."""
    pace = WritePace(20)
    assert pace.wait(0.0) == 0.0
    assert round(pace.wait(0.01), 3) == 0.04
    assert round(pace.wait(0.05), 3) == 0.05
    assert round(pace.wait(0.10), 3) == 0.05


def test_a_pause_is_not_made_up_for() -> None:
    pace = WritePace(20)
    pace.wait(0.0)
    assert pace.wait(1000.0) == 0.0
    assert round(pace.wait(1000.0), 3) == 0.05


def test_after_a_rest_the_next_write_comes_and_not_all_that_were_missed() -> None:
    pace = WritePace(20)
    pace.wait(0.0)
    pace.rest(0.0, 7.0)
    pace.rest(0.0, 1.0)
    assert pace.wait(2.0) == 5.0
    assert round(pace.wait(7.0), 3) == 0.05
