"""A clock that is set between two polls is seen, and times from before it are moved to the clock as it is now."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observer.samples import a_subscription

from penstock_api.state_documents import RepeatedMessage, SubscriptionState
from penstock_observer.broker_clock import BrokerClock, ClockReading, ClockSpan, oldest_age_ms, step_between
from penstock_observer.clock_memory import ClockMemory

NOON = 1_700_000_000_000
HOUR = 3_600_000
MINUTE = 60_000
EMPTY = a_subscription()


@pytest.mark.parametrize(
    ("later", "step_ms"),
    [
        pytest.param(ClockReading(NOON + 10_000, 10_000, 10_002), 0, id="goes on"),
        pytest.param(ClockReading(NOON + 10_900, 10_000, 10_002), 0, id="less than a second"),
        pytest.param(ClockReading(NOON + 40_000, 10_000, 40_001), 0, id="the answer took 30 s"),
        pytest.param(ClockReading(NOON + 10_001, 10_000, 40_001), 0, id="told at once, and 30 s on its way"),
        pytest.param(ClockReading(NOON + HOUR, HOUR, HOUR + 2), 0, id="an hour without an answer"),
        pytest.param(ClockReading(NOON + HOUR + 10_000, 10_000, 10_002), HOUR, id="an hour forward"),
        pytest.param(ClockReading(NOON - HOUR + 10_000, 10_000, 10_002), -HOUR, id="an hour back"),
        pytest.param(ClockReading(NOON + 12_002, 10_000, 10_002), 2_002, id="two seconds forward: 1,999 to 2,005 ms"),
        pytest.param(ClockReading(NOON + 5_000, 10_000, 10_002), -5_000, id="back by less than an interval"),
        pytest.param(ClockReading(NOON + 60_000, 10_000, 30_000), 40_001, id="at least 30 s, at most 50 s"),
    ],
)
def test_a_step_is_what_a_slow_answer_does_not_explain(later: ClockReading, step_ms: int) -> None:
    """The reading before took 2 ms."""
    assert step_between(ClockReading(NOON, 0, 2), later) == step_ms


@dataclass
class Watch:
    """A broker whose clock is set, and whose observer polls without any delay."""

    clock: BrokerClock = field(default_factory=BrokerClock)
    true_ms: int = 0
    ahead_ms: int = NOON

    def poll(self, after_ms: int, step_ms: int = 0, **values: Any) -> SubscriptionState:
        """Set the clock, let time pass, poll. Times in `values` are as the broker tells them."""
        self.ahead_ms += step_ms
        self.true_ms += after_ms
        self.clock.read(ClockReading(self.now_ms, self.true_ms, self.true_ms))
        (state,) = self.clock.on_present_clock((a_subscription(**values),))
        return state

    @property
    def now_ms(self) -> int:
        return self.true_ms + self.ahead_ms


def test_without_a_step_states_are_the_same_objects() -> None:
    clock, state = BrokerClock(), a_subscription(depth=1, ready=1, oldest_available_ms=NOON)
    for at_ms in (0, 10_000, 20_000):
        clock.read(ClockReading(NOON + at_ms, at_ms, at_ms))
        assert clock.on_present_clock((state,))[0] is state
    clock.read(ClockReading(NOON + HOUR, 30_000, 30_000))
    moved = clock.on_present_clock((state,))[0]
    assert moved.oldest_available_ms == NOON + HOUR - 30_000
    clock.read(ClockReading(NOON + HOUR + 10_000, 40_000, 40_000))
    assert clock.on_present_clock((state,))[0] is moved


def test_an_hour_forward_makes_nothing_an_hour_older() -> None:
    """Message, delivery and the last consumer are from the minute before the first poll."""
    watch = Watch()
    old: dict[str, Any] = {
        "depth": 2,
        "ready": 1,
        "in_flight": 1,
        "oldest_available_ms": NOON - 50_000,
        "oldest_hold_ms": NOON - 40_000,
        "unused_since_ms": NOON - 30_000,
        "repeated": (RepeatedMessage(id="m", delivery_count=3, available_ms=NOON - 20_000, state="Ready"),),
    }
    watch.poll(0, **old)
    state = watch.poll(10_000, HOUR, **old)
    assert state.oldest_available_ms == watch.now_ms - 60_000
    assert state.oldest_hold_ms == watch.now_ms - 50_000
    assert state.unused_since_ms == watch.now_ms - 40_000
    assert [each.available_ms for each in state.repeated] == [watch.now_ms - 30_000]
    old["oldest_available_ms"] = NOON - 5_000  # the next one, which nobody saw before: it is of the former clock
    assert watch.poll(10_000, **old).oldest_available_ms == watch.now_ms - 25_000
    old["oldest_available_ms"] = NOON + HOUR + 15_000  # of the present one
    assert watch.poll(10_000, **old).oldest_available_ms == watch.now_ms - 15_000


def test_an_hour_back_makes_no_old_message_young() -> None:
    """At 11:59 one came; at noon the clock is set to 11:00. At 12:00 by the clock as it is now, it is an hour old."""
    watch = Watch()
    waits: dict[str, Any] = {"depth": 1, "ready": 1, "oldest_available_ms": NOON - MINUTE}
    watch.poll(0, **waits)
    state = watch.poll(10_000, -HOUR, **waits)
    assert state.oldest_available_ms == watch.now_ms - 70_000
    state = watch.poll(HOUR, **waits)
    assert oldest_age_ms(state, watch.now_ms) == HOUR + 70_000


def test_a_time_that_either_clock_may_have_shown_is_unknown_until_nothing_waits() -> None:
    """At 11:50 by the second clock the oldest is of 11:40: it waits for 10 minutes, or for 70."""
    watch = Watch()
    waits: dict[str, Any] = {"depth": 9, "ready": 9, "oldest_available_ms": NOON - 30 * MINUTE}
    watch.poll(0, **waits)
    watch.poll(10_000, -HOUR, **waits)
    waits["oldest_available_ms"] = NOON - 20 * MINUTE
    state = watch.poll(50 * MINUTE, **waits)
    assert state.oldest_available_ms is None
    assert oldest_age_ms(state, watch.now_ms) is None
    watch.poll(10_000)
    waits["oldest_available_ms"] = NOON - 10 * MINUTE
    state = watch.poll(MINUTE, **waits)
    assert state.oldest_available_ms == NOON - 10 * MINUTE


def test_a_subscription_that_appears_is_of_the_present_clock() -> None:
    clock = BrokerClock()
    clock.read(ClockReading(NOON, 0, 0))
    clock.on_present_clock(())
    clock.read(ClockReading(NOON - HOUR, 10_000, 10_000))
    clock.on_present_clock(())
    clock.read(ClockReading(NOON - MINUTE, HOUR - 50_000, HOUR - 50_000))
    state = a_subscription(depth=1, ready=1, oldest_available_ms=NOON - 2 * MINUTE)
    assert clock.on_present_clock((state,))[0] is state


def test_a_delayed_message_that_falls_due_by_the_step_waits_since_the_step() -> None:
    """It was due half an hour later; then the clock went an hour forward, up to ten seconds ago."""
    watch = Watch()
    watch.poll(0, depth=1, scheduled=1)
    due: dict[str, Any] = {"depth": 1, "ready": 1, "oldest_available_ms": NOON + HOUR // 2}
    assert watch.poll(10_000, HOUR, **due).oldest_available_ms == watch.now_ms - 10_001


def test_what_an_observer_knew_the_next_one_knows(tmp_path: Path) -> None:
    """Of this data folder only; what came while nobody polled may be of either clock."""
    watch, memory = Watch(), ClockMemory(tmp_path)
    waits: dict[str, Any] = {"depth": 1, "ready": 1, "oldest_available_ms": NOON - MINUTE}
    assert memory.load("i-1") == ()
    watch.poll(0, **waits)
    watch.poll(10_000, HOUR, **waits)
    memory.save("i-1", watch.clock.clocks)
    assert memory.load("i-2") == ()
    later = Watch(BrokerClock(memory.load("i-1")), watch.true_ms, watch.ahead_ms)
    assert later.poll(30_000, **waits).oldest_available_ms == later.now_ms - 100_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clock-steps.json"]
    assert (tmp_path / "clock-steps.json").read_text() == (
        '{"version":1,"instance":"i-1","clocks":['
        '{"from_ms":null,"until_ms":1700000010001,"later_ms":3600000},'
        '{"from_ms":1700003599999,"until_ms":null,"later_ms":0}]}'
    )


@pytest.mark.parametrize("content", ["", "{}", '{"version":2,"instance":"i-1","clocks":[]}', "\x00"])
def test_a_damaged_memory_is_named_and_not_used(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "clock-steps.json").write_text(content)
    assert ClockMemory(tmp_path).load("i-1") == ()
    assert "clock-steps.json can't be read" in caplog.text


def test_a_memory_that_cannot_be_written_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ClockMemory(tmp_path / "gone").save("i-1", [ClockSpan(None)])
    assert "clock-steps.json can't be written" in caplog.text


TURNS = st.lists(
    st.tuples(
        st.sampled_from([1_000, 10_000, 10_000, 10_000, 300_000, 2_000_000]),  # until the next poll
        st.sampled_from([0, 0, 0, 0, 5_000, -5_000, 90_000, -90_000, HOUR, -HOUR, 30 * HOUR]),
        st.integers(0, 2),  # messages that come
        st.integers(0, 2),  # messages that go
        st.integers(0, 100),  # how far into the time between the polls all of this happens, in per cent
        st.tuples(st.integers(0, 900), st.integers(0, 900)),  # how long question and answer take
    ),
    min_size=2,
    max_size=40,
)


@settings(max_examples=300)
@given(TURNS)
def test_an_age_is_the_true_one_or_unknown(turns: list[tuple[int, int, int, int, int, tuple[int, int]]]) -> None:
    """A queue, first in, first out, and a clock that is set at any time. An age may be wrong by what question and
    answer take at each step, and by ten seconds too long at each step: then two clocks may have shown its time.
    """
    clock = BrokerClock()
    clock.read(ClockReading(NOON, 0, 0))
    clock.on_present_clock((a_subscription(),))
    true_ms, ahead_ms, waiting = 0, NOON, list[tuple[int, int]]()
    wrong_ms, asking_ms, steps = 0, 0, 0
    for until_ms, step_ms, come, go, percent, (question_ms, answer_ms) in turns:
        at_ms = true_ms + until_ms * percent // 100
        del waiting[:go]
        waiting += [(at_ms, at_ms + ahead_ms)] * (come // 2)
        ahead_ms += step_ms
        waiting += [(at_ms, at_ms + ahead_ms)] * (come - come // 2)
        true_ms += until_ms
        seen = clock.read(ClockReading(true_ms + ahead_ms, true_ms - question_ms, true_ms + answer_ms))
        steps += bool(step_ms)
        wrong_ms += (asking_ms + question_ms + answer_ms + 2) if step_ms else 0
        asking_ms = question_ms + answer_ms
        assert (seen or 0) * step_ms >= 0
        assert bool(seen) <= bool(step_ms)
        told = {"depth": len(waiting), "ready": len(waiting), "oldest_available_ms": waiting[0][1] if waiting else None}
        (state,) = clock.on_present_clock((EMPTY.model_copy(update=told),))
        age_ms = oldest_age_ms(state, true_ms + ahead_ms)
        if not waiting:
            assert age_ms == 0
        elif age_ms is not None:
            true_age_ms = true_ms - waiting[0][0]
            assert true_age_ms - wrong_ms <= age_ms <= true_age_ms + wrong_ms + 10_000 * steps
