"""The result document: units, what is left out, order, and the same bytes for the same input."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lag.figures_factory import END_MS, figures

from penstock_api.lag_result import LagResult, LagState, SubscriptionLag
from penstock_core.identity import Identity, Scope, queue_name
from penstock_lag.ledger.windows import Chosen, Plan
from penstock_lag.result_document import Run, make_result
from penstock_lag.table import as_table
from penstock_lag_rules.figures import ConsumerWork, Duration, Figures, Growth, RepeatedMessage, Work
from penstock_lag_rules.thresholds import Thresholds

RUN = Run(broker="main", namespace="shop", run_name="run-1", expected_brokers=2)
PLAN = Plan(
    start_ms=END_MS - 300_000,
    end_ms=END_MS,
    windows=(),
    segments=(Chosen(0, "0000000001-000000000001-000000000010.parquet"),),
    rows=10,
    missing=((1, "the observer did not answer: refused"),),
)


def result_of(*found: Figures, plan: Plan = PLAN) -> LagResult:
    """With default thresholds."""
    return make_result(RUN, plan, found, Thresholds())


def test_the_run_its_window_and_who_is_missing() -> None:
    """Times in UTC, segments named with their ordinal."""
    result = result_of()
    assert (result.broker, result.namespace, result.run_name) == ("main", "shop", "run-1")
    assert result.window_end == datetime(2023, 11, 14, 22, 18, 20, tzinfo=UTC)
    assert result.window_start == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert (result.expected_brokers, result.reporting_brokers) == (2, 1)
    assert result.missing == ("main-1: the observer did not answer: refused",)
    assert result.segments == ("0/0000000001-000000000001-000000000010.parquet",)


def test_rows_that_are_gone_are_named_and_their_broker_still_reports() -> None:
    """A gap is no absence."""
    plan = replace(PLAN, gaps=((0, "rows 11 to 20 of its ledger are gone"),))
    result = result_of(figures(), plan=plan)
    assert result.missing == (
        "main-1: the observer did not answer: refused",
        "main-0: rows 11 to 20 of its ledger are gone",
    )
    assert result.reporting_brokers == 1
    assert result.subscriptions[0].state is LagState.BACKLOG_STEADY


def test_a_name_of_any_length_does_not_make_the_document_invalid() -> None:
    """The broker makes a subscription for a link whose name has thousands of characters."""
    result = result_of(named(0, f"psub:durable:global:{'n' * 20_000}"), named(0, "psub:durable:global:orders"))
    assert len(result.subscriptions) == 2
    assert LagResult.model_validate_json(result.to_json()) == result


def test_figures_become_seconds_minutes_and_percent() -> None:
    """Rounded down; nothing is a float."""
    one = figures(
        standing={"age_ms": 40_999, "hold_ms": 5_001},
        window={"first_depth": 515, "growth": {"delivered": 300, "redelivered": 200}},
        caught_up_ms=END_MS - 90_999,
    )
    (lag,) = result_of(one).subscriptions
    assert (lag.messages, lag.ready, lag.in_flight, lag.scheduled, lag.consumers) == (500, 400, 100, 0, 2)
    assert (lag.oldest_age_seconds, lag.longest_hold_seconds, lag.since_caught_up_seconds) == (40, 5, 90)
    assert (lag.arrival_per_minute, lag.settled_per_minute, lag.velocity_per_minute) == (600, 600, -3)
    assert lag.redelivery_percent == 66
    assert (lag.sojourn_p50_millis, lag.sojourn_p95_millis, lag.sojourn_p99_millis) == (6049, 34219, 81386)


def test_in_a_window_in_which_the_clock_was_set_nothing_took_a_time() -> None:
    """It was set forward by an hour: all that waited meanwhile took an hour more, by the clock."""
    work = (ConsumerWork("a", 100, 60_000), ConsumerWork("b", 100, 60_000))
    durations: dict[str, Any] = {
        "wait": Duration(100, 10_000, 80),
        "hold": Duration(100, 10_000, 80),
        "consumers": work,
    }
    told = (
        *("sojourn_p50_millis", "sojourn_p95_millis", "sojourn_p99_millis", "wait_p95_millis", "hold_p95_millis"),
        *("mean_wait_millis", "mean_hold_millis", "slow_part", "fairness_percent"),
        *("arrival_per_minute", "settled_per_minute"),
    )
    (steady,) = result_of(figures(**durations)).subscriptions
    assert None not in {getattr(steady, name) for name in told}
    stepped = {"clock_steps": 1, "clock_step_ms": 3_600_000}
    (lag,) = result_of(figures(coverage=stepped, **durations)).subscriptions
    assert {getattr(lag, name) for name in told} == {None}
    assert (lag.messages, lag.oldest_age_seconds, lag.redelivery_percent) == (500, 70, 0)


def test_of_all_deliveries_no_more_than_all_were_repeated() -> None:
    """A broker from a backup began with more deliveries than it has now, and with fewer of them repeated. A percentage
    that no document may have would take away the lag of every other subscription.
    """
    (lag,) = result_of(figures(window={"growth": {"delivered": 5, "redelivered": 8}})).subscriptions
    assert lag.redelivery_percent == 100


def test_rates_of_what_is_younger_than_the_window_divide_by_its_life() -> None:
    """It is there for one minute of five: ten a second."""
    one = figures(window={"elapsed_ms": 60_000, "growth": {"enqueued": 600, "acked": 300}})
    (lag,) = result_of(one).subscriptions
    assert (lag.arrival_per_minute, lag.settled_per_minute) == (600, 300)


def test_losses_are_figures_of_their_own() -> None:
    """Each kind, and their sum without what was moved."""
    grown = {"expired": 1, "dead_lettered": 2, "dropped": 4, "lost_at_restart": 8, "moved": 16}
    (lag,) = result_of(figures(window={"growth": grown}, standing={"stranded": 32})).subscriptions
    assert (lag.expired, lag.dead_lettered, lag.dropped, lag.lost_at_restart, lag.moved) == (1, 2, 4, 8, 16)
    assert (lag.lost, lag.stranded) == (15, 32)


def test_the_drain_time_is_a_range_and_belongs_to_recovering() -> None:
    """500 messages, 400 fewer in a minute, of which 2 * sqrt(1200) = 69.3 may be noise."""
    falling = {"first_depth": 900}
    (lag,) = result_of(figures(recent=falling)).subscriptions
    assert lag.state is LagState.RECOVERING
    assert (lag.drain_seconds, lag.drain_seconds_low, lag.drain_seconds_high) == (75, 64, 91)
    (lag,) = result_of(figures(recent={**falling, "growth": {"expired": 400}})).subscriptions
    assert lag.state is LagState.LOSING
    assert (lag.drain_seconds, lag.drain_seconds_low, lag.drain_seconds_high) == (None, None, None)


DELAYED: dict[str, Any] = {"depth": 1_500, "scheduled": 1_000}


def test_what_is_due_later_does_not_drain() -> None:
    """The same 500 that may be taken now, and 1,000 more that nobody can take for an hour."""
    (lag,) = result_of(figures(standing=DELAYED, recent={"first_depth": 1_900, "first_scheduled": 1_000})).subscriptions
    assert (lag.state, lag.message) == (
        LagState.RECOVERING,
        "the backlog fell from 900 to 500 messages in 60 s and will be empty in 64 to 91 s if this goes on; "
        "500 messages wait, the oldest for 70 s; 1000 more are due later",
    )
    assert (lag.drain_seconds, lag.drain_seconds_low, lag.drain_seconds_high) == (75, 64, 91)


def test_what_becomes_due_as_fast_as_the_rest_is_accepted_has_no_end() -> None:
    """400 were accepted, and 400 became due: 500 waited for a consumer before, and 500 do now."""
    (lag,) = result_of(figures(standing=DELAYED, recent={"first_depth": 1_900, "first_scheduled": 1_400})).subscriptions
    assert (lag.state, lag.drain_seconds) == (LagState.BACKLOG_STEADY, None)


def test_what_is_stranded_does_not_drain() -> None:
    """It waits for a destination, and no consumer gets it."""
    stranded = {**DELAYED, "stranded": 1_000}
    (lag,) = result_of(
        figures(standing=stranded, recent={"first_depth": 1_900, "first_scheduled": 1_000})
    ).subscriptions
    assert lag.drain_seconds == 75
    assert "due later" not in lag.message


def test_what_came_before_the_first_snapshot_is_counted_but_is_in_no_rate() -> None:
    """Nobody knows over how long it came."""
    born = Growth(enqueued=900, delivered=300, redelivered=300, acked=300, expired=5, purged=1)
    (lag,) = result_of(figures(window={"born": born, "growth": {"expired": 1}})).subscriptions
    assert (lag.arrival_per_minute, lag.settled_per_minute) == (600, 600)
    assert (lag.lost, lag.expired, lag.purged, lag.redelivery_percent) == (6, 6, 1, 9)


def test_how_long_something_took_is_not_known_across_a_step_of_the_clock() -> None:
    """The clock went back by an hour: what took a minute seems to have taken none, or an hour."""
    work = Work(intervals=6, accepted=600, consumer_ms=120_000)
    (lag,) = result_of(figures(work=work, caught_up_ms=END_MS - 90_000)).subscriptions
    assert (lag.capacity_per_minute, lag.since_caught_up_seconds) == (300, 90)
    (lag,) = result_of(figures(work=work, caught_up_ms=END_MS - 90_000, coverage={"clock_steps": 1})).subscriptions
    assert (lag.capacity_per_minute, lag.since_caught_up_seconds, lag.arrival_per_minute) == (None, None, None)


def test_messages_whose_delivery_fails_are_named() -> None:
    """With the count and the age."""
    (lag,) = result_of(figures(standing={"repeated": (RepeatedMessage("ID:1", 7, 61_999),)})).subscriptions
    assert [(each.id, each.delivery_count, each.age_seconds) for each in lag.repeated] == [("ID:1", 7, 61)]


def test_what_is_not_known_is_absent() -> None:
    """No percentile of nineteen messages, no share of no deliveries, no drain of what does not drain, no age of what is
    from the future.
    """
    unknown = figures(
        percentiles={"completions": 19}, window={"growth": {"delivered": 0}}, standing={"age_ms": None, "hold_ms": None}
    )
    (lag,) = result_of(unknown).subscriptions
    assert (lag.sojourn_p50_millis, lag.sojourn_p99_millis) == (None, None)
    assert (lag.redelivery_percent, lag.drain_seconds, lag.oldest_age_seconds) == (None, None, None)
    document = json.loads(result_of(unknown).to_json())
    absent = {"sojournP50Millis", "redeliveryPercent", "drainSeconds", "ownerName", "oldestAgeSeconds", "repeated"}
    assert not absent & set(document["subscriptions"][0])


def test_nothing_waits_for_zero_seconds() -> None:
    """Known, and not absent."""
    empty = {"depth": 0, "ready": 0, "in_flight": 0, "age_ms": None, "hold_ms": None}
    (lag,) = result_of(figures(standing=empty)).subscriptions
    assert (lag.oldest_age_seconds, lag.longest_hold_seconds) == (0, 0)


@pytest.mark.parametrize(("stranded", "age"), [(0, 0), (3, None)])
def test_what_is_due_later_waits_for_zero_seconds(stranded: int, age: int | None) -> None:
    """As the metric says. How long a message has been stranded the broker does not say."""
    later = {"depth": 3, "ready": 0, "in_flight": 0, "scheduled": 3, "stranded": stranded, "age_ms": None}
    (lag,) = result_of(figures(standing=later)).subscriptions
    assert lag.oldest_age_seconds == age


def named(ordinal: int, name: str, **owner: str) -> Figures:
    """Figures of another subscription."""
    return figures(subject={"ordinal": ordinal, "queue_name": name, **owner})


def test_subscriptions_of_a_missing_broker_keep_their_figures_but_not_their_state() -> None:
    """Last known, and Unknown with the reason."""
    here, gone = result_of(named(1, "b"), named(0, "a")).subscriptions
    assert (here.queue_name, here.state) == ("a", LagState.BACKLOG_STEADY)
    assert (gone.queue_name, gone.state, gone.messages) == ("b", LagState.UNKNOWN, 500)
    assert gone.message == "the observer did not answer: refused"


@given(st.permutations([named(ordinal, name) for name in "abc" for ordinal in (0, 1)]))
def test_the_order_of_the_figures_does_not_matter(shuffled: list[Figures]) -> None:
    """The same bytes."""
    assert result_of(*shuffled).to_json() == result_of(*sorted(shuffled, key=lambda f: f.subject.ordinal)).to_json()


def test_the_document_is_read_back_as_it_was() -> None:
    """By the model that the operator validates with."""
    result = result_of(named(0, "q", owner_namespace="shop", owner_name="orders", owner_uid="u"))
    assert LagResult.model_validate_json(result.to_json()) == result


def test_the_longest_name_of_a_queue_fits() -> None:
    """A container-id and a name of 255 characters, each of which is escaped as three."""
    name = queue_name(Identity(Scope("|" * 255), "%" * 255, True))
    (lag,) = result_of(named(0, name)).subscriptions
    assert lag.queue_name == name
    assert len(name) > 1_500


def test_a_long_reason_is_cut() -> None:
    """The model refuses longer ones, and an observer's words are not ours."""
    plan = Plan(0, 1, (), (), 0, ((0, "x" * 5000),))
    result = result_of(figures(), plan=plan)
    assert len(result.missing[0]) == 1024
    assert len(result.subscriptions[0].message) == 1024


