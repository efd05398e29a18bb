"""Metrics: which series there are, what they say, and when they go."""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observer.samples import END, START_MS, a_poll, a_result, a_subscription
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from penstock_api.management import Owner
from penstock_api.state_documents import DurationHistogram, LargeQueue
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer.durations import Durations, DurationTotals
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.live_lag import LiveLag
from penstock_observer.live_view import LiveView
from penstock_observer.metrics import accepts_gzip, classic_buckets, exposition
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
        self.results = ResultStore(folder / "results", BrokerPod("main", "infra", 0), keep=3)

    def text(self) -> str:
        """What a scrape without compression gets."""
        return exposition(self.live, self.ledger, self.results, "infra", is_compressed=False).decode()

    def families(self) -> list[Metric]:
        """The same, as Prometheus reads it."""
        return list(text_string_to_metric_families(self.text()))

    def value(self, name: str, labels: dict[str, str] | None = None) -> float | None:
        """One sample, None if there is no such series."""
        samples = [sample for family in self.families() for sample in family.samples if sample.name == name]
        found = [sample.value for sample in samples if sample.labels == (labels or {})]
        assert len(found) <= 1
        return found[0] if found else None


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
    assert not [family for family in scrape.families() if family.name.startswith("penstock_subscription_")]


def test_segments_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    """The alert looks at this figure alone."""
    (tmp_path / "0000000003-000000000001-000000000009.parquet").write_bytes(b"PAR1 not really")
    scrape = Scrape(tmp_path)
    assert scrape.value("penstock_ledger_damaged_segments") == 1
    assert scrape.value("penstock_ledger_segments") == 0
    scrape.ledger.close()


def test_a_ledger_that_does_not_answer_counts_as_a_failure_to_write(scrape: Scrape) -> None:
    """The alert looks at this counter alone."""
    assert scrape.value("penstock_ledger_write_failures_total") == 0
    scrape.live.ledger_silent()
    scrape.live.ledger_silent()
    assert scrape.value("penstock_ledger_write_failures_total") == 2


def test_an_age_that_is_not_known_is_no_number(scrape: Scrape) -> None:
    """A message waits, and the time since which it does may be of two clocks: 0 would look healthy."""
    scrape.live.answered(a_poll(START_MS, a_subscription(depth=1, ready=1)))
    value = scrape.value("penstock_subscription_oldest_message_age_seconds", ORDERS)
    assert value is not None
    assert math.isnan(value)


def test_an_age_of_messages_that_are_stranded_is_no_number(scrape: Scrape) -> None:
    """They wait for a destination; those that are due later do not wait. With one that is ready its age is told."""
    name = "penstock_subscription_oldest_message_age_seconds"
    scrape.live.answered(a_poll(START_MS, a_subscription(depth=3, scheduled=3)))
    assert scrape.value(name, ORDERS) == 0
    scrape.live.answered(a_poll(START_MS + 1, a_subscription(depth=3, scheduled=3, stranded=1)))
    value = scrape.value(name, ORDERS)
    assert value is not None and math.isnan(value)
    state = a_subscription(depth=4, ready=1, oldest_available_ms=START_MS, scheduled=3, stranded=1)
    scrape.live.answered(a_poll(START_MS + 2_000, state))
    assert scrape.value(name, ORDERS) == 2


def test_who_was_turned_away_shows_by_reason(scrape: Scrape) -> None:
    """A counter of connections; a broker that doesn't count them yet has no series, not a zero."""
    scrape.live.answered(a_poll(START_MS, refusals={"LoginFailed": 4, "TlsFailed": 0}))
    assert scrape.value("penstock_broker_refused_connections_total", {"reason": "LoginFailed"}) == 4
    assert scrape.value("penstock_broker_refused_connections_total", {"reason": "TlsFailed"}) == 0
    scrape.live.answered(a_poll(START_MS))
    assert scrape.value("penstock_broker_refused_connections_total", {"reason": "LoginFailed"}) is None


