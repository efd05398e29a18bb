"""What a status says for each combination of what the live source and the newest run say.

The interval is five minutes, so a run holds for fifteen; a live statement holds for ninety seconds. The live source has
told Stalled with 21 messages, the run has found OK with 17.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

import pytest
from support.resources import NOW, subscription

from penstock_api.lag_result import LagResult, LagState, SubscriptionLag
from penstock_api.resources import LagAnalysis, Subscription
from penstock_operator.plans.lag_freshness import LagUpdate, lag_update
from penstock_operator.plans.lag_service import lag_service
from penstock_operator.plans.lag_sources import BrokerLag, LagEntries
from penstock_operator.plans.lag_writes import Urgency, urgency
from penstock_operator.plans.observer_contact import ObserverContact

Live = Literal[
    "tells",
    "broker away",
    "silent for 80 s",
    "silent for 90 s",
    "cannot tell, told 80 s ago",
    "cannot tell, told 90 s ago",
    "left out, told 80 s ago",
    "left out, told 90 s ago",
    "invalid, told 90 s ago",
    "none, told 90 s ago",
]
Run = Literal["newer", "older", "stale", "none"]
RUN_AGES: dict[Run, int] = {"newer": 5, "older": 240, "stale": 900}

TRUE, UNKNOWN = ("True", "Current"), ("Unknown", "Unknown")
STALE, UNREACHABLE = ("False", "LagReportStale"), ("False", "ObserverUnreachable")
UNCHANGED = ("Stalled", "Live", 21, None, TRUE)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def entry(seconds: float, state: str, messages: int, **figures: Any) -> SubscriptionLag:
    return SubscriptionLag(
        queue_name="psub:durable:global:billing",
        owner_namespace="shop",
        owner_name="billing",
        owner_uid="uid-billing",
        observed_time=ago(seconds),
        state=LagState(state),
        message=f"It is {state}.",
        messages=messages,
        **figures,
    )


def result(seconds: float, run_name: str = "live", **changes: Any) -> LagResult:
    values: dict[str, Any] = {
        "broker": "main",
        "namespace": "shop",
        "run_name": run_name,
        "window_start": ago(seconds + 300),
        "window_end": ago(seconds),
        "expected_brokers": 1,
        "reporting_brokers": 1,
        **changes,
    }
    return LagResult(**values)


@dataclass(frozen=True)
class Scene:
    """What an operator knows, and what the status shows."""

    known: BrokerLag
    entries: LagEntries
    shown: Subscription

    def update(self) -> LagUpdate | None:
        """The update if it is written."""
        found = lag_update(self.shown, self.entries, self.known, NOW)
        return found if found is not None and urgency(self.shown, found) is not Urgency.NONE else None

    def outcome(self) -> tuple[str, str | None, int | None, int | None, tuple[str, str]]:
        """The status after a round: state, source, messages, 95th percentile, LagFresh."""
        update, lag = self.update(), self.shown.status.lag
        said = {it.type: (it.status, it.reason) for it in self.shown.status.conditions}
        if update is not None:
            lag = update.lag
            said = {it.type: (it.status.value, str(it.reason)) for it in update.conditions}
        assert lag is not None
        return lag.state, lag.source, lag.messages, lag.sojourn_p95_millis, said["LagFresh"]


def showing(seconds: float = 90, **lag: Any) -> Subscription:
    """A status that the live source made so long ago."""
    return subscription(
        {
            "lag": {
                "state": "Stalled",
                "message": "It is Stalled.",
                "messages": 21,
                "source": "Live",
                "observedTime": ago(seconds).isoformat(),
                "runName": "live",
                "brokersReporting": "1/1",
                **lag,
            },
            "conditions": [
                {
                    "type": kind,
                    "status": it[0],
                    "reason": it[1],
                    "message": it[2],
                    "lastTransitionTime": NOW.isoformat(),
                }
                for kind, it in {
                    "Lagging": ("True", "Stalled", "It is Stalled."),
                    "LagFresh": ("True", "Current", "The lag is from the newest result."),
                }.items()
            ],
        }
    )


def before(known: BrokerLag) -> BrokerLag:
    """An operator that has read live results for hours."""
    return known.with_live(result(7200), ago(7200))


def away(contact: ObserverContact, seconds: float) -> ObserverContact:
    """After so many seconds in which every request failed."""
    for moment in range(int(seconds) - 10, 0, -10):
        contact = contact.failed(ago(moment), "the observer answered 503")
    return contact


RUNS = LagAnalysis(backend="CronJob")


def scene(live: Live, run: Run, analysis: LagAnalysis = RUNS) -> Scene:
    known = before(BrokerLag(broker="main", service=lag_service("main", analysis, None)))
    known = replace(known, contact=ObserverContact().answered(NOW))
    seconds = 80 if "80" in live else 90
    told_at: datetime | None = ago(seconds)
    found: SubscriptionLag | None = entry(seconds, "Stalled", 21)
    match live:
        case "tells":
            known, found, told_at = known.with_live(result(4), ago(4)), entry(4, "Stalled", 21), ago(4)
        case "broker away":
            known = known.with_live(result(20), ago(20)).with_live(result(20, reporting_brokers=0), NOW)
            found, told_at = entry(20, "Unknown", 21), ago(20)
        case "silent for 80 s" | "silent for 90 s":
            known = known.with_live(result(seconds), ago(seconds))
            known = replace(known, live_contact=away(known.live_contact, seconds))
        case "cannot tell, told 80 s ago" | "cannot tell, told 90 s ago":
            known, found = known.with_live(result(4), ago(4)), entry(4, "Unknown", 21)
        case "left out, told 80 s ago" | "left out, told 90 s ago":
            known, found = known.with_live(result(4), ago(4)), None
        case "invalid, told 90 s ago":
            known = known.with_live(result(seconds), ago(seconds))
            known = replace(known, live_contact=known.live_contact.answered(NOW, "the result is not valid: version"))
        case "none, told 90 s ago":
            known, found = known.with_live(result(seconds), ago(seconds)).without_live(NOW), None
    of_run = None
    if run != "none":
        age = RUN_AGES[run]
        known = known.with_run(result(age, "main-lag-17"), ago(age))
        of_run = entry(age, "OK", 17, sojourn_p95_millis=900)
    return Scene(known, LagEntries(live=found, run=of_run, told_at=told_at), showing(seconds))


@pytest.mark.parametrize(
    ("live", "run", "expected"),
    [
        ("tells", "newer", ("Stalled", "Live", 21, 900, TRUE)),
        ("tells", "older", ("Stalled", "Live", 21, 900, TRUE)),
        ("tells", "stale", UNCHANGED),  # percentiles that are too old are not shown
        ("tells", "none", UNCHANGED),
        ("broker away", "newer", ("Unknown", "Live", 21, 900, UNKNOWN)),  # the observer knows better than the run
        ("broker away", "older", ("Unknown", "Live", 21, 900, UNKNOWN)),
        ("broker away", "none", ("Unknown", "Live", 21, None, UNKNOWN)),
        ("silent for 80 s", "newer", UNCHANGED),
        ("silent for 80 s", "none", UNCHANGED),
        ("silent for 90 s", "newer", ("OK", "Run", 17, 900, TRUE)),
        ("silent for 90 s", "older", ("Unknown", "Live", 21, None, UNREACHABLE)),  # never back in time
        ("silent for 90 s", "stale", ("Unknown", "Live", 21, None, UNREACHABLE)),
        ("silent for 90 s", "none", ("Unknown", "Live", 21, None, UNREACHABLE)),
        ("cannot tell, told 80 s ago", "newer", UNCHANGED),
        ("cannot tell, told 80 s ago", "none", UNCHANGED),
        ("cannot tell, told 90 s ago", "newer", ("OK", "Run", 17, 900, TRUE)),
        ("cannot tell, told 90 s ago", "older", ("Unknown", "Live", 21, 900, UNKNOWN)),
        ("cannot tell, told 90 s ago", "none", ("Unknown", "Live", 21, None, UNKNOWN)),
        ("left out, told 80 s ago", "none", UNCHANGED),
        ("left out, told 90 s ago", "newer", ("OK", "Run", 17, 900, TRUE)),
        ("left out, told 90 s ago", "older", ("Unknown", "Live", 21, None, STALE)),
        ("left out, told 90 s ago", "none", ("Unknown", "Live", 21, None, STALE)),
        ("invalid, told 90 s ago", "newer", ("OK", "Run", 17, 900, TRUE)),
        ("invalid, told 90 s ago", "older", ("Unknown", "Live", 21, None, STALE)),
        ("invalid, told 90 s ago", "none", ("Unknown", "Live", 21, None, STALE)),
        ("none, told 90 s ago", "newer", ("OK", "Run", 17, 900, TRUE)),
        ("none, told 90 s ago", "older", UNCHANGED),  # until a run is newer, or for three intervals
        ("none, told 90 s ago", "none", UNCHANGED),
    ],
)
def test_what_a_status_becomes(
    live: Live, run: Run, expected: tuple[str, str, int, int | None, tuple[str, str]]
) -> None:
    assert scene(live, run).outcome() == expected


@pytest.mark.parametrize("live", ["silent for 90 s", "left out, told 90 s ago", "invalid, told 90 s ago"])
def test_what_is_unknown_is_said_once_also_by_the_next_operator(live: Live) -> None:
    first = scene(live, "none")
    update = first.update()
    assert update is not None
    assert update.lag is not None
    status = first.shown.status.model_copy(
        update={
            "lag": update.lag,
            "conditions": tuple(
                it.model_copy(
                    update=next(
                        {"status": new.status.value, "reason": str(new.reason), "message": new.message}
                        for new in update.conditions
                        if new.type == it.type
                    )
                )
                for it in first.shown.status.conditions
            ),
        }
    )
    written = first.shown.model_copy(update={"status": status})
    assert replace(first, shown=written).update() is None
    restarted = replace(first.known, live=None if live == "silent for 90 s" else first.known.live)
    assert replace(first, shown=written, known=restarted, entries=LagEntries()).update() is None


FORECAST: dict[str, Any] = {
    "drain_seconds": 360,
    "drain_seconds_low": 300,
    "drain_seconds_high": 600,
    "suggested_consumers": 5,
    "expiry_risk_percent": 40,
}
"""As an entry and a status say it: when it will be empty, how many would keep up, what will expire."""


@pytest.mark.parametrize("live", get_args(Live))
@pytest.mark.parametrize("run", get_args(Run))
def test_beside_unknown_stands_no_forecast(live: Live, run: Run) -> None:
    """An hour after the broker died the backlog was still to be empty in 360 s. What was counted stays."""
    made = scene(live, run)
    entries = replace(
        made.entries,
        live=None if made.entries.live is None else made.entries.live.model_copy(update=FORECAST),
        run=None if made.entries.run is None else made.entries.run.model_copy(update=FORECAST),
    )
    shown_lag = made.shown.status.lag
    assert shown_lag is not None
    status = made.shown.status.model_copy(update={"lag": shown_lag.model_copy(update=FORECAST)})
    made = replace(made, entries=entries, shown=made.shown.model_copy(update={"status": status}))
    update = made.update()
    found = shown_lag.model_copy(update=FORECAST) if update is None else update.lag
    assert found is not None
    says = {name: getattr(found, name) for name in FORECAST}
    assert says == (dict.fromkeys(FORECAST) if found.state == "Unknown" else FORECAST)
    assert found.messages is not None


def test_what_it_says() -> None:
    silent, invalid = scene("silent for 90 s", "none").update(), scene("invalid, told 90 s ago", "none").update()
    assert silent is not None
    assert silent.conditions[-1].message == (
        "There is no newer lag than that of 2026-03-01 11:58 UTC: the observer answered 503. See condition "
        "ObserverFailing of Broker main, and the log of container observer in pod main-0."
    )
    assert invalid is not None
    assert invalid.conditions[-1].message == (
        "There is no newer lag than that of 2026-03-01 11:58 UTC: the result is not valid: version. See the log of "
        "container observer in pod main-0."
    )


@pytest.mark.parametrize(("seconds", "p95"), [(899, 900), (900, None)])
def test_percentiles_of_long_ago_are_not_shown_as_those_of_the_newest_run(seconds: int, p95: int | None) -> None:
    """A broker whose ledger can't be written has its last window in each run, and the run is new."""
    made = scene("tells", "newer")
    entries = replace(made.entries, run=entry(seconds, "Unknown", 17, sojourn_p95_millis=900))
    assert replace(made, entries=entries).outcome() == ("Stalled", "Live", 21, p95, TRUE)


