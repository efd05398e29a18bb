"""Deletes queues that auto-creation made and that nobody uses any more, where the settings ask for it.

A queue is looked at a few times within its time: it goes once it was found empty and without links in each look for so
long. Looks are sliced, so that ten thousand queues don't hold up a turn. Source: issue "all of JMS", auto-creation
policy.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock_broker.links import ending
from penstock_broker.state.broker import Broker
from penstock_broker.topology.records import PointToPoint
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import NodeKind

__all__ = ["watch"]

logger = logging.getLogger(__name__)

LOOKS: Final = 4
"""How often a queue is looked at within the time after which it goes."""
LONGEST_MS: Final = 60_000
"""Between two looks."""
PER_SLICE: Final = 100


def watch(broker: Broker, seconds: int) -> None:
    """Look from now on; a queue goes after `seconds` without use, or a little later."""
    _look(broker, seconds * 1000, [])


def _look(broker: Broker, unused_ms: int, names: list[str]) -> None:
    """Look at the next slice of `names`, or pause and begin again."""
    for name in names[:PER_SLICE]:
        node = broker.topology.queues.get(name)
        if node is not None and node.made_by_name:
            _look_at(broker, node, unused_ms)
    rest = names[PER_SLICE:]
    if rest:
        broker.after(0, lambda: _look(broker, unused_ms, rest))
    else:
        pause_ms = min(unused_ms // LOOKS, LONGEST_MS)
        broker.after(pause_ms, lambda: _look(broker, unused_ms, list(broker.topology.made_by_name[NodeKind.QUEUE])))


def _look_at(broker: Broker, node: PointToPoint, unused_ms: int) -> None:
    if broker.log.failed is not None:
        return  # nothing lasting changes any more
    if node.producers or node.queue.consumers or node.queue.browsers or node.queue.depth:
        node.idle_since_ms = None
    elif node.idle_since_ms is None:
        node.idle_since_ms = broker.now_ms
    elif broker.now_ms - node.idle_since_ms >= unused_ms:
        told = Refuse(Reason.NODE_DELETED, f"The queue {node.name!r} was empty and unused for {unused_ms // 1000} s.")
        ending.end_queue(broker, node, told)
        logger.info("Deleted queue %r, which was made by its name and is not used", node.name)
