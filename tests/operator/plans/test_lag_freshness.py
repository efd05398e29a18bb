"""Whether the lag of runs is current, for each combination of observer, age of the result, and restart of the operator.

The observers here are of an earlier release, which has no live result; `test_lag_sources` is about the others. The
interval is five minutes, so a lag is stale after fifteen.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import pytest
from support.resources import NOW, subscription

from penstock_api.lag_result import LagResult, LagState, SubscriptionLag
from penstock_api.resources import LagAnalysis, Subscription
from penstock_operator.plans.lag_freshness import lag_update
from penstock_operator.plans.lag_service import LagService, lag_service
from penstock_operator.plans.lag_sources import BrokerLag, LagEntries
from penstock_operator.plans.lag_writes import Urgency, urgency
from penstock_operator.plans.observer_contact import ObserverContact

Observer = Literal["answers", "answers without a result", "failed once", "fails", "not asked yet"]


def entry(age: timedelta, state: str = "OK", **figures: Any) -> SubscriptionLag:
    values: dict[str, Any] = {"messages": 17, "message": "It is so.", **figures}
    return SubscriptionLag(
        queue_name="psub:durable:global:billing",
        owner_namespace="shop",
        owner_name="billing",
        owner_uid="uid-billing",
        observed_time=NOW - age,
        state=LagState(state),
        **values,
    )


def result(age: timedelta, **changes: Any) -> LagResult:
    values: dict[str, Any] = {
        "broker": "main",
        "namespace": "shop",
        "run_name": "main-lag-17",
        "window_start": NOW - age - timedelta(minutes=15),
        "window_end": NOW - age,
        "expected_brokers": 1,
        "reporting_brokers": 1,
        **changes,
    }
    return LagResult(**values)


def showing(
    age: timedelta,
    state: str = "OK",
    lagging: tuple[str, str] = ("False", "WithinThresholds"),
    fresh: tuple[str, str] | None = ("True", "Current"),
    **changes: Any,
) -> Subscription:
    """A Subscription whose status was written at a result of this age."""
    said = {"Lagging": (*lagging, "It is so.")}
    if fresh is not None:
        said["LagFresh"] = (*fresh, "The lag is from the newest result.")
    status = {
        "lag": {
            "state": state,
            "message": "It is so.",
            "messages": 17,
            "source": "Run",
            "observedTime": (NOW - age).isoformat(),
            "runName": "main-lag-17",
            "brokersReporting": "1/1",
        },
        "conditions": [
            {"type": kind, "status": it[0], "reason": it[1], "message": it[2], "lastTransitionTime": NOW.isoformat()}
            for kind, it in said.items()
        ],
    }
    return subscription(status, **changes)


def contact(observer: Observer, *, answered_before: bool) -> ObserverContact:
    made = ObserverContact()
    if answered_before or observer in ("answers", "answers without a result"):
        made = made.answered(NOW - timedelta(hours=4))
    if observer == "failed once":
        made = made.failed(NOW, "the observer answered 503")
    if observer == "fails":
        for seconds in (61, 30, 0):
            made = made.failed(NOW - timedelta(seconds=seconds), "the observer answered 503")
    return made


class Outcome:
    """The status after a round."""

    def __init__(self, before: Subscription, found: SubscriptionLag | None, known: BrokerLag) -> None:
        without_live = replace(known, is_live_offered=False)
        update = lag_update(before, LagEntries(run=found), without_live, NOW)
        self.is_written = update is not None and urgency(before, update) is not Urgency.NONE
        self.lag = before.status.lag
        self.said: dict[str, tuple[str, str, str]] = {
            it.type: (it.status, it.reason, it.message) for it in before.status.conditions
        }
        if update is not None and self.is_written:
            self.lag = update.lag
            self.said = {it.type: (it.status.value, str(it.reason), it.message) for it in update.conditions}

    @property
    def state(self) -> str:
        return "" if self.lag is None else self.lag.state

    def condition(self, kind: str) -> tuple[str, str] | None:
        said = self.said.get(kind)
        return None if said is None else (said[0], said[1])


MINUTE, EDGE, STALE, HOURS = (
    timedelta(minutes=1),
    timedelta(minutes=14, seconds=59),
    timedelta(minutes=15),
    timedelta(hours=3),
)
CURRENT, REPORT_STALE, UNREACHABLE = ("True", "Current"), ("False", "LagReportStale"), ("False", "ObserverUnreachable")


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize(
    ("observer", "age", "fresh"),
    [
        ("answers", MINUTE, CURRENT),
        ("answers", EDGE, CURRENT),
        ("answers", STALE, REPORT_STALE),
        ("answers", HOURS, REPORT_STALE),
        ("answers without a result", MINUTE, CURRENT),
        ("answers without a result", EDGE, CURRENT),
        ("answers without a result", STALE, REPORT_STALE),
        ("answers without a result", HOURS, REPORT_STALE),
        ("failed once", MINUTE, CURRENT),
        ("failed once", EDGE, CURRENT),
        ("fails", MINUTE, CURRENT),
        ("fails", EDGE, CURRENT),
        ("fails", STALE, UNREACHABLE),
        ("fails", HOURS, UNREACHABLE),
    ],
)
def test_what_a_status_with_ok_becomes(
    observer: Observer, age: timedelta, fresh: tuple[str, str], restarted: bool
) -> None:
    has_result = observer == "answers" or not restarted
    known = BrokerLag(
        broker="main",
        contact=contact(observer, answered_before=not restarted),
        result=result(age) if has_result else None,
        first_seen=NOW - age if not restarted else NOW,
    )
    outcome = Outcome(showing(age), entry(age) if has_result else None, known)
    assert outcome.condition("LagFresh") == fresh
    is_current = fresh == CURRENT
    assert outcome.state == ("OK" if is_current else "Unknown")
    assert outcome.condition("Lagging") == (("False", "WithinThresholds") if is_current else ("Unknown", fresh[1]))
    assert outcome.is_written is not is_current
    assert outcome.lag is not None
    assert (outcome.lag.messages, outcome.lag.observed_time) == (17, NOW - age), "figures and their time stay"


@pytest.mark.parametrize("age", [STALE, HOURS])
def test_a_single_failure_is_no_reason_of_its_own(age: timedelta) -> None:
    """The running operator knows how old the result is. The restarted one asks for a minute before it judges."""
    known = BrokerLag(
        broker="main", contact=contact("failed once", answered_before=True), result=result(age), first_seen=NOW - age
    )
    assert Outcome(showing(age), entry(age), known).condition("LagFresh") == REPORT_STALE
    observers: tuple[Observer, ...] = ("failed once", "not asked yet")
    for observer in observers:
        known = BrokerLag(broker="main", contact=contact(observer, answered_before=False))
        assert not Outcome(showing(age), None, known).is_written


@pytest.mark.parametrize(
    ("observer", "answered_before", "expected"),
    [
        ("answers", False, ("Unknown", "Pending")),
        ("answers without a result", False, ("Unknown", "Pending")),
        ("failed once", True, ("Unknown", "Pending")),
        ("failed once", False, None),
        ("not asked yet", False, None),
        ("fails", True, ("Unknown", "ObserverUnreachable")),
        ("fails", False, ("Unknown", "ObserverUnreachable")),
    ],
)
def test_before_the_first_result(observer: Observer, answered_before: bool, expected: tuple[str, str] | None) -> None:
    known = BrokerLag(broker="main", contact=contact(observer, answered_before=answered_before))
    if observer == "answers":
        known = BrokerLag(broker="main", contact=known.contact, result=result(MINUTE), first_seen=NOW)
    outcome = Outcome(subscription(), None, known)
    assert (outcome.condition("LagFresh"), outcome.condition("Lagging"), outcome.lag) == (expected, None, None)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("", "No lag result has said anything about this subscription yet."),
        (
            "its result is damaged",
            "No lag result has said anything about this subscription yet: its result is damaged.",
        ),
    ],
)
def test_before_the_first_result_it_says_what_is_wrong_with_the_answer(fault: str, says: str) -> None:
    known = BrokerLag(broker="main", contact=ObserverContact().answered(NOW, fault))
    assert Outcome(subscription(), None, known).said["LagFresh"] == ("Unknown", "Pending", says)


@pytest.mark.parametrize(
    ("analysis", "reason"),
    [
        (LagAnalysis(backend="None"), "Disabled"),
        (LagAnalysis(suspend=True), "Suspended"),
        (LagAnalysis(backend="CronJob", suspend=True), "Suspended"),
    ],
)
@pytest.mark.parametrize("observer", ["answers", "fails"])
def test_where_no_results_are_to_be_expected(observer: Observer, analysis: LagAnalysis, reason: str) -> None:
    """Nobody is to blame, so it is Unknown and not False; but OK is not shown any more."""
    asked = contact(observer, answered_before=True)
    never = Outcome(
        subscription(), None, BrokerLag(broker="main", service=lag_service("main", analysis, None), contact=asked)
    )
    assert (never.condition("LagFresh"), never.lag) == (("Unknown", reason), None)
    known = BrokerLag(
        broker="main",
        service=lag_service("main", analysis, None),
        contact=asked,
        result=result(STALE),
        first_seen=NOW - STALE,
    )
    old = Outcome(showing(STALE), entry(STALE), known)
    assert (old.condition("LagFresh"), old.condition("Lagging")) == (("Unknown", reason), ("Unknown", reason))
    assert old.state == "Unknown"
    known = BrokerLag(
        broker="main", service=lag_service("main", analysis, None), contact=asked, result=result(MINUTE), first_seen=NOW
    )
    by_hand = Outcome(showing(MINUTE), entry(MINUTE), known)
    assert (by_hand.condition("LagFresh"), by_hand.state) == (CURRENT, "OK"), "a run by hand counts"


def test_the_bound_follows_the_schedule() -> None:
    for minutes, fresh in ((1, REPORT_STALE), (60, CURRENT)):
        known = BrokerLag(
            broker="main",
            service=LagService(interval_minutes=minutes),
            contact=contact("answers", answered_before=True),
            result=result(timedelta(minutes=20)),
            first_seen=NOW,
        )
        age = timedelta(minutes=20)
        assert Outcome(showing(age), entry(age), known).condition("LagFresh") == fresh


def test_a_broker_s_clock_that_is_ahead_makes_nothing_look_newer() -> None:
    """The result said 'in 40 minutes' when it came, a quarter of an hour ago."""
    ahead = timedelta(minutes=-40)
    known = BrokerLag(
        broker="main",
        contact=contact("answers", answered_before=True),
        result=result(ahead),
        first_seen=NOW - STALE,
    )
    assert Outcome(showing(ahead), entry(ahead), known).condition("LagFresh") == REPORT_STALE


def current(found: SubscriptionLag | None, age: timedelta = MINUTE, **changes: Any) -> BrokerLag:
    """A Broker whose observer answers with a result of this age."""
    return BrokerLag(
        broker="main",
        contact=contact("answers", answered_before=True),
        result=result(age, **changes),
        first_seen=NOW - age,
    )


def test_a_subscription_that_the_newest_result_leaves_out_is_unknown() -> None:
    """Its broker pod did not report, for example; the result says why."""
    before = timedelta(minutes=6)
    missing = ("main-1: the observer has not answered for 30 s",)
    outcome = Outcome(showing(before), None, current(None, missing=missing))
    assert (outcome.condition("LagFresh"), outcome.state) == (REPORT_STALE, "Unknown")
    assert outcome.condition("Lagging") == ("Unknown", "LagReportStale")
    assert outcome.said["LagFresh"][2] == (
        "There is no newer lag than that of 2026-03-01 11:54 UTC: the newest lag result says nothing about this "
        "subscription. Pods that did not report: main-1."
    )
    assert outcome.lag is not None
    assert (outcome.lag.messages, outcome.lag.observed_time) == (17, NOW - before)


def test_a_result_that_is_older_than_the_status_takes_nothing_back() -> None:
    """The observer lost its newest results. Its older one neither has the Subscription nor says anything new."""
    older = current(None, age=timedelta(minutes=5))
    assert not Outcome(showing(MINUTE), None, older).is_written
    for state in ("OK", "Unknown", "Stalled"):
        assert not Outcome(showing(MINUTE), entry(timedelta(minutes=5), state), older).is_written


FORECAST = {"drain_seconds": 360, "drain_seconds_low": 300, "drain_seconds_high": 600, "suggested_consumers": 5}


@pytest.mark.parametrize("age", [STALE, HOURS])
def test_figures_that_are_too_old_forecast_nothing(age: timedelta) -> None:
    """In an hour they would still say that the backlog is empty in 360 s. What was counted stays, with its time."""
    found = entry(age, "Recovering", expiry_risk_percent=40, consumers=2, settled_per_minute=90, **FORECAST)
    outcome = Outcome(showing(age, "Recovering"), found, current(found, age))
    lag = outcome.lag
    assert lag is not None
    assert (lag.state, lag.drain_seconds, lag.drain_seconds_low, lag.drain_seconds_high) == ("Unknown", *(None,) * 3)
    assert (lag.suggested_consumers, lag.expiry_risk_percent) == (None, None)


def test_a_forecast_comes_back_with_the_state() -> None:
    found = entry(MINUTE, "Recovering", **FORECAST)
    outcome = Outcome(showing(MINUTE, "Unknown", **STALE_STATUS), found, current(found))
    assert outcome.lag is not None
    assert (outcome.state, outcome.lag.drain_seconds, outcome.lag.suggested_consumers) == ("Recovering", 360, 5)


def test_a_new_result_with_an_older_entry_does_not_keep_old_figures_current() -> None:
    """The observer has lost what was counted last, and its new runs say how things stood before that."""
    outcome = Outcome(showing(STALE), entry(timedelta(minutes=20)), current(None))
    assert (outcome.condition("LagFresh"), outcome.state) == (REPORT_STALE, "Unknown")
    assert outcome.said["LagFresh"][2] == (
        "There is no newer lag than that of 2026-03-01 11:45 UTC. See condition LagAnalysisScheduled of Broker main "
        "and its newest run."
    )
    assert outcome.lag is not None
    assert (outcome.lag.messages, outcome.lag.observed_time) == (17, NOW - STALE)


def test_an_entry_that_is_unknown_ends_ok_although_its_figures_are_not_newer() -> None:
    """Its pod is silent since six minutes; the result knows that, its last snapshot is the one that is shown."""
    before = timedelta(minutes=6)
    silent = entry(before, "Unknown", message="main-0 is silent since 360 s")
    outcome = Outcome(showing(before), silent, current(silent))
    assert (outcome.state, outcome.condition("Lagging")) == ("Unknown", ("Unknown", "Unknown"))
    assert outcome.condition("LagFresh") == ("Unknown", "Unknown")
    assert outcome.said["Lagging"][2] == "main-0 is silent since 360 s"
    assert outcome.lag is not None
    assert outcome.lag.message == "main-0 is silent since 360 s"
    assert (outcome.lag.messages, outcome.lag.observed_time) == (17, NOW - before)


def test_an_entry_that_stays_unknown_is_stale_after_three_intervals() -> None:
    silent = entry(STALE, "Unknown")
    outcome = Outcome(showing(STALE), silent, current(silent))
    assert (outcome.condition("LagFresh"), outcome.condition("Lagging")) == (REPORT_STALE, ("Unknown", "Unknown"))


def test_a_new_subscription_may_be_unknown_with_figures() -> None:
    found = entry(MINUTE, "Unknown", messages=3, message="2 snapshots, too few to judge")
    outcome = Outcome(subscription(), found, current(found))
    assert (outcome.state, outcome.condition("LagFresh")) == ("Unknown", ("Unknown", "Unknown"))
    assert outcome.lag is not None
    assert outcome.lag.messages == 3


STALE_STATUS: dict[str, Any] = {"lagging": ("Unknown", "LagReportStale"), "fresh": ("False", "LagReportStale")}


def test_a_new_result_ends_it() -> None:
    found = entry(MINUTE)
    outcome = Outcome(showing(HOURS, "Unknown", **STALE_STATUS), found, current(found))
    assert (outcome.state, outcome.condition("LagFresh")) == ("OK", CURRENT)
    assert outcome.condition("Lagging") == ("False", "WithinThresholds")


def test_a_longer_interval_ends_it_too() -> None:
    """The same result is current again, so its state is shown again although its figures are no newer."""
    age = timedelta(minutes=20)
    known = BrokerLag(
        broker="main",
        service=LagService(interval_minutes=30),
        contact=contact("answers", answered_before=True),
        result=result(age),
        first_seen=NOW - age,
    )
    outcome = Outcome(showing(age, "Unknown", **STALE_STATUS), entry(age), known)
    assert (outcome.state, outcome.condition("LagFresh")) == ("OK", CURRENT)


def test_a_status_of_an_older_operator_gets_the_condition_and_keeps_the_rest() -> None:
    """The operator was upgraded, and has not read a result yet."""
    known = BrokerLag(broker="main", contact=contact("fails", answered_before=False))
    outcome = Outcome(showing(MINUTE, "Stalled", ("True", "Stalled"), fresh=None), None, known)
    assert (outcome.state, outcome.condition("Lagging")) == ("Stalled", ("True", "Stalled"))
    assert (outcome.condition("LagFresh"), outcome.is_written) == (CURRENT, True)


def test_another_threshold_is_obeyed_without_another_result() -> None:
    found = entry(MINUTE)
    changed = showing(MINUTE, lagThresholds={"messages": 16})
    assert Outcome(changed, found, current(found)).condition("Lagging") == ("True", "BacklogAboveThreshold")


def test_a_sentence_alone_is_written_at_once_only_if_it_is_about_freshness() -> None:
    """The figures in Lagging's sentence change with each result. Another error of the observer is news."""
    found = entry(MINUTE, message="17 messages wait, one more than before.")
    assert not Outcome(showing(timedelta(seconds=119)), found, current(found)).is_written
    assert Outcome(showing(timedelta(seconds=120)), found, current(found)).is_written
    shown = showing(STALE, "Unknown", ("Unknown", "ObserverUnreachable"), ("False", "ObserverUnreachable"))
    known = BrokerLag(broker="main", contact=contact("fails", answered_before=False))
    outcome = Outcome(shown, None, known)
    assert outcome.is_written
    assert "the observer answered 503" in outcome.said["LagFresh"][2]