def test_a_broker_that_stays_away_is_stale_after_a_while() -> None:
    made = scene("broker away", "none")
    known = made.known.with_live(result(90), ago(90)).with_live(result(90, reporting_brokers=0), NOW)
    assert replace(made, known=known).outcome() == ("Unknown", "Live", 21, None, STALE)


def test_an_observer_that_is_away_too_does_not_know_that_its_broker_is_away() -> None:
    made = scene("broker away", "none")
    known = made.known.with_live(result(90), ago(90)).with_live(result(90, reporting_brokers=0), ago(90))
    known = replace(known, live_contact=away(known.live_contact, 90))
    entries = LagEntries(live=entry(90, "Unknown", 21), told_at=ago(90))
    assert Scene(known, entries, showing(90)).outcome() == ("Unknown", "Live", 21, None, UNREACHABLE)


@pytest.mark.parametrize("analysis", [LagAnalysis(backend="None"), LagAnalysis(suspend=True)])
def test_live_lag_needs_no_runs(analysis: LagAnalysis) -> None:
    assert scene("tells", "none", analysis).outcome() == UNCHANGED
    assert scene("silent for 90 s", "none", analysis).outcome()[-1] == UNREACHABLE


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(80, UNCHANGED), (7200, UNCHANGED), (-7200, UNCHANGED)],
    ids=["agrees", "two-hours-behind", "two-hours-ahead"],
)
def test_the_broker_s_clock_does_not_matter_once_two_results_have_come(seconds: int, expected: object) -> None:
    """Told 4 s ago on the operator's clock; the broker's clock says something else."""
    made = scene("tells", "none")
    known = made.known.with_live(result(seconds), ago(4))
    found = replace(made.entries, live=entry(seconds, "Stalled", 21))
    assert replace(made, known=known, entries=found).outcome() == expected


