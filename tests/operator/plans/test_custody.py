"""Which of several operators manages a Broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_operator.plans import custody
from penstock_operator.plans.custody import ABSENT_SECONDS, OVER_SECONDS, UNSEEN_SECONDS, Custody, Trace
from penstock_operator.plans.lease import LeaseRecord

ME, OTHER = "mine/penstock", "theirs/penstock"


def record(holder: str = "pod", seconds: int = 15, renewed: str = "r1") -> LeaseRecord:
    return LeaseRecord(holder, seconds, renewed, "a1", 3, "7")


@pytest.mark.parametrize(
    ("recorded", "other", "now", "wanted"),
    [
        pytest.param(ME, None, 0, Custody.MANAGE, id="own"),
        pytest.param("", None, 0, Custody.TAKE, id="nobody-s"),
        pytest.param("nonsense", None, 0, Custody.TAKE, id="no-operator-can-have-this-name"),
        pytest.param(OTHER, None, 1e9, Custody.WAIT, id="its-lease-was-not-read"),
        pytest.param(OTHER, Trace(None, 0, 0, is_hidden=True), 1e9, Custody.KEEP_OFF, id="its-lease-may-not-be-read"),
        pytest.param(OTHER, Trace(record(), 100, 100), 100, Custody.WAIT, id="held-but-perhaps-by-a-pod-that-is-gone"),
        pytest.param(OTHER, Trace(record(), 100, 399), 399, Custody.WAIT, id="held-and-nearly-over"),
        pytest.param(OTHER, Trace(record(), 100, 400), 400, Custody.TAKE, id="held-by-a-pod-that-is-gone"),
        pytest.param(OTHER, Trace(record(), 100, 399, is_renewed=True), 399, Custody.KEEP_OFF, id="renewed"),
        pytest.param(OTHER, Trace(record(), 100, 400, is_renewed=True), 400, Custody.TAKE, id="renewed-long-ago"),
        pytest.param(OTHER, Trace(record(seconds=3600), 0, 3599), 3599, Custody.WAIT, id="its-lease-is-longer"),
        pytest.param(OTHER, Trace(record(seconds=3600), 0, 3600), 3600, Custody.TAKE, id="its-long-lease-is-over"),
        pytest.param(OTHER, Trace(record("", 1), 100, 399), 399, Custody.WAIT, id="given-back-perhaps-for-an-upgrade"),
        pytest.param(OTHER, Trace(record("", 1), 100, 400), 400, Custody.TAKE, id="given-back-for-good"),
        pytest.param(OTHER, Trace(record(), 100, 340), 400, Custody.TAKE, id="read-a-minute-ago"),
        pytest.param(OTHER, Trace(record(), 100, 339), 400, Custody.WAIT, id="what-was-read-is-old"),
        pytest.param(OTHER, Trace(None, 100, 129), 129, Custody.WAIT, id="its-lease-is-gone"),
        pytest.param(OTHER, Trace(None, 100, 130), 130, Custody.TAKE, id="its-lease-is-gone-for-long"),
    ],
)
def test_what_to_do(recorded: str, other: Trace | None, now: float, wanted: Custody) -> None:
    assert custody.decide(recorded, ME, other, now) is wanted


def test_an_operator_without_a_lease_gives_way_to_every_other() -> None:
    assert custody.name_of("mine", "") == ""
    assert custody.decide("", "", None, 0) is Custody.MANAGE
    assert custody.decide(OTHER, "", Trace(record(), 0, 1, is_renewed=True), 1) is Custody.KEEP_OFF
    assert custody.decide(OTHER, "", Trace(record(), 0, OVER_SECONDS), OVER_SECONDS) is Custody.TAKE


@pytest.mark.parametrize("name", ["", "/", "a", "a/", "/b", "a/b/c", "A/b", "a/../b", "a.b/c", "-a/b"])
def test_what_is_no_name_of_an_operator(name: str) -> None:
    assert custody.lease_of(name) is None


def test_the_name_of_an_operator_is_that_of_its_lease() -> None:
    assert custody.lease_of(custody.name_of("penstock-system", "a.b-c")) == ("penstock-system", "a.b-c")


def test_a_lease_that_changes_in_the_hands_of_a_holder_was_renewed() -> None:
    first = custody.traced(None, record(renewed="r1"), 100)
    assert first == Trace(record(renewed="r1"), 100, 100)
    assert custody.traced(first, record(renewed="r1"), 110) == Trace(record(renewed="r1"), 100, 110)
    assert custody.traced(first, record(renewed="r2"), 110) == Trace(record(renewed="r2"), 110, 110, is_renewed=True)
    given_back = record("", 1, "r3")
    assert custody.traced(first, given_back, 110) == Trace(given_back, 110, 110)
    assert custody.traced(first, None, 110) == Trace(None, 110, 110)
    assert custody.traced(Trace(None, 0, 0, is_hidden=True), record(), 110) == Trace(record(), 110, 110)


PAUSES = st.integers(1, 480).map(lambda eighths: eighths / 8)
"""Seconds whose sums are exact: five minutes after a moment must be five minutes."""
LOOKS = st.lists(
    st.tuples(PAUSES, st.one_of(st.none(), st.builds(record, st.sampled_from(["", "p", "q"])))), min_size=1
)


@given(LOOKS)
def test_an_operator_that_lives_is_never_succeeded(looks: list[tuple[float, LeaseRecord | None]]) -> None:
    """Whatever a Lease looked like before: from a renewal on, for as long as one comes in every minute."""
    trace, now = None, 0.0
    for pause, seen in looks:
        now += pause
        trace = custody.traced(trace, seen, now)
    for number in range(10):
        now += 29.9
        trace = custody.traced(trace, record(renewed=f"later{number}"), now)
        assert not custody.decide(OTHER, ME, trace, now).is_own
    assert custody.decide(OTHER, ME, trace, now) is Custody.KEEP_OFF


@given(LOOKS)
def test_one_that_is_over_is_succeeded_in_time_and_not_before(looks: list[tuple[float, LeaseRecord | None]]) -> None:
    trace, now, same_since = None, 0.0, 0.0
    for pause, seen in looks:
        now += pause
        if trace is None or trace.record != seen:
            same_since = now
        trace = custody.traced(trace, seen, now)
        patience = ABSENT_SECONDS if seen is None else OVER_SECONDS
        assert custody.decide(OTHER, ME, trace, now).is_own == (now >= same_since + patience)
    for _ in range(int(OVER_SECONDS / UNSEEN_SECONDS)):
        now += UNSEEN_SECONDS
        trace = custody.traced(trace, looks[-1][1], now)
    assert custody.decide(OTHER, ME, trace, now) is Custody.TAKE


def test_time_in_which_nothing_could_be_read_does_not_count() -> None:
    """The API server was away: the other operator could not renew its Lease either, and needs a moment to come back."""
    before = Trace(record(), 100, 200, is_renewed=True)
    back = custody.traced(before, record(), 1000)
    assert back == Trace(record(), 1000, 1000, is_renewed=True)
    assert custody.decide(OTHER, ME, back, 1000) is Custody.KEEP_OFF