def test_a_volume_that_fills_shows_with_the_three_largest_queues(scrape: Scrape) -> None:
    """At most three series, whatever a broker lists; none while there is room, and none of a broker that is silent."""
    name = "penstock_broker_largest_queue_bytes"
    queues = [
        LargeQueue(queue_name=f"q{at}", is_subscription=True, depth_bytes=100 - at, consumers=at) for at in range(5)
    ]
    scrape.live.answered(
        a_poll(START_MS, volume_bytes=1000, volume_used_bytes=800, largest_queues=tuple(queues), storage_refused=7)
    )
    found = {
        (sample.labels["rank"], sample.labels["queue"], sample.labels["consumed"]): sample.value
        for family in scrape.families()
        for sample in family.samples
        if sample.name == name
    }
    assert found == {("1", "q0", "false"): 100, ("2", "q1", "true"): 99, ("3", "q2", "true"): 98}
    assert scrape.value("penstock_broker_volume_bytes") == 1000
    assert scrape.value("penstock_broker_volume_used_bytes") == 800
    assert scrape.value("penstock_broker_storage_refused_messages_total") == 7
    scrape.live.answered(a_poll(START_MS))
    assert not [s for family in scrape.families() for s in family.samples if s.name == name]
    assert scrape.value("penstock_broker_volume_bytes") is None


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


def test_messages_that_a_restart_recovers_are_no_arrivals(scrape: Scrape) -> None:
    """Prometheus sees a counter that began anew, and adds all that it counts by then: 3, and not 503."""
    state = a_subscription(depth=503, ready=503, enqueued=1_500, enqueued_bytes=15_000, acked=997)
    scrape.live.answered(a_poll(START_MS, state))
    assert scrape.value("penstock_subscription_enqueued_messages_total", ORDERS) == 1_500
    life: dict[str, Any] = {"depth": 503, "ready": 503, "enqueued": 503, "enqueued_bytes": 5_030}
    after = a_subscription(**life, recovered=500, recovered_bytes=5_000)
    scrape.live.answered(a_poll(START_MS + 10_000, after, epoch=2))
    assert scrape.value("penstock_subscription_enqueued_messages_total", ORDERS) == 3
    assert scrape.value("penstock_subscription_enqueued_bytes_total", ORDERS) == 30


def test_series_stay_without_consumers_and_go_with_the_subscription(scrape: Scrape) -> None:
    """Lag must not vanish when consumers do; it must when there is nothing left to lag."""
    scrape.live.answered(a_poll(START_MS, a_subscription(depth=3, ready=3, consumers=1)))
    scrape.live.answered(a_poll(START_MS + 1, a_subscription(depth=4, ready=4, consumers=0)))
    assert scrape.value("penstock_subscription_depth_messages", ORDERS) == 4
    scrape.live.answered(a_poll(START_MS + 2))
    assert scrape.value("penstock_subscription_depth_messages", ORDERS) is None
    assert scrape.value("penstock_subscription_acked_messages_total", ORDERS) is None


@pytest.mark.parametrize(
    ("hold", "expected"), [({"in_flight": 3, "depth": 3}, "nan"), ({}, "0.0"), ({"oldest_hold_ms": START_MS}, "0.0")]
)
def test_a_hold_that_is_not_known_is_no_hold_of_0_seconds(scrape: Scrape, hold: dict[str, Any], expected: str) -> None:
    """The clock was set while deliveries were out, so since when they are is not known."""
    scrape.live.answered(a_poll(START_MS, a_subscription(**hold)))
    assert str(scrape.value("penstock_subscription_longest_hold_seconds", ORDERS)) == expected


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
    """Of the present state alone; Unknown while the broker is away. One missed poll takes no state away, or an alert
    that waits for two minutes of it would begin to wait anew; that the figures are old is a figure of its own.
    """
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
    assert scrape.value("penstock_subscription_state", {**ORDERS, "state": "Unconsumed"}) == 1
    assert scrape.value("penstock_subscription_state", {**ORDERS, "state": "Unknown"}) is None
    assert scrape.value("penstock_subscription_velocity_messages_per_minute", ORDERS) == 60
    assert scrape.value("penstock_broker_reachable") == 0
    assert scrape.value("penstock_broker_poll_timestamp_seconds") == (START_MS + 70_000) / 1000
    scrape.live.away("the broker does not answer: refused")
    assert scrape.value("penstock_subscription_state", {**ORDERS, "state": "Unknown"}) == 1
    assert scrape.value("penstock_subscription_state", {**ORDERS, "state": "Unconsumed"}) is None
    assert scrape.value("penstock_subscription_velocity_messages_per_minute", ORDERS) is None, "as if it went on"
    assert scrape.value("penstock_subscription_depth_messages", ORDERS) == 170