@pytest.mark.parametrize("behind", [119, 120, 3_600, -3_600])
@pytest.mark.parametrize(("age", "p95"), [(5, 900), (780, 900), (1_020, None)])
def test_a_run_is_as_old_as_it_is_whatever_the_broker_s_clock_says(behind: int, age: int, p95: int | None) -> None:
    """Its percentile is shown for fifteen minutes. A clock that is an hour behind made each run look too old."""
    made = scene("tells", "newer")
    known = made.known.with_live(result(behind), NOW)
    known = replace(known, result=result(age + behind, "main-lag-17"), first_seen=NOW if behind > 0 else ago(age))
    entries = LagEntries(
        live=entry(behind, "Stalled", 21), run=entry(age + behind, "OK", 17, sojourn_p95_millis=900), told_at=NOW
    )
    update = lag_update(made.shown, entries, known, NOW)
    assert update is not None and update.lag is not None
    assert update.lag.sojourn_p95_millis == p95


@pytest.mark.parametrize(("behind", "age"), [(119, 969), (120, 850)])
def test_what_may_be_the_time_until_a_poll_is_read_is_no_difference_of_the_clocks(behind: int, age: int) -> None:
    """A window that ended 14 minutes ago and two more."""
    known = scene("tells", "newer").known.with_live(result(behind), NOW)
    known = replace(known, result=result(850 + behind, "main-lag-17"), first_seen=NOW)
    assert known.reported_at() == ago(age)


