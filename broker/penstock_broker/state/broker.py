"""The broker's state in one place, and the few moves that several modules share.

`loop` drives it; `serving` and its neighbours change it. One object per process; everything that lives per connection,
link or queue hangs below it and is taken apart when it ends, because cycles are not collected while the broker serves.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from penstock_amqp.endpoint.events import AmqpError, Arrival, Event
from penstock_amqp.endpoint.links import OutLink
from penstock_amqp.frames.performatives import Attach
from penstock_broker.connections.connection import Connection
from penstock_broker.connections.contests import Contests
from penstock_broker.connections.crowding import Crowd
from penstock_broker.connections.stranger_warnings import Warnings
from penstock_broker.connections.turning_away import TurnedAway
from penstock_broker.errors import amqp_error
from penstock_broker.log import Log
from penstock_broker.queues.queue import Queue
from penstock_broker.settings.creation import creation_of
from penstock_broker.settings.settings import Settings
from penstock_broker.state.journal import Journal
from penstock_broker.state.links import Browser, Consumer, Producer
from penstock_broker.state.permitting import Permitting
from penstock_broker.state.rarely import Rarely
from penstock_broker.state.routes import ExchangeTarget, QueueTarget, Route
from penstock_broker.state.timing import Timers
from penstock_broker.state.transactions import Transactions
from penstock_broker.topology.store import Topology
from penstock_core.identity import LinkKey
from penstock_core.reason import Reason, Refuse

__all__ = ["Broker"]


class ManagementLinks(Protocol):
    """What the path asks of `management.node`, which knows this module; named here to keep it one way."""

    def attach_answers(self, connection: Connection, link: OutLink, attach: Attach) -> None:
        """Answer the attach of a link whose source is the node."""
        ...

    def receive(self, producer: Producer, batch: list[Arrival]) -> None:
        """Take requests."""
        ...

    def flowed(self, link: OutLink) -> None:
        """Credit came for answers."""
        ...

    def left(self, context: object) -> None:
        """A link is gone."""
        ...


class Broker:
    """What the broker knows while it runs."""

    def __init__(self, settings: Settings, log: Log, topology: Topology, instance_id: str) -> None:
        self.settings = settings
        self.log = log
        self.journal = Journal(log)
        self.topology = topology
        self.instance_id = instance_id
        """Made with the data folder: another one means an empty broker."""
        self.container_id = f"penstock-{instance_id}"
        self.started_us = time.time_ns() // 1000
        self.management: ManagementLinks
        self.connections: dict[int, Connection] = {}
        self.containers: dict[str, list[Connection]] = {}
        """Open connections by container-id."""
        self.contests = Contests()
        self.serve_events: Callable[[Connection, list[Event]], None]
        """`serving.handle` of this broker, for modules that `serving` itself needs."""
        self.keep_time: Callable[[Queue], None]
        """`expiring.keep_time` of this broker, for those who set timers for it."""
        self.live: dict[LinkKey, Consumer] = {}
        """Links that consume now, by (container, link name)."""
        self.ready: deque[Queue] = deque()
        """Queues that may have something to send."""
        self.browsing: deque[Browser] = deque()
        self.dirty: list[Connection] = []
        """Connections to flush at the end of the turn."""
        self.streaming: list[Connection] = []
        """Connections that are sending messages in pieces and may get on."""
        self.held: list[Connection] = []
        """Connections that are not read until the log has synced what they brought."""
        self.draining: list[Consumer] = []
        """Consumers that want their credit back once nothing is left to send."""
        self.creation = creation_of(settings.auto_create)
        self.permitting = Permitting(settings)
        self.crowd = Crowd(settings.limits)
        self.warnings = Warnings(lambda: self.now_ms)
        self.turned_away = TurnedAway()
        self.timers = Timers()
        self.lingering: set[str] = set()
        """Temporary nodes that do not simply go with the link that made them."""
        self.reviews_lingering = False
        self.transactions = Transactions(
            settings.transactions.limits(settings.log.segment_bytes, settings.largest_message_bytes)
        )
        self.marked: set[Queue] = set()
        """Logged queues whose delivered-up-to mark rose in this turn."""
        self.now_us = 0
        """Time of this turn, microseconds since the epoch."""
        self.now_ms = 0
        """Monotonic time of this turn, milliseconds."""
        self.topology_sequence = 0
        """The last block that describes a change of the topology."""
        self.stranding: dict[Queue, None] = {}
        """Queues with stranded messages, see `condemning`."""
        self.rarely = Rarely()
        self.targets: dict[str, ExchangeTarget | QueueTarget] = {}
        """Where addresses of policies lead, see `depositing`."""
        self.is_stopping = False
        self.turns = 0
        self.next_connection = 0
        self._routes: dict[tuple[Queue, ...], Route] = {}

    def touch(self, connection: Connection) -> None:
        """There is something to send on this connection."""
        if not connection.is_dirty:
            connection.is_dirty = True
            self.dirty.append(connection)

    @property
    def is_behind_disk(self) -> bool:
        """More of large messages is written than may wait for a sync."""
        return self.log.failed is None and self.log.unsynced_body_bytes > self.settings.log.max_unsynced_bytes

    def hold_if_behind(self, connection: Connection) -> None:
        """The connection brought a piece of a large message: nothing more is read from it until the disk keeps up."""
        if not connection.is_held and self.is_behind_disk:
            connection.is_held = True
            self.held.append(connection)

    def schedule(self, queue: Queue) -> None:
        """Have a look at the queue in this turn: it may have something to send."""
        if not queue.is_scheduled:
            queue.is_scheduled = True
            self.ready.append(queue)

    def when_durable(self, connection: Connection, action: Callable[[], None]) -> None:
        """Run `action` now, or, if a change of the topology is not synced yet, once it is.

        Also a change of an earlier turn, or of another client: a reply says that what it names will be there.
        """
        if self.topology.has_unsynced or self.log.synced < self.topology_sequence:
            self.journal.after_sync(connection, action)
        else:
            action()

    def after(self, milliseconds: int, action: Callable[[], None]) -> None:
        """Run `action` later."""
        self.timers.at(self.now_ms + milliseconds, action)

    def storage_refuse(self) -> Refuse:
        """Why durable work is not taken now."""
        if self.log.failed is not None:
            cause = f"The log has failed ({self.log.failed}); restart the broker once its volume is sound."
        else:
            cause = "The broker's volume is full; consume messages or enlarge it."
        return Refuse(Reason.STORAGE_FULL, cause)

    def storage_refusal(self) -> AmqpError:
        """The same, to be sent."""
        return amqp_error(self.storage_refuse())

    def route_of(self, reached: tuple[Queue, ...]) -> Route:
        """The route of exactly these queues, for messages that filters kept from some."""
        if len(self._routes) > 1024:
            self._routes.clear()
        route = self._routes.get(reached)
        if route is None:
            route = self._routes[reached] = Route(reached, self.log.route_set)
        return route

    def forget_routes(self) -> None:
        """Bindings or policies have changed."""
        self._routes.clear()
