"""Brokers that have no memory for backlogs, so that each queue which holds something is paged."""

from __future__ import annotations

from penstock_broker.messages import paging
from penstock_broker.state.broker import Broker

__all__ = ["tighten"]


def tighten(broker: Broker, window: int = 2) -> None:
    """Page each queue that has something in the log now, down to so many messages; and later ones when it looks."""
    limits = broker.paging
    limits.all_bytes = 0
    limits.least_window_bytes = 1
    limits.least_window_messages = window
    limits.rate(1, 1)
    limits.unasked = []
    paging.page_deep_queues(broker)