def test_a_poll_of_a_broker_that_has_not_answered_for_long_does_not_make_a_run_look_newer() -> None:
    """The operator reads again after an hour; the last poll of its observer was 59 minutes ago, as the run was."""
    made = scene("broker away", "newer")
    known = made.known.with_live(result(3_540, reporting_brokers=0), NOW)
    known = replace(known, result=result(3_540, "main-lag-17"), first_seen=NOW)
    assert known.reported_at() == ago(3_540)


def test_a_clock_that_is_ahead_does_not_make_a_silent_source_look_newer() -> None:
    made = scene("silent for 90 s", "none")
    ahead = entry(-7200, "Stalled", 21)
    shown = showing(-7200)
    known = replace(made.known.with_live(result(-7200), ago(90)), live_contact=made.known.live_contact)
    outcome = Scene(known, LagEntries(live=ahead, told_at=ago(90)), shown).outcome()
    assert (outcome[0], outcome[-1]) == ("Unknown", UNREACHABLE)


@pytest.mark.parametrize(
    ("after", "state", "fresh"), [(80, "Stalled", TRUE), (90, "Unknown", UNREACHABLE), (3_600, "Unknown", UNREACHABLE)]
)
def test_a_clock_that_was_set_back_does_not_keep_a_silent_source_fresh(
    after: int, state: str, fresh: tuple[str, str]
) -> None:
    """All was told at noon. Then the operator's clock was set back by two hours, and nobody has answered since. Told
    counts from the first look after that, and holds for ninety seconds.
    """
    made, set_back = scene("tells", "newer"), NOW - timedelta(hours=2)
    known = made.known.seen_by(set_back)
    assert known.live is not None
    assert (known.live.first_seen, known.first_seen) == (set_back, set_back)
    now = set_back + timedelta(seconds=after)
    for second in range(10, after, 10):
        known = replace(
            known, live_contact=known.live_contact.failed(set_back + timedelta(seconds=second), "answered 503")
        )
    found = lag_update(made.shown, replace(made.entries, run=None, told_at=set_back), known, now)
    if found is None:
        assert (made.shown.status.lag.state if made.shown.status.lag else None, TRUE) == (state, fresh)
        return
    assert found.lag is not None
    said = {it.type: (it.status.value, str(it.reason)) for it in found.conditions}
    assert (found.lag.state, said["LagFresh"]) == (state, fresh)