def test_the_suggested_consumers_are_a_series_only_where_they_are_known(scrape: Scrape) -> None:
    """Each of two accepts 2 a second, 6 a second arrive, 560 wait: (360 + 56) / (120 * 0.8) = 4.3. Never a zero, and
    nothing while the broker is away.
    """
    live = LiveLag(0, 10_000, Thresholds())
    poll = a_poll(START_MS)
    for step in range(24):
        moved: dict[str, Any] = {"enqueued": 60 * step, "delivered": 40 * step, "acked": 40 * step}
        depth = 100 + 20 * step
        state = a_subscription(depth=depth, ready=depth, consumers=2, oldest_available_ms=START_MS - 60_000, **moved)
        poll = a_poll(START_MS + 10_000 * step, state, a_subscription("other"))
        live.observe(poll)
    scrape.live.answered(poll, tuple(live.lags()))
    name = "penstock_subscription_suggested_consumers"
    assert scrape.value(name, ORDERS) == 5
    assert scrape.value(name, {**ORDERS, "subscription": "psub:durable:global:other"}) is None
    scrape.live.away("the broker does not answer: refused")
    assert scrape.value(name, ORDERS) == 5
    scrape.live.away("the broker does not answer: refused")
    assert scrape.value(name, ORDERS) is None


def test_no_other_label_is_used(scrape: Scrape) -> None:
    """Consumers, containers and users would be unbounded."""
    scrape.live.answered(a_poll(START_MS, a_subscription(containers=("c1", "c2"), user="u")))
    labels = {label for family in scrape.families() for sample in family.samples for label in sample.labels}
    assert labels == {"namespace", "exchange", "subscription", "le"}


def test_two_subscriptions_of_one_name_have_two_series(scrape: Scrape) -> None:
    """The name alone is not unique: scope and durability belong to the identity."""
    volatile = a_subscription(queue_name="psub:volatile:global:orders", durable=False, depth=2)
    scrape.live.answered(a_poll(START_MS, a_subscription(depth=1), volatile))
    assert scrape.value("penstock_subscription_depth_messages", ORDERS) == 1
    other = {**ORDERS, "subscription": "psub:volatile:global:orders"}
    assert scrape.value("penstock_subscription_depth_messages", other) == 2


def test_the_histogram_counts_in_seconds(scrape: Scrape) -> None:
    """1 ms and below is bucket -1; (2**(8/8), 2**(9/8)] ms is bucket 8, above 0.002 and within 0.004 s."""
    histogram = DurationHistogram(indexes=(-1, 8, 200), counts=(4, 5, 1), sum_ms=99)
    scrape.live.answered(a_poll(START_MS, a_subscription()), durations=Durations(sojourn=histogram))
    name = "penstock_broker_sojourn_seconds"
    assert scrape.value(f"{name}_bucket", {"le": "0.001"}) == 4
    assert scrape.value(f"{name}_bucket", {"le": "0.002"}) == 4
    assert scrape.value(f"{name}_bucket", {"le": "0.004"}) == 9
    assert scrape.value(f"{name}_bucket", {"le": "16777.216"}) == 9
    assert scrape.value(f"{name}_bucket", {"le": "67108.864"}) == 10
    assert scrape.value(f"{name}_bucket", {"le": "+Inf"}) == 10
    assert scrape.value(f"{name}_count") == 10
    assert scrape.value(f"{name}_sum") == 0.099


@given(st.dictionaries(st.integers(-1, 260), st.integers(1, 1000), max_size=30))
def test_classic_buckets_are_exact_and_cumulative(fine: dict[int, int]) -> None:
    """Each bound counts exactly the fine buckets whose upper bound is not above it; the last counts all."""
    indexes = tuple(sorted(fine))
    histogram = DurationHistogram(indexes=indexes, counts=tuple(fine[index] for index in indexes))
    for bound, cumulative in classic_buckets(histogram):
        limit_ms = float(bound) * 1000
        assert cumulative == sum(n for index, n in fine.items() if 2 ** ((index + 1) / 8) <= limit_ms * (1 + 1e-9))


