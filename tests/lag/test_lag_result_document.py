"""The result document: units, what is left out, order, and the same bytes for the same input."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from lag.figures_factory import END_MS, figures

from penstock_api.lag_result import LagResult, LagState
from penstock_lag.result_document import Run, make_result
from penstock_lag.rules import Figures, Thresholds
from penstock_lag.table import as_table
from penstock_lag.windows import Chosen, Plan

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


def test_figures_become_seconds_minutes_and_percent() -> None:
    """Rounded down; nothing is a float."""
    one = figures(
        age_ms=40_999, hold_ms=5_001, new_delivered=300, new_redelivered=200, drain_seconds=7, velocity_per_minute=-3
    )
    (lag,) = result_of(one).subscriptions
    assert (lag.messages, lag.ready, lag.in_flight, lag.scheduled, lag.consumers) == (500, 400, 100, 0, 2)
    assert (lag.oldest_age_seconds, lag.longest_hold_seconds) == (40, 5)
    assert (lag.arrival_per_minute, lag.settled_per_minute, lag.velocity_per_minute, lag.drain_seconds) == (
        600,
        600,
        -3,
        7,
    )
    assert lag.redelivery_percent == 66
    assert (lag.sojourn_p50_millis, lag.sojourn_p95_millis, lag.sojourn_p99_millis) == (6049, 34219, 81386)


def test_what_is_not_known_is_absent() -> None:
    """No percentile of nineteen messages, no share of no deliveries, no drain of what does not drain."""
    (lag,) = result_of(figures(completions=19, new_delivered=0)).subscriptions
    assert (lag.sojourn_p50_millis, lag.sojourn_p99_millis) == (None, None)
    assert (lag.redelivery_percent, lag.drain_seconds) == (None, None)
    document = json.loads(result_of(figures(completions=19, new_delivered=0)).to_json())
    assert not {"sojournP50Millis", "redeliveryPercent", "drainSeconds", "ownerName"} & set(
        document["subscriptions"][0]
    )


def test_subscriptions_of_a_missing_broker_keep_their_figures_but_not_their_state() -> None:
    """Last known, and Unknown with the reason."""
    here, gone = result_of(figures(ordinal=1, queue_name="b"), figures(ordinal=0, queue_name="a")).subscriptions
    assert (here.queue_name, here.state) == ("a", LagState.BACKLOG_STEADY)
    assert (gone.queue_name, gone.state, gone.messages) == ("b", LagState.UNKNOWN, 500)
    assert gone.message == "the observer did not answer: refused"


@given(st.permutations([figures(queue_name=name, ordinal=ordinal) for name in "abc" for ordinal in (0, 1)]))
def test_the_order_of_the_figures_does_not_matter(shuffled: list[Figures]) -> None:
    """The same bytes."""
    assert result_of(*shuffled).to_json() == result_of(*sorted(shuffled, key=lambda f: f.ordinal)).to_json()


def test_the_document_is_read_back_as_it_was() -> None:
    """By the model that the operator validates with."""
    result = result_of(figures(owner_namespace="shop", owner_name="orders", owner_uid="u"))
    assert LagResult.model_validate_json(result.to_json()) == result


def test_a_long_reason_is_cut() -> None:
    """The model refuses longer ones, and an observer's words are not ours."""
    plan = Plan(0, 1, (), (), 0, ((0, "x" * 5000),))
    result = result_of(figures(), plan=plan)
    assert len(result.missing[0]) == 1024
    assert len(result.subscriptions[0].message) == 1024


def test_the_table_is_aligned_and_says_what_is_missing() -> None:
    """A name of its own where there is a resource; absent figures are a dash."""
    text = as_table(result_of(figures(), figures(queue_name="z", owner_namespace="shop", owner_name="bills")))
    lines = text.splitlines()
    assert lines[0].split()[:3] == ["SUBSCRIPTION", "STATE", "LAG"]
    assert lines[1].split()[:4] == ["psub:durable:global:orders", "BacklogSteady", "500", "400"]
    assert lines[2].startswith("shop/bills  ")
    assert lines[1].index("500") == lines[2].index("500")
    assert lines[3] == "MISSING main-1: the observer did not answer: refused"
    assert lines[4] == "shop/main: 1 of 2 brokers, 1 segments, window 22:13:20 to 22:18:20 UTC"


def test_a_table_of_nothing_says_so() -> None:
    """Rather than an empty screen."""
    assert "(no subscriptions)" in as_table(result_of())
