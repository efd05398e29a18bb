"""Which of several operators manages a Broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_operator.plans import managing_operator
from penstock_operator.plans.lease import LeaseRecord
from penstock_operator.plans.managing_operator import (
    ABSENT_SECONDS,
    OVER_SECONDS,
    UNSEEN_SECONDS,
    ObservedLease,
    Responsibility,
)

ME, OTHER = "mine/penstock", "theirs/penstock"


def record(holder: str = "pod", seconds: int = 15, renewed: str = "r1") -> LeaseRecord:
    return LeaseRecord(holder, seconds, renewed, "a1", 3, "7")


@pytest.mark.parametrize(
    ("recorded", "other", "now", "wanted"),
    [
        pytest.param(ME, None, 0, Responsibility.MANAGE, id="own"),
        pytest.param("", None, 0, Responsibility.TAKE, id="nobody-s"),
        pytest.param("nonsense", None, 0, Responsibility.TAKE, id="no-operator-can-have-this-name"),
        pytest.param(OTHER, None, 1e9, Responsibility.WAIT, id="its-lease-was-not-read"),
        pytest.param(
            OTHER,
            ObservedLease(None, 0, 0, is_hidden=True),
            1e9,
            Responsibility.KEEP_OFF,
            id="its-lease-may-not-be-read",
        ),
        pytest.param(
            OTHER,
            ObservedLease(record(), 100, 100),
            100,
            Responsibility.WAIT,
            id="held-but-perhaps-by-a-pod-that-is-gone",
        ),
        pytest.param(OTHER, ObservedLease(record(), 100, 399), 399, Responsibility.WAIT, id="held-and-nearly-over"),
        pytest.param(
            OTHER, ObservedLease(record(), 100, 400), 400, Responsibility.TAKE, id="held-by-a-pod-that-is-gone"
        ),
        pytest.param(
            OTHER, ObservedLease(record(), 100, 399, is_renewed=True), 399, Responsibility.KEEP_OFF, id="renewed"
        ),
        pytest.param(
            OTHER, ObservedLease(record(), 100, 400, is_renewed=True), 400, Responsibility.TAKE, id="renewed-long-ago"
        ),
        pytest.param(
            OTHER, ObservedLease(record(seconds=3600), 0, 3599), 3599, Responsibility.WAIT, id="its-lease-is-longer"
        ),
        pytest.param(
            OTHER, ObservedLease(record(seconds=3600), 0, 3600), 3600, Responsibility.TAKE, id="its-long-lease-is-over"
        ),
        pytest.param(
            OTHER,
            ObservedLease(record("", 1), 100, 399),
            399,
            Responsibility.WAIT,
            id="given-back-perhaps-for-an-upgrade",
        ),
        pytest.param(OTHER, ObservedLease(record("", 1), 100, 400), 400, Responsibility.TAKE, id="given-back-for-good"),
        pytest.param(OTHER, ObservedLease(record(), 100, 340), 400, Responsibility.TAKE, id="read-a-minute-ago"),
        pytest.param(OTHER, ObservedLease(record(), 100, 339), 400, Responsibility.WAIT, id="what-was-read-is-old"),
        pytest.param(OTHER, ObservedLease(None, 100, 129), 129, Responsibility.WAIT, id="its-lease-is-gone"),
        pytest.param(OTHER, ObservedLease(None, 100, 130), 130, Responsibility.TAKE, id="its-lease-is-gone-for-long"),
    ],
)
def test_what_to_do(recorded: str, other: ObservedLease | None, now: float, wanted: Responsibility) -> None:
    assert managing_operator.decide(recorded, ME, other, now) is wanted


def test_an_operator_without_a_lease_gives_way_to_every_other() -> None:
    assert managing_operator.name_of("mine", "") == ""
    assert managing_operator.decide("", "", None, 0) is Responsibility.MANAGE
    assert (
        managing_operator.decide(OTHER, "", ObservedLease(record(), 0, 1, is_renewed=True), 1)
        is Responsibility.KEEP_OFF
    )
    assert (
        managing_operator.decide(OTHER, "", ObservedLease(record(), 0, OVER_SECONDS), OVER_SECONDS)
        is Responsibility.TAKE
    )


@pytest.mark.parametrize("name", ["", "/", "a", "a/", "/b", "a/b/c", "A/b", "a/../b", "a.b/c", "-a/b"])
def test_what_is_no_name_of_an_operator(name: str) -> None:
    assert managing_operator.lease_of(name) is None


def test_the_name_of_an_operator_is_that_of_its_lease() -> None:
    assert managing_operator.lease_of(managing_operator.name_of("penstock-system", "a.b-c")) == (
        "penstock-system",
        "a.b-c",
    )


def test_a_lease_that_changes_in_the_hands_of_a_holder_was_renewed() -> None:
    first = managing_operator.observed(None, record(renewed="r1"), 100)
    assert first == ObservedLease(record(renewed="r1"), 100, 100)
    assert managing_operator.observed(first, record(renewed="r1"), 110) == ObservedLease(record(renewed="r1"), 100, 110)
    assert managing_operator.observed(first, record(renewed="r2"), 110) == ObservedLease(
        record(renewed="r2"), 110, 110, is_renewed=True
    )
    given_back = record("", 1, "r3")
    assert managing_operator.observed(first, given_back, 110) == ObservedLease(given_back, 110, 110)
    assert managing_operator.observed(first, None, 110) == ObservedLease(None, 110, 110)
    assert managing_operator.observed(ObservedLease(None, 0, 0, is_hidden=True), record(), 110) == ObservedLease(
        record(), 110, 110
    )


PAUSES = st.integers(1, 480).map(lambda eighths: eighths / 8)
"""Seconds whose sums are exact: five minutes after a moment must be five minutes."""
LOOKS = st.lists(
    st.tuples(PAUSES, st.one_of(st.none(), st.builds(record, st.sampled_from(["", "p", "q"])))), min_size=1
)


@given(LOOKS)
def test_an_operator_that_lives_is_never_succeeded(looks: list[tuple[float, LeaseRecord | None]]) -> None:
    """Whatever a Lease looked like before: from a renewal on, for as long as one comes in every minute."""
    observed, now = None, 0.0
    for pause, seen in looks:
        now += pause
        observed = managing_operator.observed(observed, seen, now)
    for number in range(10):
        now += 29.9
        observed = managing_operator.observed(observed, record(renewed=f"later{number}"), now)
        assert not managing_operator.decide(OTHER, ME, observed, now).is_own
    assert managing_operator.decide(OTHER, ME, observed, now) is Responsibility.KEEP_OFF


@given(LOOKS)
def test_one_that_is_over_is_succeeded_in_time_and_not_before(looks: list[tuple[float, LeaseRecord | None]]) -> None:
    observed, now, same_since = None, 0.0, 0.0
    for pause, seen in looks:
        now += pause
        if observed is None or observed.record != seen:
            same_since = now
        observed = managing_operator.observed(observed, seen, now)
        patience = ABSENT_SECONDS if seen is None else OVER_SECONDS
        assert managing_operator.decide(OTHER, ME, observed, now).is_own == (now >= same_since + patience)
    for _ in range(int(OVER_SECONDS / UNSEEN_SECONDS)):
        now += UNSEEN_SECONDS
        observed = managing_operator.observed(observed, looks[-1][1], now)
    assert managing_operator.decide(OTHER, ME, observed, now) is Responsibility.TAKE


def test_time_in_which_nothing_could_be_read_does_not_count() -> None:
    """The API server was away: the other operator could not renew its Lease either, and needs a moment to come back."""
    before = ObservedLease(record(), 100, 200, is_renewed=True)
    back = managing_operator.observed(before, record(), 1000)
    assert back == ObservedLease(record(), 1000, 1000, is_renewed=True)
    assert managing_operator.decide(OTHER, ME, back, 1000) is Responsibility.KEEP_OFF
