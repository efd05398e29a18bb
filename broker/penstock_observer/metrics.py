"""The observer's metrics, made from the live view at each scrape.

Nothing is registered per subscription: a series exists as long as the broker has the subscription, with or without
consumers (`subscription_metrics`). Histograms are of all subscriptions together. Source: docs/reference/observer.md,
"Metrics"; buckets as in penstock_api.state_documents.DurationHistogram.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from penstock_api.state_documents import BrokerState, DurationHistogram
from penstock_observer.durations import Durations
from penstock_observer.ledger import Ledger
from penstock_observer.live_view import LiveBroker, LiveView
from penstock_observer.results import ResultStore
from penstock_observer.subscription_metrics import subscription_lines

__all__ = ["accepts_gzip", "classic_buckets", "exposition"]

LARGEST: Final = 3
"""Queues that are named, whatever a later broker lists."""
BUCKETS_PER_OCTAVE: Final = 8
BOUND_EXPONENTS: Final = tuple(range(29))
"""Upper bounds 2**0, 2**1, ... 2**28 ms (3 days); each also ends a fine bucket, so nothing is interpolated here. What
Prometheus interpolates between two of them is at most twice too high.
"""


def exposition(live: LiveView, ledger: Ledger, results: ResultStore, namespace: str, *, is_compressed: bool) -> bytes:
    """Everything in Prometheus' text format, with gzip if the reader takes that."""
    known = live.known
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_ObserverCollector(known, ledger, results))
    body = generate_latest(registry) + "".join(subscription_lines(known, namespace)).encode()
    # The lines repeat each other, so that the fastest level makes a thirtieth of them.
    return gzip.compress(body, compresslevel=1, mtime=0) if is_compressed else body


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether a request with this Accept-Encoding takes gzip. Source: RFC 9110, 12.5.3."""
    quality: dict[str, str] = {}
    for each in accept_encoding.split(","):
        coding, _, parameter = each.partition(";")
        quality[coding.strip().lower()] = parameter.strip().lower()
    found = quality.get("gzip", quality.get("*"))
    return found is not None and re.fullmatch(r"q=0(\.0*)?", found) is None


class _ObserverCollector(Collector):
    """What is not of one subscription."""

    def __init__(self, known: LiveBroker, ledger: Ledger, results: ResultStore) -> None:
        self._known = known
        self._ledger = ledger
        self._results = results

    def collect(self) -> Iterator[Metric]:
        """Every metric family of this observer."""
        known = self._known
        yield from _observer(known)
        yield from _ledger(self._ledger, known.unanswered_writes)
        yield from _lag(self._results)
        if known.poll is not None:
            yield from _broker(known)
            yield from _durations(known.durations)


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
    readings: tuple[tuple[str, str, float], ...] = (
        ("poll_timestamp_seconds", "Time of the last answered poll, on the broker's clock.", state.now_ms / 1000),
        ("start_timestamp_seconds", "When the broker started.", state.started_ms / 1000),
        ("epoch", "Number of starts of the broker on its data folder.", state.epoch),
        ("connections", "Open connections.", state.connections),
        ("subscriptions", "Subscriptions.", state.subscriptions),
        ("client_subscriptions", "Permanent ones that clients made by attaching.", state.client_subscriptions),
        ("exchanges", "Exchanges.", state.exchanges),
        ("queues", "Point-to-point queues.", state.queues),
        ("log_bytes", "Size of the log.", state.log_bytes),
        ("log_segments", "Segments of the log.", state.log_segments),
        ("durable_work_ok", "1 while the log can be written; 0 if it is full or failed.", state.durable_work == "Ok"),
    )
    if state.volume_bytes:
        readings += (
            ("volume_bytes", "Size of the volume of the data folder.", state.volume_bytes),
            ("volume_used_bytes", "Bytes of it that messages can't have any more.", state.volume_used_bytes),
        )
    if state.memory_bytes:
        readings += (
            ("memory_bytes", "Bytes of memory that messages may take.", state.memory_bytes),
            ("memory_used_bytes", "Bytes of memory that they take.", state.memory_used_bytes),
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
    yield CounterMetricFamily(
        "penstock_broker_storage_refused_messages",
        "Messages that were refused because the volume was full.",
        value=state.storage_refused,
    )
    yield CounterMetricFamily(
        "penstock_broker_memory_refused_messages",
        "Messages that were refused because memory was full.",
        value=state.memory_refused,
    )
    yield _largest(state)


def _largest(state: BrokerState) -> Metric:
    """The three largest queues, while the volume fills: at most three series at a time, none else."""
    largest = GaugeMetricFamily(
        "penstock_broker_largest_queue_bytes",
        "Bytes in one of the three largest queues, while more than 70 % of the volume is in use.",
        labels=["rank", "queue", "consumed"],
    )
    for rank, each in enumerate(state.largest_queues[:LARGEST], 1):
        largest.add_metric([str(rank), each.queue_name, str(each.consumers > 0).lower()], each.depth_bytes)
    return largest


def _durations(durations: Durations) -> Iterable[Metric]:
    for name, text, histogram in (
        ("sojourn_seconds", "Time from available to accepted.", durations.sojourn),
        ("wait_seconds", "Time from available to the first delivery.", durations.wait),
        ("hold_seconds", "Time from the last delivery to settled.", durations.hold),
    ):
        family = HistogramMetricFamily(f"penstock_broker_{name}", f"{text} Of all subscriptions together.")
        family.add_metric([], classic_buckets(histogram), histogram.sum_ms / 1000)
        yield family


def _ledger(ledger: Ledger, unanswered_writes: int) -> Iterable[Metric]:
    yield GaugeMetricFamily("penstock_ledger_segments", "Listed segments.", value=len(ledger.segments))
    yield GaugeMetricFamily("penstock_ledger_bytes", "Size of all segments.", value=ledger.bytes)
    yield GaugeMetricFamily(
        "penstock_ledger_damaged_segments", "Segments that can't be used, or not as a whole.", value=len(ledger.damaged)
    )
    yield GaugeMetricFamily("penstock_ledger_waiting_rows", "Rows not sealed yet.", value=ledger.waiting_rows)
    yield CounterMetricFamily(
        "penstock_ledger_write_failures",
        "Failed attempts to write a segment, and polls that did not get there because the volume did not answer.",
        value=ledger.failed_writes + unanswered_writes,
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
