"""How long writes that can wait let declarations go first."""

from __future__ import annotations

from penstock_operator.plans.declaration_priority import DeclarationPriority


def waited(priority: DeclarationPriority, began: float, seconds: int, *, is_declaring: bool = True) -> int:
    """How many of so many seconds it waits, if it is asked each second."""
    return sum(priority.must_wait(began + second, is_declaring=is_declaring) for second in range(seconds))


def test_nobody_waits_while_nothing_is_declared() -> None:
    assert waited(DeclarationPriority(), 0, 200, is_declaring=False) == 0


def test_declarations_of_half_a_minute_go_first_and_then_nobody_waits() -> None:
    priority = DeclarationPriority()
    assert waited(priority, 0, 30) == 30
    assert not priority.must_wait(30, is_declaring=False)


def test_declarations_that_never_end_are_waited_for_a_minute_and_then_half_of_the_time() -> None:
    priority = DeclarationPriority()
    assert waited(priority, 0, 60) == 60
    assert 490 <= waited(priority, 60, 1000) <= 510


def test_declaration_priority_comes_back_as_time_passes_and_never_grows_beyond_a_minute() -> None:
    priority = DeclarationPriority()
    assert waited(priority, 0, 60) == 60
    assert not priority.must_wait(60, is_declaring=False)
    assert not priority.must_wait(80, is_declaring=False)
    assert waited(priority, 80, 20) == 20
    assert not priority.must_wait(100, is_declaring=False)
    assert not priority.must_wait(9000, is_declaring=False)
    assert waited(priority, 9000, 61) == 60


def test_a_clock_that_stands_still_takes_nothing() -> None:
    priority = DeclarationPriority()
    assert [priority.must_wait(5, is_declaring=True) for _ in range(100)] == [True] * 100
