"""The observer's metrics, made from the live view at each scrape.

Nothing is registered per subscription: a series exists as long as the broker has the subscription, with or without
consumers. Labels are only namespace, exchange and subscription (its queue name, which is unique).
Source: docs/reference/observer.md, "Metrics"; buckets as in penstock_api.management.DurationHistogram.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from penstock_api.management import DurationHistogram, SubscriptionState
from penstock_observer.ledger import Ledger
from penstock_observer.live_view import LiveBroker, LiveView
from penstock_observer.results import ResultStore

__all__ = ["ObserverCollector", "classic_buckets"]

LABELS: Final = ("namespace", "exchange", "subscription")

BUCKETS_PER_OCTAVE: Final = 8
BOUND_EXPONENTS: Final = tuple(range(0, 29, 2))
"""Upper bounds 2**0, 2**2, ... 2**28 ms (3 days); each also ends a fine bucket, so nothing is interpolated."""

Reading = Callable[[SubscriptionState], int]

# fmt: off
GAUGES: Final[tuple[tuple[str, str, Reading], ...]] = (
    ("depth_messages", "Messages that are not settled yet: ready, in flight and scheduled.", lambda s: s.depth),
    ("depth_bytes", "Size of the messages that are not settled yet.", lambda s: s.depth_bytes),
    ("ready_messages", "Messages that a consumer could take now.", lambda s: s.ready),
    ("in_flight_messages", "Messages delivered and not settled.", lambda s: s.in_flight),
    ("scheduled_messages", "Messages that are delayed or stranded.", lambda s: s.scheduled),
    ("stranded_messages", "Messages whose dead-letter or expiry destination does not take them.", lambda s: s.stranded),
    ("consumers", "Links that consume.", lambda s: s.consumers),
    ("credit_messages", "Credit of all consuming links.", lambda s: s.credit),
    ("max_delivery_count", "Highest delivery count of an unsettled message.", lambda s: s.max_delivery_count),
)
COUNTERS: Final[tuple[tuple[str, str, Reading], ...]] = (
    ("enqueued_messages", "Messages that came in.", lambda s: s.enqueued),
    ("enqueued_bytes", "Size of the messages that came in.", lambda s: s.enqueued_bytes),
    ("delivered_messages", "Deliveries to consumers, repeated ones included.", lambda s: s.delivered),
    ("redelivered_messages", "Deliveries with a delivery count above 0.", lambda s: s.redelivered),
    ("acked_messages", "Messages that consumers accepted.", lambda s: s.acked),
    ("returned_messages", "Deliveries that came back: released, modified, or their link was lost.", lambda s:
    s.returned), ("expired_messages", "Messages whose time to live ended.", lambda s: s.expired),
    ("dead_lettered_messages", "Messages rejected, or delivered too often without success.", lambda s: s.dead_lettered),
    ("dropped_messages", "Messages dropped by overflow, rebind or purge.", lambda s: s.dropped),
    ("moved_messages", "Messages that an administrator moved to another queue.", lambda s: s.moved),
    ("lost_at_restart_messages", "Messages that were not durable when the broker ended.", lambda s: s.lost_at_restart),
)
HISTOGRAMS: Final[tuple[tuple[str, str, Callable[[SubscriptionState], DurationHistogram]], ...]] = (
    ("sojourn_seconds", "Time from available to accepted.", lambda s: s.sojourn),
    ("wait_seconds", "Time from available to the first delivery.", lambda s: s.wait),
    ("hold_seconds", "Time from the last delivery to settled.", lambda s: s.hold),
)
# fmt: on


class ObserverCollector(Collector):
    """Reads the current view at each scrape."""

    def __init__(self, live: LiveView, ledger: Ledger, results: ResultStore, namespace: str) -> None:
        self._live = live
        self._ledger = ledger
        self._results = results
        self._namespace = namespace

    def collect(self) -> Iterator[Metric]:
        """Every metric family of this observer."""
        known = self._live.known
        yield from _observer(known)
        yield from _ledger(self._ledger)
        yield from _lag(self._results)
        if known.poll is not None:
            now_ms = known.poll.broker.now_ms
            labelled = [(self._labels(state), state) for state in known.poll.subscriptions]
            yield from _broker(known)
            yield from _subscriptions(labelled, now_ms)
            yield from self._states(known)

    def _states(self, known: LiveBroker) -> Iterable[Metric]:
        """The state by the rules of lag, as one series per subscription: that of its present state."""
        if known.poll is None:
            return
        exchanges = {state.queue_name: self._labels(state) for state in known.poll.subscriptions}
        states = GaugeMetricFamily(
            "penstock_subscription_state",
            "1 for the state in which the subscription is, by the rules of lag at the last poll.",
            labels=(*LABELS, "state"),
        )
        velocities = GaugeMetricFamily(
            "penstock_subscription_velocity_messages_per_minute",
            "Change of the depth; above 0 the backlog grows.",
            labels=LABELS,
        )
        for lag in known.lags_now():
            labels = exchanges.get(lag.queue_name)
            if labels is None:
                continue
            states.add_metric((*labels, lag.state.value), 1)
            if lag.velocity_per_minute is not None:
                velocities.add_metric(labels, lag.velocity_per_minute)
        yield states
        yield velocities

    def _labels(self, state: SubscriptionState) -> tuple[str, str, str]:
        namespace = self._namespace if state.owner is None else state.owner.namespace
        return (namespace, state.exchange, state.queue_name)


def classic_buckets(histogram: DurationHistogram) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound in seconds, ``+Inf`` last. Exact: every bound ends a fine bucket."""
    buckets: list[tuple[str, float]] = []
    cumulative, position = 0, 0
    for exponent in BOUND_EXPONENTS:
        while position < len(histogram.indexes) and histogram.indexes[position] < exponent * BUCKETS_PER_OCTAVE:
            cumulative += histogram.counts[position]
            position += 1
        buckets.append((repr(2**exponent / 1000), float(cumulative)))
    buckets.append(("+Inf", float(sum(histogram.counts))))
    return buckets