def test_what_was_seen_before_now_is_left_as_it_is() -> None:
    known = scene("tells", "newer").known
    assert known.seen_by(NOW) is known


@pytest.mark.parametrize(("ahead", "stale"), [(119, False), (120, True), (7_200, True)])
@pytest.mark.parametrize("source", ["Live", "Run"])
def test_a_time_that_is_yet_to_come_says_nothing_about_the_present(ahead: int, stale: bool, source: str) -> None:
    """An operator that was started anew, after the clock was set back, knows only the time in the status."""
    assert BrokerLag(broker="main").is_stale(ago(-ahead), NOW, source) is stale


def test_a_status_of_a_time_that_is_yet_to_come_is_not_fresh_for_a_new_operator() -> None:
    """The clock was set back by two hours, and the observer does not answer."""
    contact = away(ObserverContact(), 90)
    known = BrokerLag(broker="main", contact=contact, live_contact=contact)
    outcome = Scene(known, LagEntries(), showing(-7_200)).outcome()
    assert (outcome[0], outcome[-1]) == ("Unknown", UNREACHABLE)


@pytest.mark.parametrize(
    ("polled", "ended", "taken"),
    [
        (3_604, 3_610, True),  # The broker's clock was set back by an hour after the last run.
        (124, 130, False),  # What a poll may be late.
        (126, 130, True),
        (3_604, 3_300, False),  # Of neither clock: it would be yet to come as well.
    ],
)
def test_a_run_of_a_clock_that_was_set_back_follows_one_of_the_former_clock(
    polled: int, ended: int, taken: bool
) -> None:
    """The last run ended five seconds ago by the former clock, and would be the newest one for an hour."""
    made = scene("tells", "newer")
    known = made.known.with_live(result(polled), NOW)
    newest = result(ended, "main-lag-18")
    assert (known.with_run(newest, NOW).result is newest) is taken


