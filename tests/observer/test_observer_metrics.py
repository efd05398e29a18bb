"""Metrics: which series there are, what they say, and when they go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observer.samples import START_MS, a_poll, a_subscription
from prometheus_client import CollectorRegistry

from penstock_api.management import DurationHistogram, Owner
from penstock_lag_rules.rules import Thresholds
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.live_lag import LiveLag
from penstock_observer.live_view import LiveView
from penstock_observer.metrics import ObserverCollector, classic_buckets
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import RowOrigin

ORDERS = {"namespace": "infra", "exchange": "events", "subscription": "psub:durable:global:orders"}


class Scrape:
    """An observer's parts, and what a scrape of them says."""

    def __init__(self, folder: Path) -> None:
        rolling, limits = SealLimits(60, 1000, 10**9), RetentionLimits(10**12, 10**12)
        self.live = LiveView()
        self.ledger = Ledger(folder, RowOrigin("main", 0, 1000), rolling, limits)
        self.registry = CollectorRegistry()
        results = ResultStore(folder / "results", BrokerPod("main", "infra", 0), keep=3)
        self.registry.register(ObserverCollector(self.live, self.ledger, results, "infra"))

    def value(self, name: str, labels: dict[str, str] | None = None) -> float | None:
        """One sample, None if there is no such series."""
        return self.registry.get_sample_value(name, labels or {})


@pytest.fixture
def scrape(tmp_path: Path) -> Iterator[Scrape]:
    """A new observer."""
    made = Scrape(tmp_path)
    yield made
    made.ledger.close()


def test_before_the_first_answer_only_the_observer_itself_shows(scrape: Scrape) -> None:
    """Not reachable; no subscription series with invented zeros."""
    assert scrape.value("penstock_broker_reachable") == 0
    assert scrape.value("penstock_broker_connections") is None
    assert not [m for m in scrape.registry.collect() if m.name.startswith("penstock_subscription_")]


def test_who_was_turned_away_shows_by_reason(scrape: Scrape) -> None:
    """A counter of connections; a broker that doesn't count them yet has no series, not a zero."""
    scrape.live.answered(a_poll(START_MS, refusals={"LoginFailed": 4, "TlsFailed": 0}))
    assert scrape.value("penstock_broker_refused_connections_total", {"reason": "LoginFailed"}) == 4
    assert scrape.value("penstock_broker_refused_connections_total", {"reason": "TlsFailed"}) == 0
    scrape.live.answered(a_poll(START_MS))
    assert scrape.value("penstock_broker_refused_connections_total", {"reason": "LoginFailed"}) is None


def test_figures_of_a_subscription(scrape: Scrape) -> None:
    """Messages, bytes, seconds and totals, each under its unit."""
    state = a_subscription(
        depth=7,
        depth_bytes=700,
        ready=4,
        in_flight=3,
        consumers=2,
        credit=50,
        oldest_available_ms=START_MS - 2_500,
        oldest_hold_ms=START_MS - 1_250,
        enqueued=17,
        acked=10,
    )
    scrape.live.answered(a_poll(START_MS, state))
    assert scrape.value("penstock_broker_reachable") == 1
    assert scrape.value("penstock_subscription_depth_messages", ORDERS) == 7
    assert scrape.value("penstock_subscription_depth_bytes", ORDERS) == 700
    assert scrape.value("penstock_subscription_ready_messages", ORDERS) == 4
    assert scrape.value("penstock_subscription_in_flight_messages", ORDERS) == 3
    assert scrape.value("penstock_subscription_consumers", ORDERS) == 2
    assert scrape.value("penstock_subscription_oldest_message_age_seconds", ORDERS) == 2.5
    assert scrape.value("penstock_subscription_longest_hold_seconds", ORDERS) == 1.25
    assert scrape.value("penstock_subscription_enqueued_messages_total", ORDERS) == 17
    assert scrape.value("penstock_subscription_acked_messages_total", ORDERS) == 10


def test_series_stay_without_consumers_and_go_with_the_subscription(scrape: Scrape) -> None:
    """Lag must not vanish when consumers do; it must when there is nothing left to lag."""
    scrape.live.answered(a_poll(START_MS, a_subscription(depth=3, ready=3, consumers=1)))
    scrape.live.answered(a_poll(START_MS + 1, a_subscription(depth=4, ready=4, consumers=0)))
    assert scrape.value("penstock_subscription_depth_messages", ORDERS) == 4
    scrape.live.answered(a_poll(START_MS + 2))
    assert scrape.value("penstock_subscription_depth_messages", ORDERS) is None
    assert scrape.value("penstock_subscription_acked_messages_total", ORDERS) is None