@pytest.mark.parametrize(
    ("observer", "fault", "says"),
    [
        (
            "fails",
            "",
            "There is no newer lag than that of 2026-03-01 11:45 UTC: the observer answered 503. See condition "
            "ObserverFailing of Broker main, and the log of container observer in pod main-0.",
        ),
        (
            "answers",
            "",
            "There is no newer lag than that of 2026-03-01 11:45 UTC. See condition LagAnalysisScheduled of Broker "
            "main and its newest run.",
        ),
        (
            "answers",
            "there is no Broker main that this operator can read",
            "There is no newer lag than that of 2026-03-01 11:45 UTC: there is no Broker main that this operator can "
            "read. See condition LagAnalysisScheduled of Broker main and its newest run.",
        ),
    ],
)
def test_what_it_says_is_the_same_after_a_restart_and_is_written_once(
    observer: Observer, fault: str, says: str
) -> None:
    asked = contact(observer, answered_before=False)
    asked = asked.answered(NOW, fault) if fault else asked
    known = BrokerLag(broker="main", contact=asked)
    outcome = Outcome(showing(STALE), None, known)
    assert (outcome.said["LagFresh"][2], outcome.said["Lagging"][2]) == (says, says)
    assert outcome.lag is not None
    assert outcome.lag.message == says
    written = showing(STALE)
    status = written.status.model_copy(
        update={
            "lag": outcome.lag,
            "conditions": tuple(
                it.model_copy(update=dict(zip(("status", "reason", "message"), outcome.said[it.type], strict=True)))
                for it in written.status.conditions
            ),
        }
    )
    written = written.model_copy(update={"status": status})
    running = BrokerLag(broker="main", contact=asked, result=result(STALE), first_seen=NOW - STALE)
    for again, found in ((known, None), (running, entry(STALE))):
        assert not Outcome(written, found, again).is_written


def test_of_a_broker_that_is_gone_no_figures_stay() -> None:
    """They would look like the present, and nothing counts its queues any more."""
    gone = BrokerLag(broker="main", is_gone=True)
    outcome = Outcome(showing(MINUTE), entry(MINUTE), gone)
    assert (outcome.is_written, outcome.lag) == (True, None)
    assert outcome.said == {
        "LagFresh": ("Unknown", "BrokerNotFound", "No lag is known, because there is no Broker main.")
    }


def test_figures_that_are_left_beside_the_condition_are_removed_as_well() -> None:
    gone = BrokerLag(broker="main", is_gone=True)
    left = showing(MINUTE, fresh=("Unknown", "BrokerNotFound"))
    said = next(it for it in left.status.conditions if it.type == "LagFresh")
    said = said.model_copy(update={"message": "No lag is known, because there is no Broker main."})
    status = left.status.model_copy(update={"conditions": (said,)})
    assert Outcome(left.model_copy(update={"status": status}), None, gone).is_written
    status = status.model_copy(update={"lag": None})
    assert not Outcome(left.model_copy(update={"status": status}), None, gone).is_written