def _observer(known: LiveBroker) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "penstock_broker_reachable", "1 if the broker answered the last poll.", value=int(known.reachable)
    )
    yield CounterMetricFamily("penstock_observer_polls", "Polls of the broker.", value=known.polls)
    yield CounterMetricFamily("penstock_observer_poll_failures", "Polls without an answer.", value=known.failures)


def _broker(known: LiveBroker) -> Iterable[Metric]:
    if known.poll is None:
        return
    state = known.poll.broker
    readings = (
        ("poll_timestamp_seconds", "Time of the last answered poll, on the broker's clock.", state.now_ms / 1000),
        ("start_timestamp_seconds", "When the broker started.", state.started_ms / 1000),
        ("epoch", "Number of starts of the broker on its data folder.", state.epoch),
        ("connections", "Open connections.", state.connections),
        ("subscriptions", "Subscriptions.", state.subscriptions),
        ("exchanges", "Exchanges.", state.exchanges),
        ("queues", "Point-to-point queues.", state.queues),
        ("log_bytes", "Size of the log.", state.log_bytes),
        ("log_segments", "Segments of the log.", state.log_segments),
        ("durable_work_ok", "1 while the log can be written; 0 if it is full or failed.", state.durable_work == "Ok"),
    )
    for name, text, value in readings:
        yield GaugeMetricFamily(f"penstock_broker_{name}", text, value=value)
    yield CounterMetricFamily("penstock_broker_log_syncs", "Flushes of the log to disk.", value=state.log_syncs)
    refused = CounterMetricFamily(
        "penstock_broker_refused_connections",
        "Connections that were refused before they were opened.",
        labels=["reason"],
    )
    for reason, count in state.refusals.items():
        refused.add_metric([reason], count)
    yield refused


def _subscriptions(labelled: list[tuple[tuple[str, str, str], SubscriptionState]], now_ms: int) -> Iterable[Metric]:
    for name, text, reading in GAUGES:
        gauge = GaugeMetricFamily(f"penstock_subscription_{name}", text, labels=LABELS)
        for labels, state in labelled:
            gauge.add_metric(labels, reading(state))
        yield gauge
    yield from _ages(labelled, now_ms)
    for name, text, reading in COUNTERS:
        counter = CounterMetricFamily(f"penstock_subscription_{name}", text, labels=LABELS)
        for labels, state in labelled:
            counter.add_metric(labels, reading(state))
        yield counter
    for name, text, histogram_of in HISTOGRAMS:
        family = HistogramMetricFamily(f"penstock_subscription_{name}", text, labels=LABELS)
        for labels, state in labelled:
            histogram = histogram_of(state)
            family.add_metric(labels, classic_buckets(histogram), histogram.sum_ms / 1000)
        yield family


def _ages(labelled: list[tuple[tuple[str, str, str], SubscriptionState]], now_ms: int) -> Iterable[Metric]:
    oldest = GaugeMetricFamily(
        "penstock_subscription_oldest_message_age_seconds",
        "Age of the oldest available message that is not settled; 0 if none waits.",
        labels=LABELS,
    )
    hold = GaugeMetricFamily(
        "penstock_subscription_longest_hold_seconds",
        "How long the longest-held delivery has been unsettled; 0 if none is in flight.",
        labels=LABELS,
    )
    for labels, state in labelled:
        oldest.add_metric(labels, age_seconds(state.oldest_available_ms, now_ms))
        hold.add_metric(labels, age_seconds(state.oldest_hold_ms, now_ms))
    yield oldest
    yield hold


def age_seconds(since_ms: int | None, now_ms: int) -> float:
    """Seconds from `since_ms` to `now_ms`; 0 for None, and if the clock went back."""
    return 0.0 if since_ms is None else max(now_ms - since_ms, 0) / 1000


def _ledger(ledger: Ledger) -> Iterable[Metric]:
    yield GaugeMetricFamily("penstock_ledger_segments", "Readable segments.", value=len(ledger.segments))
    yield GaugeMetricFamily("penstock_ledger_bytes", "Size of all segments.", value=ledger.bytes)
    yield GaugeMetricFamily(
        "penstock_ledger_damaged_segments", "Segments that can't be read.", value=len(ledger.damaged)
    )
    yield GaugeMetricFamily("penstock_ledger_waiting_rows", "Rows not sealed yet.", value=ledger.waiting_rows)
    yield CounterMetricFamily(
        "penstock_ledger_write_failures", "Failed attempts to write a segment.", value=ledger.failed_writes
    )
    yield CounterMetricFamily(
        "penstock_ledger_dropped_rows", "Rows dropped because they could not be written.", value=ledger.dropped_rows
    )


def _lag(results: ResultStore) -> Iterable[Metric]:
    latest = results.latest_result()
    if latest is None:
        return
    yield GaugeMetricFamily(
        "penstock_lag_result_timestamp_seconds",
        "End of the window of the newest lag result.",
        value=latest.window_end.timestamp(),
    )
    yield GaugeMetricFamily(
        "penstock_lag_missing_brokers",
        "Brokers that are missing in the newest lag result.",
        value=latest.expected_brokers - latest.reporting_brokers,
    )
