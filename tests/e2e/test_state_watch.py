"""The verdict over a live scenario: a right course is found with its time, and each wrong one is named."""

from __future__ import annotations

import pytest
from e2e.state_watch import Expectation, Sighting, WrongState, sighting_of

from penstock_api.lag_result import LagState

OK, LAGGING, UNKNOWN, UNCONSUMED = LagState.OK, LagState.LAGGING, LagState.UNKNOWN, LagState.UNCONSUMED
KILLED = Expectation("killed", (OK, LAGGING, UNCONSUMED), 60_000, r"no consumer for \d+ s")
INJECTED_MS = 30_000


def course(*states: LagState, sentence: str = "no consumer for 61 s") -> list[Sighting]:
    """One sighting every ten seconds, the first at 10 s."""
    return [Sighting(10_000 * number, state, sentence) for number, state in enumerate(states, 1)]


def test_the_first_sighting_counts_and_states_of_the_path_may_be_left_out() -> None:
    seen = course(OK, OK, OK, OK, UNCONSUMED, UNCONSUMED)
    assert sighting_of(KILLED, seen, INJECTED_MS) == Sighting(50_000, UNCONSUMED, "no consumer for 61 s")


def test_a_state_that_may_still_come_is_waited_for() -> None:
    assert sighting_of(KILLED, course(OK, OK, OK, OK, LAGGING), INJECTED_MS) is None
    assert sighting_of(KILLED, [], INJECTED_MS) is None


def test_what_was_seen_before_the_injection_does_not_count() -> None:
    healthy = Expectation("healthy", (OK,), 10_000, "no consumer for 61 s")
    assert sighting_of(healthy, course(OK, OK, OK), INJECTED_MS) is None


def test_the_first_poll_after_two_periods_is_the_last_chance() -> None:
    late = [Sighting(149_999, LAGGING, ""), Sighting(175_000, UNCONSUMED, "no consumer for 140 s")]
    assert sighting_of(KILLED, late, INJECTED_MS) == late[1]
    with pytest.raises(WrongState, match="killed is Lagging and not Unconsumed after 120 s: behind"):
        sighting_of(KILLED, [Sighting(150_000, LAGGING, "behind"), late[1]], INJECTED_MS)


@pytest.mark.parametrize(
    "states",
    [
        pytest.param((OK, LagState.BROKER_STUCK), id="a state that is not allowed"),
        pytest.param((OK, LAGGING, OK, UNCONSUMED), id="a wrong order"),
        pytest.param((OK, UNCONSUMED, OK), id="it does not stay"),
        pytest.param((OK, UNKNOWN, UNCONSUMED), id="unknown in between"),
    ],
)
def test_another_course_is_refused(states: tuple[LagState, ...]) -> None:
    with pytest.raises(WrongState, match="allowed is OK, Lagging, Unconsumed"):
        sighting_of(KILLED, course(*states), INJECTED_MS)


def test_another_sentence_is_refused() -> None:
    with pytest.raises(WrongState, match="killed is Unconsumed, but says: nobody"):
        sighting_of(KILLED, course(OK, OK, OK, UNCONSUMED, sentence="nobody"), INJECTED_MS)
