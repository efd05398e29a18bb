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
