"""Timers: each once, in order, never early."""

from __future__ import annotations

from functools import partial

import pytest

from penstock_broker.clock import Timers


def test_timers_run_in_the_order_of_their_deadlines() -> None:
    timers, ran = Timers(), list[str]()
    for name, deadline in (("c", 30), ("a", 10), ("b", 20), ("b2", 20)):
        timers.at(deadline, partial(ran.append, name))
    timers.run(9)
    assert ran == []
    timers.run(20)
    assert ran == ["a", "b", "b2"]
    timers.run(100)
    timers.run(100)
    assert ran == ["a", "b", "b2", "c"]


def test_an_action_may_set_the_next_timer() -> None:
    timers, ran = Timers(), list[int]()

    def again() -> None:
        ran.append(len(ran))
        if len(ran) < 3:
            timers.at(10 * len(ran), again)

    timers.at(0, again)
    timers.run(100)
    assert ran == [0]  # the next is due already, but gives way to the rest of the turn
    timers.run(100)
    timers.run(100)
    timers.run(100)
    assert ran == [0, 1, 2]


def test_an_action_that_fails_holds_no_other_up(caplog: pytest.LogCaptureFixture) -> None:
    timers, ran = Timers(), list[str]()

    def fail() -> None:
        raise ValueError("broken")

    timers.at(1, fail)
    timers.at(2, partial(ran.append, "behind"))
    timers.run(10)
    assert ran == ["behind"]
    assert "broken" in caplog.text


def test_what_a_failed_action_belonged_to_is_closed_and_an_action_of_the_broker_runs_again() -> None:
    timers, ran = Timers(), list[str]()

    def fail(name: str) -> None:
        ran.append(name)
        raise ValueError("broken")

    timers.at(1, partial(fail, "of a connection"), failed=partial(ran.append, "closed"))
    timers.at(1, partial(fail, "of the broker"))
    timers.run(10)
    assert ran == ["of a connection", "closed", "of the broker"]
    timers.run(1009)
    assert ran[3:] == []
    timers.run(1010)
    assert ran[3:] == ["of the broker"]


def test_an_action_that_set_its_next_timer_before_it_failed_does_not_run_twice() -> None:
    timers, ran = Timers(), list[int]()

    def sweep(now_ms: int) -> None:
        ran.append(now_ms)
        timers.at(now_ms + 250, partial(sweep, now_ms + 250))
        raise ValueError("broken")

    timers.at(0, partial(sweep, 0))
    for now_ms in range(0, 2001, 250):
        timers.run(now_ms)
    assert ran == list(range(0, 2001, 250))


def test_the_wait_ends_with_the_next_deadline() -> None:
    timers = Timers()
    assert timers.wait_ms(5, at_most_ms=1000) == 1000
    timers.at(300, lambda: None)
    assert timers.wait_ms(100, at_most_ms=1000) == 200
    assert timers.wait_ms(100, at_most_ms=50) == 50
    assert timers.wait_ms(400, at_most_ms=1000) == 0


def test_what_is_due_shares_the_turns() -> None:
    timers, ran = Timers(), list[str]()
    for name in "abc":
        timers.at(10, partial(ran.append, name))
    timers.run(10, lambda: len(ran) < 2)
    assert ran == ["a", "b"]
    assert timers.wait_ms(10, at_most_ms=1000) == 0
    timers.at(5, partial(ran.append, "later"))
    timers.run(10, lambda: False)
    assert ran == ["a", "b", "c"]  # who waited longest comes first
    timers.run(10)
    assert ran == ["a", "b", "c", "later"]


def test_of_very_many_that_are_due_a_bounded_number_is_touched_at_a_time() -> None:
    """Ten thousand queues may have one each, when a process goes on that stood still."""
    compared = 0

    class Deadline(int):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int(self) == other

        def __lt__(self, other: int) -> bool:
            return int(self) < int(other)

        __hash__ = int.__hash__

    costs: list[int] = []
    for count in (1_000, 10_000):
        timers, ran = Timers(), list[int]()
        for number in reversed(range(count)):
            timers.at(Deadline(number), partial(ran.append, number))
        compared = 0
        timers.run(count, lambda: False)
        costs.append(compared)
        assert ran == [0]
        assert timers.next_ms <= count
    assert costs[1] < 2 * costs[0]
    while len(ran) < 10_000:
        timers.run(10_000, lambda: len(ran) % 300 > 0)
        assert timers.next_ms <= 10_000 or len(ran) == 10_000
    assert ran == list(range(10_000))
