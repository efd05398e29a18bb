"""The series of subscriptions as lines of Prometheus' text format.

Written for speed: ten thousand subscriptions are a quarter of a million lines a scrape, so lines are made here and not
by prometheus_client, whose objects cost ten times as much. Every subscription has every series of the tables below,
whatever its values are: a counter that is absent until its first loss hides that loss from `increase()`, and a gauge
that is absent while it is 0 drops its subscription out of every expression that joins it. Source:
docs/reference/observer.md, "Metrics".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from penstock_api.lag_result import LagState
from penstock_api.state_documents import SubscriptionState
from penstock_observer.broker_clock import oldest_age_ms
from penstock_observer.live_view import LiveBroker

__all__ = ["ARRIVALS", "COUNTERS", "GAUGES", "subscription_lines"]

# fmt: off
GAUGES: Final[tuple[tuple[str, str, str], ...]] = (
    ("depth_messages", "depth", "Messages that are not settled yet: ready, in flight and scheduled."),
    ("depth_bytes", "depth_bytes", "Size of the messages that are not settled yet."),
    ("ready_messages", "ready", "Messages that a consumer could take now."),
    ("in_flight_messages", "in_flight", "Messages delivered and not settled."),
    ("scheduled_messages", "scheduled", "Messages that are delayed or stranded."),
    ("stranded_messages", "stranded", "Messages whose dead-letter or expiry destination does not take them."),
    ("consumers", "consumers", "Links that consume."),
    ("credit_messages", "credit", "Credit of all consuming links."),
    ("max_delivery_count", "max_delivery_count", "Most failed deliveries that a message had, also one that has left."),
)
"""Name after the prefix, attribute of SubscriptionState, help."""
COUNTERS: Final[tuple[tuple[str, str, str], ...]] = (
    ("delivered_messages_total", "delivered", "Deliveries to consumers, repeated ones included."),
    ("redelivered_messages_total", "redelivered", "Deliveries with a delivery count above 0."),
    ("acked_messages_total", "acked", "Messages that consumers accepted."),
    ("returned_messages_total", "returned", "Deliveries that came back: released, modified, or their link was lost."),
    ("expired_messages_total", "expired", "Messages whose time to live ended."),
    ("dead_lettered_messages_total", "dead_lettered", "Messages rejected, or delivered too often without success."),
    ("dropped_messages_total", "dropped", "Messages dropped by overflow, or rejected without a destination."),
    ("moved_messages_total", "moved", "Messages that an administrator moved to another queue."),
    ("purged_messages_total", "purged", "Messages that an administrator deleted."),
    ("lost_at_restart_messages_total", "lost_at_restart", "Messages that were not durable when the broker ended."),
)
"""The same; the last six but `moved` and `purged` are the losses, by kind."""
ARRIVALS: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("enqueued_messages_total", "enqueued", "recovered", "Messages that came in since the broker started."),
    ("enqueued_bytes_total", "enqueued_bytes", "recovered_bytes", "Size of the messages that came in."),
)
"""The same, with what the start of the broker brought back as the third: a counter that begins anew with it would show
it as arrivals.
"""
# fmt: on

PREFIX: Final = "penstock_subscription_"


def subscription_lines(known: LiveBroker, namespace: str) -> Iterator[str]:
    """All series of all subscriptions: pieces of text, each of whole lines. `namespace`: of subscriptions that no
    resource declared.
    """
    if known.poll is None:
        return
    states, now_ms = known.poll.subscriptions, known.poll.broker.now_ms
    labels = [_labels(state, namespace) for state in states]
    for name, attribute, text in GAUGES:
        yield from _family(name, "gauge", text, labels, map(attrgetter(attribute), states))
    ages = [_seconds(_age_ms(state, now_ms)) for state in states]
    text = "Age of the oldest message that is ready or in flight; 0 if none waits, NaN if it is not known."
    yield from _family("oldest_message_age_seconds", "gauge", text, labels, ages)
    holds = [_hold_seconds(state, now_ms) for state in states]
    text = "How long the longest-held delivery has been unsettled; 0 if none is in flight, NaN if it is not known."
    yield from _family("longest_hold_seconds", "gauge", text, labels, holds)
    for name, came, recovered, text in ARRIVALS:
        counts = map(attrgetter(came, recovered), states)
        yield from _family(name, "counter", text, labels, [count - before for count, before in counts])
    for name, attribute, text in COUNTERS:
        yield from _family(name, "counter", text, labels, map(attrgetter(attribute), states))
    yield from _judgement(known, dict(zip((state.queue_name for state in states), labels, strict=True)))


def _judgement(known: LiveBroker, labels: dict[str, str]) -> Iterator[str]:
    """The state by the rules of lag, as one series: that of the present state; velocity; suggested consumers."""
    is_told = known.outage is None
    judged = [(label, lag) for lag in known.lags if (label := labels.get(lag.queue_name)) is not None]
    stated = [f'{label},state="{(lag.state if is_told else LagState.UNKNOWN).value}"' for label, lag in judged]
    text = "1 for the state in which the subscription is, by the rules of lag at the last poll."
    yield from _family("state", "gauge", text, stated, [1] * len(stated))
    if not is_told:  # how a depth changes, and what it needs, says nothing of a present that nobody sees
        return
    moving = [(label, lag.velocity_per_minute) for label, lag in judged if lag.velocity_per_minute is not None]
    text = "Change of the depth, with what is due later; above 0 it grows."
    values = [velocity for _, velocity in moving]
    yield from _family("velocity_messages_per_minute", "gauge", text, [label for label, _ in moving], values)
    wanted = [(label, lag.suggested_consumers) for label, lag in judged if lag.suggested_consumers is not None]
    text = "Consumers that would keep up; absent where that is not known."
    numbers = [number for _, number in wanted]
    yield from _family("suggested_consumers", "gauge", text, [label for label, _ in wanted], numbers)


def _family(name: str, kind: str, text: str, labels: Iterable[str], values: Iterable[float | str]) -> Iterator[str]:
    full = PREFIX + name
    yield f"# HELP {full} {text}\n# TYPE {full} {kind}\n"
    yield "".join([f"{full}{{{label}}} {value}\n" for label, value in zip(labels, values, strict=True)])


def _labels(state: SubscriptionState, namespace: str) -> str:
    owner = state.owner
    if owner is not None:
        namespace = owner.namespace
    name, exchange = _escaped(state.queue_name), _escaped(state.exchange)
    return f'exchange="{exchange}",namespace="{_escaped(namespace)}",subscription="{name}"'


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value


def _seconds(milliseconds: int | None) -> float | str:
    return "NaN" if milliseconds is None else milliseconds / 1000


def _age_ms(state: SubscriptionState, now_ms: int) -> int | None:
    """Not 0 if messages wait that are stranded, as in `status.lag`: since when, the broker does not tell."""
    if state.stranded and state.ready == state.in_flight == 0:
        return None
    return oldest_age_ms(state, now_ms)


def _hold_seconds(state: SubscriptionState, now_ms: int) -> float | str:
    """Not known if the clock was set meanwhile."""
    since_ms = state.oldest_hold_ms
    if since_ms is not None and since_ms <= now_ms:
        return (now_ms - since_ms) / 1000
    return 0.0 if state.in_flight == 0 else "NaN"
