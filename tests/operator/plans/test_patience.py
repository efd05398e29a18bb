"""How long writes that can wait let declarations go first."""

from __future__ import annotations

from penstock_operator.plans.patience import Patience


def waited(patience: Patience, began: float, seconds: int, *, is_declaring: bool = True) -> int:
    """How many of so many seconds it waits, if it is asked each second."""
    return sum(patience.waits(began + second, is_declaring=is_declaring) for second in range(seconds))


def test_nobody_waits_while_nothing_is_declared() -> None:
    assert waited(Patience(), 0, 200, is_declaring=False) == 0


def test_declarations_of_half_a_minute_go_first_and_then_nobody_waits() -> None:
    patience = Patience()
    assert waited(patience, 0, 30) == 30
    assert not patience.waits(30, is_declaring=False)


def test_declarations_that_never_end_are_waited_for_a_minute_and_then_half_of_the_time() -> None:
    patience = Patience()
    assert waited(patience, 0, 60) == 60
    assert 490 <= waited(patience, 60, 1000) <= 510


def test_patience_comes_back_as_time_passes_and_never_grows_beyond_a_minute() -> None:
    patience = Patience()
    assert waited(patience, 0, 60) == 60
    assert not patience.waits(60, is_declaring=False)
    assert not patience.waits(80, is_declaring=False)
    assert waited(patience, 80, 20) == 20
    assert not patience.waits(100, is_declaring=False)
    assert not patience.waits(9000, is_declaring=False)
    assert waited(patience, 9000, 61) == 60


def test_a_clock_that_stands_still_takes_nothing() -> None:
    patience = Patience()
    assert [patience.waits(5, is_declaring=True) for _ in range(100)] == [True] * 100