def test_the_table_is_aligned_and_says_what_is_missing() -> None:
    """A name of its own where there is a resource; absent figures are a dash."""
    text = as_table(result_of(figures(), named(0, "z", owner_namespace="shop", owner_name="bills")))
    lines = text.splitlines()
    assert lines[0].split()[:3] == ["SUBSCRIPTION", "STATE", "LAG"]
    assert lines[1].split()[:4] == ["psub:durable:global:orders", "BacklogSteady", "500", "400"]
    assert lines[2].startswith("shop/bills  ")
    assert lines[1].index("500") == lines[2].index("500")
    assert lines[1].split()[7:11] == ["600", "600", "0", "-"]
    assert lines[3] == "MISSING main-1: the observer did not answer: refused"
    assert lines[4] == "shop/main: 1 of 2 brokers, 1 segments, window 2023-11-14 22:13:20 to 22:18:20 UTC"


def test_the_lag_in_the_table_is_what_waits_now() -> None:
    """1,000 of the 1,500 are due later, and 20 of those that are not have nowhere to go."""
    one = figures(standing={"depth": 1_500, "scheduled": 1_020, "stranded": 20})
    (lag,) = result_of(one).subscriptions
    assert (lag.messages, lag.waiting, lag.later) == (1_500, 500, 1_000)
    assert as_table(result_of(one)).splitlines()[1].split()[2] == "500"


