"""Who leads: what an operator does with the Lease that it reads, and until when a leader may write."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock_operator.plans import lease
from penstock_operator.plans.lease import LeaseRecord, LeaseStep, LeaseTimes, Sighting

TIMES = LeaseTimes(15)
AT = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def record(holder: str = "a", seconds: int = 15, renewed: str = "r1", version: str = "7") -> LeaseRecord:
    return LeaseRecord(holder, seconds, renewed, "a1", 3, version)


def test_the_times_have_the_proportions_of_client_go() -> None:
    assert (TIMES.lease_seconds, TIMES.renew_deadline, TIMES.retry_period) == (15, 10, 2)


@pytest.mark.parametrize(
    ("sighting", "now", "step"),
    [
        pytest.param(None, 0, LeaseStep.CREATE, id="no-lease"),
        pytest.param(Sighting(record("me"), 0), 1, LeaseStep.RENEW, id="own"),
        pytest.param(Sighting(record("me"), 0), 99, LeaseStep.RENEW, id="own-that-is-over"),
        pytest.param(Sighting(record(""), 100), 100, LeaseStep.TAKE, id="released"),
        pytest.param(Sighting(record("a"), 100), 100, LeaseStep.WAIT, id="somebody-s-just-seen"),
        pytest.param(Sighting(record("a"), 100), 114.9, LeaseStep.WAIT, id="somebody-s-nearly-over"),
        pytest.param(Sighting(record("a"), 100), 115, LeaseStep.TAKE, id="somebody-s-not-renewed"),
        pytest.param(Sighting(record("a", seconds=60), 100), 115, LeaseStep.WAIT, id="its-holder-wants-longer"),
        pytest.param(Sighting(record("a", seconds=60), 100), 160, LeaseStep.TAKE, id="its-holder-s-time-is-over"),
        pytest.param(Sighting(record("a", seconds=0), 100), 114, LeaseStep.WAIT, id="time-not-said"),
        pytest.param(Sighting(record("a", seconds=0), 100), 115, LeaseStep.TAKE, id="time-not-said-and-over"),
    ],
)
def test_what_to_do(sighting: Sighting | None, now: float, step: LeaseStep) -> None:
    assert lease.decide(sighting, "me", now, TIMES) is step


def test_time_counts_from_when_this_operator_first_saw_the_record() -> None:
    first = lease.sight(None, record(), 100)
    assert first.since == 100
    assert lease.sight(first, record(), 105).since == 100
    assert lease.sight(first, record(renewed="r2"), 105).since == 105
    assert lease.sight(first, record(holder="b"), 105).since == 105


def test_a_change_of_labels_is_no_renewal() -> None:
    first = lease.sight(None, record(version="7"), 100)
    assert lease.sight(first, record(version="8"), 105).since == 100


@pytest.mark.parametrize(
    ("renewed", "now", "may"),
    [(None, 0.0, False), (100.0, 100.0, True), (100.0, 109.9, True), (100.0, 110.0, False), (100.0, 4000.0, False)],
)
def test_a_leader_stops_five_seconds_before_its_lease_may_be_taken(
    renewed: float | None, now: float, *, may: bool
) -> None:
    assert lease.may_write(renewed, now, TIMES) is may


def test_the_first_spec() -> None:
    assert lease.spec(None, "me", AT, TIMES) == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-03-01T12:00:00.250000Z",
        "renewTime": "2026-03-01T12:00:00.250000Z",
        "leaseTransitions": 0,
    }


def test_a_renewal_keeps_since_when_it_leads() -> None:
    assert lease.spec(record("me"), "me", AT, TIMES) == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "a1",
        "renewTime": "2026-03-01T12:00:00.250000Z",
        "leaseTransitions": 3,
    }


def test_a_new_holder_is_a_transition() -> None:
    found = lease.spec(record("a"), "me", AT, TIMES)
    assert (found["acquireTime"], found["leaseTransitions"]) == ("2026-03-01T12:00:00.250000Z", 4)


def test_a_released_lease_names_nobody() -> None:
    """The API server refuses an empty name, so there is none."""
    assert lease.vacant(record("me"), AT) == {
        "leaseDurationSeconds": 1,
        "acquireTime": "a1",
        "renewTime": "2026-03-01T12:00:00.250000Z",
        "leaseTransitions": 3,
    }


def test_a_released_lease_of_which_nobody_wrote_when_it_was_taken_says_now() -> None:
    """Somebody may have made it by hand. A null time is none."""
    unsaid = LeaseRecord("me", 15, "r1", "", 3, "7")
    assert lease.vacant(unsaid, AT)["acquireTime"] == "2026-03-01T12:00:00.250000Z"


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (
            {
                "holderIdentity": "a",
                "leaseDurationSeconds": 15,
                "renewTime": "r",
                "acquireTime": "q",
                "leaseTransitions": 2,
            },
            LeaseRecord("a", 15, "r", "q", 2, "9"),
        ),
        ({}, LeaseRecord("", 0, "", "", 0, "9")),
        ({"holderIdentity": None, "leaseDurationSeconds": "x"}, LeaseRecord("", 0, "", "", 0, "9")),
        ({"leaseDurationSeconds": True, "leaseTransitions": -1}, LeaseRecord("", 0, "", "", 0, "9")),
    ],
)
def test_a_lease_is_read_whatever_somebody_wrote(spec: Any, found: LeaseRecord) -> None:
    read = lease.read({"metadata": {"resourceVersion": "9"}, "spec": spec})
    assert (read, read.version) == (found, "9")