def test_an_older_run_is_not_taken_when_no_poll_tells_the_clock() -> None:
    """The observer has polled an hour ago the last time."""
    known = scene("tells", "newer").known
    newest = result(3_610, "main-lag-18")
    polled_long_ago = known.with_live(result(3_604), ago(90))
    assert polled_long_ago.with_run(newest, NOW).result is not newest
    away = known.with_live(result(3_604, reporting_brokers=0), NOW)
    assert away.with_run(newest, NOW).result is not newest


def test_a_first_result_that_seems_old_is_not_judged_before_the_next_one() -> None:
    """The operator has just started. Either the clocks differ, or the observer has stopped asking its broker."""
    first = BrokerLag(broker="main", contact=ObserverContact().answered(NOW)).with_live(result(600), NOW)
    made = Scene(first, LagEntries(live=entry(600, "OK", 0), told_at=ago(600)), showing(600))
    assert made.update() is None
    followed = replace(made, known=first.with_live(result(590), NOW), entries=LagEntries(live=entry(590, "OK", 0)))
    assert followed.outcome() == ("OK", "Live", 0, None, TRUE)
    stays = replace(made, known=first.with_live(result(600), NOW), shown=made.shown)
    later = lag_update(stays.shown, stays.entries, stays.known, NOW + timedelta(seconds=90))
    assert later is not None
    assert (later.conditions[-1].status.value, str(later.conditions[-1].reason)) == STALE


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_an_operator_that_has_just_started_asks_for_a_minute(failures: int) -> None:
    """The status is two hours old, because nothing changed since; the first requests fail."""
    contact = ObserverContact()
    for number in range(failures):
        contact = contact.failed(ago(59 - number), "the observer answered 503")
    known = BrokerLag(broker="main", contact=contact, live_contact=contact)
    assert Scene(known, LagEntries(), showing(7200)).update() is None


def test_an_older_run_takes_nothing_back_and_a_newer_one_does_not_outvote_the_live_state() -> None:
    for run in ("newer", "older"):
        made = scene("tells", run)
        assert made.outcome()[:3] == ("Stalled", "Live", 21)


def test_percentiles_come_with_the_time_of_their_run() -> None:
    update = scene("tells", "older").update()
    assert update is not None
    assert update.lag is not None
    assert (update.lag.observed_time, update.lag.run_name, update.lag.run_time) == (ago(4), "main-lag-17", ago(240))


def test_a_new_subscription_gets_its_state_from_the_live_source() -> None:
    made = replace(scene("tells", "none"), shown=subscription())
    assert made.outcome() == UNCHANGED
    nothing = replace(made, entries=LagEntries())
    update = lag_update(nothing.shown, nothing.entries, nothing.known, NOW)
    assert update is not None
    assert [(it.type, it.status.value, str(it.reason)) for it in update.conditions] == [
        ("LagFresh", "Unknown", "Pending")
    ]


def test_a_run_that_is_older_than_what_was_told_is_not_used_although_the_status_is_older_still() -> None:
    """Nothing was written for two hours, because nothing changed: the live source has told the same until 90 s ago."""
    made = replace(scene("silent for 90 s", "older"), shown=showing(7200))
    assert made.outcome() == ("Unknown", "Live", 21, 900, UNREACHABLE)


def test_a_subscription_that_the_live_result_leaves_out_is_told_so() -> None:
    update = scene("left out, told 90 s ago", "none").update()
    assert update is not None
    assert update.conditions[-1].message == (
        "There is no newer lag than that of 2026-03-01 11:58 UTC: the newest lag result says nothing about this "
        "subscription."
    )


def test_an_operator_that_was_paused_does_not_judge_by_a_single_failure() -> None:
    """Its process, or its node, slept for ten minutes; the first request after that fails."""
    known = before(BrokerLag(broker="main", contact=ObserverContact().answered(ago(600)))).with_live(
        result(600), ago(600)
    )
    known = replace(known, live_contact=known.live_contact.failed(NOW, "the observer answered 503"))
    made = Scene(known, LagEntries(live=entry(600, "OK", 0), told_at=ago(600)), showing(600))
    assert made.update() is None