def test_what_an_earlier_release_does_not_tell_is_not_taken_off() -> None:
    """It did not say how many messages are due later, or stranded."""
    lag = SubscriptionLag(
        queue_name="q",
        observed_time=datetime(2026, 1, 1, tzinfo=UTC),
        state=LagState.OK,
        message="It is so.",
        messages=7,
    )
    assert (lag.waiting, lag.later) == (7, None)
    assert lag.model_copy(update={"messages": None}).waiting is None
    assert lag.model_copy(update={"scheduled": 3}).waiting == 4


def test_the_table_of_a_whole_day_does_not_end_when_it_begins() -> None:
    """Nor does one of long ago look as if it were of today."""
    text = as_table(result_of(plan=Plan(END_MS - 86_400_000, END_MS, (), (), 0, ())))
    assert text.endswith("0 segments, window 2023-11-13 22:18:20 to 2023-11-14 22:18:20 UTC\n")


@pytest.mark.parametrize(("noise", "shown"), [(1, "75-76 s"), (1_200, "64-91 s")])
def test_the_table_shows_the_range_of_the_drain_time(noise: int, shown: str) -> None:
    """500 messages, 400 fewer in a minute, in which so many came and went."""
    grown = {"enqueued": noise // 2, "acked": noise - noise // 2}
    text = as_table(result_of(figures(recent={"first_depth": 900, "growth": grown})))
    assert shown in text


def test_a_name_in_the_table_cannot_control_the_terminal() -> None:
    """Clients choose the names of queues. What cannot be printed is shown as U+FFFD, and a line stays one line."""
    text = as_table(result_of(named(0, "q\x1b[2J\nOK")))
    assert text.replace("\n", "").isprintable()
    assert "q\ufffd[2J\ufffdOK" in text.splitlines()[1]


def test_a_table_of_nothing_says_so() -> None:
    """Rather than an empty screen."""
    assert "(no subscriptions)" in as_table(result_of())