def test_series_stay_while_the_broker_is_away(scrape: Scrape) -> None:
    """Known values, and a gauge that says they are old."""
    scrape.live.answered(a_poll(START_MS, a_subscription(depth=3, ready=3)))
    scrape.live.away("the broker does not answer: gone")
    assert scrape.value("penstock_broker_reachable") == 0
    assert scrape.value("penstock_observer_poll_failures_total") == 1
    assert scrape.value("penstock_subscription_depth_messages", ORDERS) == 3


def test_the_namespace_is_that_of_the_resource(scrape: Scrape) -> None:
    """Of the Broker's only for what clients made."""
    owner = Owner(cluster_id="c", kind="Subscription", namespace="shop", name="orders", uid="u")
    scrape.live.answered(a_poll(START_MS, a_subscription(depth=3, owner=owner)))
    assert scrape.value("penstock_subscription_depth_messages", {**ORDERS, "namespace": "shop"}) == 3


def test_the_state_by_the_rules_of_lag_is_one_series_of_each_subscription(scrape: Scrape) -> None:
    """Of the present state alone; Unknown while the broker is away."""
    live = LiveLag(0, 10_000, Thresholds())
    state = a_subscription(depth=100, ready=100, oldest_available_ms=START_MS - 90_000)
    poll = a_poll(START_MS)
    for step in range(8):
        poll = a_poll(START_MS + 10_000 * step, state.model_copy(update={"depth": 100 + 10 * step}))
        live.observe(poll)
    scrape.live.answered(poll, tuple(live.lags()))
    assert scrape.value("penstock_subscription_state", {**ORDERS, "state": "Unconsumed"}) == 1
    assert scrape.value("penstock_subscription_state", {**ORDERS, "state": "OK"}) is None
    assert scrape.value("penstock_subscription_velocity_messages_per_minute", ORDERS) == 60
    scrape.live.away("the broker does not answer: refused")
    assert scrape.value("penstock_subscription_state", {**ORDERS, "state": "Unknown"}) == 1
    assert scrape.value("penstock_subscription_state", {**ORDERS, "state": "Unconsumed"}) is None


def test_no_other_label_is_used(scrape: Scrape) -> None:
    """Consumers, containers and users would be unbounded."""
    scrape.live.answered(a_poll(START_MS, a_subscription(containers=("c1", "c2"), user="u")))
    labels = {label for metric in scrape.registry.collect() for sample in metric.samples for label in sample.labels}
    assert labels == {"namespace", "exchange", "subscription", "le"}


def test_two_subscriptions_of_one_name_have_two_series(scrape: Scrape) -> None:
    """The name alone is not unique: scope and durability belong to the identity."""
    volatile = a_subscription(queue_name="psub:volatile:global:orders", durable=False, depth=2)
    scrape.live.answered(a_poll(START_MS, a_subscription(depth=1), volatile))
    assert scrape.value("penstock_subscription_depth_messages", ORDERS) == 1
    other = {**ORDERS, "subscription": "psub:volatile:global:orders"}
    assert scrape.value("penstock_subscription_depth_messages", other) == 2


def test_the_histogram_counts_in_seconds(scrape: Scrape) -> None:
    """1 ms and below is bucket -1; (2**(8/8), 2**(9/8)] ms is bucket 8, above 0.001 and within 0.004 s."""
    histogram = DurationHistogram(indexes=(-1, 8, 200), counts=(4, 5, 1), sum_ms=99)
    scrape.live.answered(a_poll(START_MS, a_subscription(sojourn=histogram)))
    name = "penstock_subscription_sojourn_seconds"
    assert scrape.value(f"{name}_bucket", {**ORDERS, "le": "0.001"}) == 4
    assert scrape.value(f"{name}_bucket", {**ORDERS, "le": "0.004"}) == 9
    assert scrape.value(f"{name}_bucket", {**ORDERS, "le": "16777.216"}) == 9
    assert scrape.value(f"{name}_bucket", {**ORDERS, "le": "67108.864"}) == 10
    assert scrape.value(f"{name}_bucket", {**ORDERS, "le": "+Inf"}) == 10
    assert scrape.value(f"{name}_count", ORDERS) == 10
    assert scrape.value(f"{name}_sum", ORDERS) == 0.099


@given(st.dictionaries(st.integers(-1, 260), st.integers(1, 1000), max_size=30))
def test_classic_buckets_are_exact_and_cumulative(fine: dict[int, int]) -> None:
    """Each bound counts exactly the fine buckets whose upper bound is not above it; the last counts all."""
    indexes = tuple(sorted(fine))
    histogram = DurationHistogram(indexes=indexes, counts=tuple(fine[index] for index in indexes))
    for bound, cumulative in classic_buckets(histogram):
        limit_ms = float(bound) * 1000
        assert cumulative == sum(n for index, n in fine.items() if 2 ** ((index + 1) / 8) <= limit_ms * (1 + 1e-9))
