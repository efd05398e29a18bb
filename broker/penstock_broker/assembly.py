"""Puts a broker together from its recovered log: topology and backlogs, state, management node, loop.

Must not know files, signals or sockets: `main` opens the log and binds the listeners.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from functools import partial

from penstock_api.failure import Misuse
from penstock_api.settings.auto_creation import unused_queue_seconds
from penstock_broker.access.listeners import Listener
from penstock_broker.attach import close, unused_nodes
from penstock_broker.clock import SYSTEM_CLOCK, Clock
from penstock_broker.log import Log, Recovered
from penstock_broker.loop import events
from penstock_broker.loop.loop import Loop
from penstock_broker.management.node import ManagementNode
from penstock_broker.messages import expiry, paging, restore
from penstock_broker.messages.held_credit import HeldCredit
from penstock_broker.messages.memory_watch import MemoryWatch, Process
from penstock_broker.messages.storage_watch import Measure, StorageWatch
from penstock_broker.queue.queue import UNLIMITED_BYTES
from penstock_broker.settings.settings import BrokerSettings
from penstock_broker.state.broker import Broker
from penstock_broker.topology import auto_creation, documents
from penstock_broker.topology.queue_policies import QueueDefaults
from penstock_broker.topology.store import Topology
from penstock_core.reason import Reason

__all__ = ["assemble"]

logger = logging.getLogger(__name__)


def assemble(
    given: BrokerSettings,
    log: Log,
    recovered: Recovered,
    listeners: list[Listener],
    clock: Clock = SYSTEM_CLOCK,
    measure: Measure | None = None,
    *,
    process: Process | None = None,
    process_limit: int = 0,
    restored: Callable[[int, int, int], None] = lambda _done, _total, _messages: None,
) -> Loop:
    """The loop of a broker that holds what was recovered; its listeners are not bound yet.

    `measure`: the space of the volume that holds the log, now. `process`: the one in which the broker runs, which may
    have `process_limit` bytes of memory; None and 0: its size does not count. `restored` is told of how many queues, of
    how many in all, and of how many messages, they are in place. Raises `Misuse` if the settings' `delivery` names a
    destination that can't be made.
    """
    defaults = QueueDefaults(given.queue_max_bytes or UNLIMITED_BYTES, given.delivery, given.queue_overflow)
    topology = Topology(log, defaults)
    restore.restore(topology, recovered, clock.now_us(), restored, partial(paging.tail_of, log))
    refused = auto_creation.make_destinations(topology, given.delivery, clock.now_us())
    if refused is not None and refused.reason is Reason.OTHER_KIND_OF_NODE:
        # A client has made the other kind; that must not keep a broker from starting whose configuration is right.
        logger.warning("Messages can't go where the configuration's delivery says: %s", refused.description)
    elif refused is not None:
        raise Misuse(f"The configuration's delivery is wrong: {refused.description}", "Correct the address.")
    instance = restore.instance_of(recovered)
    if instance is None:
        instance = uuid.uuid4().hex
        log.topology(documents.BROKER, "instance", instance.encode())
    broker = Broker(given, log, topology, instance, process_limit)
    paging.take_over_tails(broker)
    broker.keep_time = partial(expiry.keep_time, broker)
    for each in topology.by_incarnation.values():
        if each.queue.delayed or each.queue.expiry.next_due:
            broker.clock.timers.at(0, partial(broker.keep_time, each.queue))
    broker.instance.started_us = clock.now_us()
    broker.clock.timers.at(clock.now_ms() + 1000, partial(unused_nodes.sweep_subscriptions, broker))
    broker.management = ManagementNode(broker)
    broker.serve_events = partial(events.serve, broker)
    broker.close_link = partial(close.close_link, broker)
    unused_seconds = unused_queue_seconds(given.auto_create)
    if unused_seconds is not None:
        unused_nodes.watch_queues(broker, unused_seconds)
    loop = Loop(broker, listeners, clock)
    credit = HeldCredit(broker)
    StorageWatch(broker, measure, credit).start()
    memory_watch = MemoryWatch(broker, credit, process)
    broker.look_at_memory = memory_watch.look
    memory_watch.start()
    return loop
