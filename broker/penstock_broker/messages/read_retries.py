"""Reads of the log that fail while somebody goes through a queue: it is said now and then, and tried again."""

from __future__ import annotations

import logging
from typing import Final

from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker

__all__ = ["retry_after_ms"]

logger = logging.getLogger(__name__)

RETRY_MS: Final = 1000


def retry_after_ms(broker: Broker, queue: Queue, error: OSError, purpose: str = "") -> int:
    """After how long the queue may be read again. `purpose`: for what it was read, as " for a browser"."""
    if broker.warnings.may_warn(f"read{purpose} {queue.name}"):
        logger.error("Messages of queue %r can't be read%s, which is tried again: %s", queue.name, purpose, error)
    return RETRY_MS
