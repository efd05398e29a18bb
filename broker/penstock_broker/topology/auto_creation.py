"""Makes what is named for the first time: queues and topic exchanges by clients, where the settings allow it (`--dev`),
and the queues that policies name as destinations.
"""

from __future__ import annotations

import logging
from typing import assert_never

from penstock_api.management import DeliveryPolicy
from penstock_broker.queue.queue import Queue
from penstock_broker.topology.records import Exchange, PointToPointQueue, new_router
from penstock_broker.topology.store import Topology
from penstock_core.address import CreateNode, NodeKind, QueueAddress
from penstock_core.destinations import FoundDestination, MakeQueue, MissingDestination, decide_destination
from penstock_core.reason import Refuse
from penstock_core.terms import ExchangeType

__all__ = ["auto_create", "make_destinations"]

logger = logging.getLogger(__name__)


def auto_create(topology: Topology, wanted: CreateNode, now_us: int) -> None:
    """Make it, durable, with default policies."""
    match wanted.kind:
        case NodeKind.TOPIC:
            topology.put_exchange(
                Exchange(
                    name=wanted.name,
                    type=ExchangeType.TOPIC,
                    router=new_router(ExchangeType.TOPIC),
                    made_by_name=True,
                )
            )
        case NodeKind.QUEUE:
            topology.make_queue(wanted.name, durable=True, now_us=now_us, made_by_name=True)
        case _:
            assert_never(wanted.kind)
    logger.warning("Made %s %r, because a client named it and autoCreate is on", wanted.kind.value, wanted.name)


def make_destinations(topology: Topology, delivery: DeliveryPolicy, now_us: int) -> Refuse | None:
    """Make the queues, durable ones, that a policy names and that nothing has; a refusal makes none.

    They get policies of their own, not the broker's defaults: a dead letter is not dead-lettered again.
    """
    wanted: list[str] = []
    for address in (delivery.dead_letter, delivery.expiry):
        if address is None:
            continue
        match decide_destination(address, topology):
            case FoundDestination(QueueAddress(name)) if topology.queues[name].made_by_name:
                topology.queues[name].made_by_name = False  # it is needed from now on, whoever uses it
                topology.put_queue(topology.queues[name])
            case FoundDestination() | MissingDestination():
                pass
            case MakeQueue(name):
                wanted.append(name)
            case Refuse() as refused:
                return refused
    for name in dict.fromkeys(wanted):
        queue = Queue(name, topology.next_incarnation(), is_logged=True, now_us=now_us)
        topology.put_queue(PointToPointQueue(name=name, durable=True, queue=queue, delivery=DeliveryPolicy()))
        logger.info("Made queue %r, because a policy sends messages there", name)
    return None
