"""Makes queues and topic exchanges that clients name for the first time, where the settings allow it (`--dev`)."""

from __future__ import annotations

import logging
from typing import assert_never

from penstock_broker.topology.records import Exchange
from penstock_broker.topology.store import Topology
from penstock_core.address import AutoCreate, NodeKind
from penstock_core.routing import Router
from penstock_core.terms import ExchangeType

__all__ = ["auto_create"]

logger = logging.getLogger(__name__)


def auto_create(topology: Topology, wanted: AutoCreate, now_us: int) -> None:
    """Make it, durable, with default policies."""
    match wanted.kind:
        case NodeKind.TOPIC:
            topology.put_exchange(
                Exchange(name=wanted.name, type=ExchangeType.TOPIC, router=Router(ExchangeType.TOPIC))
            )
        case NodeKind.QUEUE:
            topology.make_queue(wanted.name, durable=True, now_us=now_us)
        case _:
            assert_never(wanted.kind)
    logger.warning("Made %s %r, because a client named it and autoCreate is on", wanted.kind.value, wanted.name)