def test_every_subscription_has_every_series_but_those_that_are_not_known(scrape: Scrape) -> None:
    """A counter that came with its first loss would hide it. Histograms are not among them."""
    live = LiveLag(0, 10_000, Thresholds())
    poll = a_poll(START_MS, a_subscription(), a_subscription("other", depth=3))
    live.observe(poll)
    poll = a_poll(START_MS + 10_000, *poll.subscriptions)
    live.observe(poll)
    scrape.live.answered(poll, tuple(live.lags()))
    names = [
        [
            sample.name
            for family in scrape.families()
            for sample in family.samples
            if sample.labels.get("subscription") == each
        ]
        for each in ("psub:durable:global:orders", "psub:durable:global:other")
    ]
    assert names[0] == names[1]
    assert len(names[0]) == len(set(names[0])) == 25
    lost = ("expired", "dead_lettered", "dropped", "lost_at_restart")
    assert [scrape.value(f"penstock_subscription_{each}_messages_total", ORDERS) for each in lost] == [0, 0, 0, 0]


def test_names_with_quotes_and_line_ends_stay_one_label(scrape: Scrape) -> None:
    """The client chose them."""
    name = 'psub:durable:global:a"} 1\nb\\'
    scrape.live.answered(a_poll(START_MS, a_subscription(queue_name=name, exchange='e"x\\n', depth=5)))
    labels = {"namespace": "infra", "exchange": 'e"x\\n', "subscription": name}
    assert scrape.value("penstock_subscription_depth_messages", labels) == 5


def test_the_compressed_text_is_the_same(scrape: Scrape) -> None:
    """And a good deal shorter."""
    scrape.live.answered(a_poll(START_MS, *[a_subscription(f"s{number}") for number in range(50)]))
    packed = exposition(scrape.live, scrape.ledger, scrape.results, "infra", is_compressed=True)
    assert gzip.decompress(packed).decode() == scrape.text()
    assert len(packed) * 10 < len(scrape.text())


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("", False),
        ("gzip", True),
        ("identity", False),
        ("deflate, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0.00, *", False),
        ("*", True),
        ("*;q=0", False),
    ],
)
def test_who_takes_gzip(header: str, accepted: bool) -> None:
    """RFC 9110, 12.5.3: a quality of 0 is a refusal, and a star stands for what is not named."""
    assert accepts_gzip(header) is accepted


DOCUMENTED = re.compile(r"^\| `(penstock_\w+)`[^|]* \| (gauge|counter|histogram) \|", re.MULTILINE)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "observer.md"


def test_the_page_lists_every_metric(scrape: Scrape) -> None:
    """Name and kind, as a reader of the text sees them."""
    live = LiveLag(0, 10_000, Thresholds())
    live.observe(a_poll(START_MS, a_subscription()))
    poll = a_poll(START_MS + 10_000, a_subscription(), refusals={"LoginFailed": 1})
    live.observe(poll)
    scrape.live.answered(poll, tuple(live.lags()))
    scrape.results.put("run-1", a_result(namespace="infra"), END)
    exposed = set(re.findall(r"^# TYPE (\w+) (\w+)$", scrape.text(), re.MULTILINE))
    documented = DOCUMENTED.findall(PAGE.read_text())
    assert len(documented) == len(set(documented))
    assert set(documented) == exposed


def counted(count: int, sum_ms: int = 0) -> DurationHistogram:
    """So many durations in one bucket."""
    return DurationHistogram(indexes=(8,), counts=(count,), sum_ms=sum_ms)


def test_durations_only_grow() -> None:
    """The first poll is the base; one that ends takes nothing away; a new one and a new life count from 0."""
    totals = DurationTotals()
    sums: list[int] = []

    def poll(epoch: int, complete: bool, *states: tuple[str, int, int]) -> None:
        told = [a_subscription(name, incarnation=life, hold=counted(count, count)) for name, life, count in states]
        made = replace(a_poll(START_MS, *told, epoch=epoch), complete=complete)
        hold = totals.observe(made).hold
        assert sum(hold.counts) == hold.sum_ms
        sums.append(hold.sum_ms)

    poll(3, False, ("a", 1, 100))
    poll(3, True, ("a", 1, 103), ("late", 2, 50))
    poll(3, True, ("a", 1, 104))
    poll(3, True, ("a", 1, 104), ("new", 3, 7))
    poll(3, True, ("a", 4, 10), ("new", 3, 7))
    poll(4, False, ("a", 4, 5))
    poll(4, True, ("a", 4, 6), ("new", 3, 2))
    assert sums == [0, 3, 4, 11, 21, 26, 29]
