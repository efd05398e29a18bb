"""The figures of one subscription for an autoscaler. Pure. Source: docs/reference/observer.md, "Scale"."""

from __future__ import annotations

import re
from typing import Final

from penstock_api.lag_result import LagState, SubscriptionLag
from penstock_api.observer_api import PER_CONSUMER, Scale
from penstock_api.state_documents import SubscriptionState
from penstock_lag_rules.capacity import consumer_cap
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer.broker_clock import oldest_age_ms

__all__ = ["BadQuestion", "per_consumer", "scale_of"]

THRESHOLDS: Final = Thresholds()
MOST: Final = 10**9


class BadQuestion(Exception):
    """The query can't be answered; the message is a sentence without its full stop."""


def per_consumer(text: str | None) -> int | None:
    """Messages for each consumer from the query. Raises BadQuestion."""
    if text is None:
        return None
    if re.fullmatch("[0-9]{1,10}", text) is None or not 1 <= int(text) <= MOST:
        raise BadQuestion(f"{PER_CONSUMER} is the number of messages for each consumer, 1 to {MOST}, not {text[:20]!r}")
    return int(text)


def scale_of(state: SubscriptionState, lag: SubscriptionLag | None, now_ms: int, messages: int | None) -> Scale:
    """From the last poll, and how the subscription stood there. `messages`: for each consumer, if that is asked."""
    age_ms = oldest_age_ms(state, now_ms)
    stands = LagState.UNKNOWN if lag is None else lag.state
    suggested = None if lag is None else lag.suggested_consumers
    cap = consumer_cap(stands, suggested, state.consumers, THRESHOLDS)
    waits = state.ready + state.in_flight
    return Scale(
        queue_name=state.queue_name,
        lag=waits,
        ready=state.ready,
        in_flight=state.in_flight,
        oldest_seconds=None if age_ms is None else age_ms // 1000,
        consumers=state.consumers,
        consumer_cap=cap,
        suggested_consumers=suggested,
        capped_lag=None if messages is None else min(waits, cap * messages),
    )
