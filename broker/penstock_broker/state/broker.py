"""What the broker knows while it runs, as records by concern below one object.

The loop drives it; rooms above this one change it, and take as little of it as they need. One object per process;
everything that lives per connection, link or queue hangs below it and is taken apart when it ends, because reference
cycles are not collected while the broker serves.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, Protocol

from penstock_amqp.endpoint.events import AmqpError, Arrival, Event
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_amqp.frames.performatives import Attach
from penstock_api.settings.auto_creation import creation_of
from penstock_broker.access.connection import Connection
from penstock_broker.access.connection_limits import ConnectionCounts
from penstock_broker.access.container_contests import ContainerContests
from penstock_broker.access.permissions import PermissionCheck
from penstock_broker.access.rejections import Rejections
from penstock_broker.clock import TurnClock
from penstock_broker.errors import amqp_error
from penstock_broker.log import Log
from penstock_broker.queue.queue import Queue
from penstock_broker.settings.settings import BrokerSettings
from penstock_broker.state.audits import Audit
from penstock_broker.state.fan_outs import FanOut
from penstock_broker.state.interrupted_work import InterruptedWork
from penstock_broker.state.leaving_links import DeliveryReturn
from penstock_broker.state.links import Browser, Consumer, CreditHold, Producer
from penstock_broker.state.memory import Memory
from penstock_broker.state.open_transactions import Transactions
from penstock_broker.state.output_lines import OutputLines
from penstock_broker.state.overflow_episodes import OverflowEpisodes
from penstock_broker.state.paging import Paging
from penstock_broker.state.rollbacks import Rollback
from penstock_broker.state.routes import Routes
from penstock_broker.state.storage import Storage
from penstock_broker.state.sync_queue import SyncQueue
from penstock_broker.topology.store import Topology
from penstock_broker.warning_throttle import WarningThrottle
from penstock_core.identity import LinkKey
from penstock_core.memory_level import default_budget
from penstock_core.reason import Reason, Refuse

__all__ = ["Broker", "Clients", "Instance", "PendingWork"]

UNKNOWN_LIMIT: Final = 4 * 1024 * 1024 * 1024
"""Bytes of memory that a process may have whose limit is not known."""


class ManagementLinks(Protocol):
    """What other rooms ask of `management.node`, which stands above them."""

    def attach_reply_link(self, connection: Connection, link: OutLink, attach: Attach) -> None:
        """Answer the attach of a link whose source is the node."""
        ...

    def receive(self, producer: Producer, batch: list[Arrival]) -> None:
        """Take requests."""
        ...

    def flowed(self, link: OutLink) -> None:
        """Credit came for replies."""
        ...

    def finish_drain(self, link: OutLink) -> None:
        """Give the credit back of a link that drains."""
        ...

    def link_removed(self, context: object) -> None:
        """A link has ended."""
        ...

    def connection_removed(self, connection: Connection) -> None:
        """A connection is taken apart: nothing is sent on it any more."""
        ...


class Instance:
    """Who this broker is: the id was made with the data folder, so another id means an empty broker."""

    __slots__ = ("container_id", "id", "started_us")

    def __init__(self, instance_id: str) -> None:
        self.id = instance_id
        self.container_id = f"penstock-{instance_id}"
        """What our Open says."""
        self.started_us = time.time_ns() // 1000
        """Microseconds since the epoch."""


class Clients:
    """The connections, and what is known of their clients."""

    __slots__ = (
        "connections",
        "containers",
        "contests",
        "counts",
        "live_links",
        "login_lines",
        "next_connection",
        "rejections",
    )

    def __init__(self, settings: BrokerSettings, warnings: WarningThrottle, login_lines: WarningThrottle) -> None:
        self.connections: dict[int, Connection] = {}
        """By number."""
        self.next_connection = 0
        """The highest number that a connection got."""
        self.containers: dict[str, list[Connection]] = {}
        """Open connections by container-id."""
        self.live_links: dict[LinkKey, Consumer] = {}
        """Links that consume now, by (container, link name)."""
        self.contests = ContainerContests()
        self.counts = ConnectionCounts(settings.limits)
        self.rejections = Rejections(warnings)
        self.login_lines = login_lines
        """Bounds the lines about logins that succeeded."""


class PendingWork:
    """What this turn of the loop has still to do, or the next ones have."""

    __slots__ = (
        "browsing",
        "delivered",
        "delivery_returns",
        "dirty",
        "draining",
        "dropping",
        "fan_outs",
        "held",
        "output_lines",
        "ready",
        "rollbacks",
        "streaming",
    )

    def __init__(self) -> None:
        self.ready: deque[Queue] = deque()
        """Queues that may have something to send."""
        self.output_lines = OutputLines()
        """Queues that have something to send, and wait for a connection that has got its part of a turn."""
        self.fan_outs: deque[FanOut] = deque()
        """Messages that are on their way into very many queues; none is over."""
        self.delivery_returns: deque[DeliveryReturn] = deque()
        """Connections with links that have ended and whose deliveries are on their way back; none is over."""
        self.rollbacks: list[Rollback] = []
        """Transactions of which very much is on its way back; none is over."""
        self.browsing: deque[Browser] = deque()
        """Browsers that may get more copies."""
        self.dirty: list[Connection] = []
        """Connections to flush at the end of the turn."""
        self.streaming: OrderedDict[Connection, None] = OrderedDict()
        """Connections that are sending long messages in pieces and may go on."""
        self.held: list[Connection] = []
        """Connections that are not read until the log has synced what they brought."""
        self.draining: list[Consumer] = []
        """Consumers that want their credit back once nothing is left to send."""
        self.dropping: set[Queue] = set()
        """Queues beyond their limits by very much, which drop some messages in each turn."""
        self.delivered: set[Queue] = set()
        """Logged queues that sent new messages in this turn: the log notes up to which number."""

    def touch(self, connection: Connection) -> None:
        """There is something to send on this connection."""
        if not connection.is_dirty:
            connection.is_dirty = True
            self.dirty.append(connection)

    def schedule(self, queue: Queue) -> None:
        """Look at the queue in this turn: it may have something to send."""
        if not queue.is_scheduled:
            queue.is_scheduled = True
            self.ready.append(queue)

    def schedule_for(self, queue: Queue, connection: Connection) -> None:
        """The same when it was its consumer on `connection` that may get more now: not while it waits for that one."""
        if queue.awaits_output_of is not connection:
            self.schedule(queue)

    def visit(self, called: Queue | None) -> None:
        """Look at the queue that `output_lines` has called, if it has."""
        if called is not None:
            self.schedule(called)


class TemporaryNodes:
    """Temporary queues and topics whose end does not depend on the link that made them alone."""

    __slots__ = ("asks_for_review", "awaiting", "is_under_review", "lingering", "to_review")

    def __init__(self) -> None:
        self.lingering: set[str] = set()
        """Their names."""
        self.awaiting: set[str] = set()
        """Names of those, of any policy, that wait for the link that made them to come back."""
        self.is_under_review = False
        """A timer is set to look at them again."""
        self.to_review: deque[str] = deque()
        """Those that the review which is going on still has to look at."""
        self.asks_for_review = False
        """A link has ended since that review began."""


class Broker:
    """The records of one broker. One per process."""

    def __init__(
        self, settings: BrokerSettings, log: Log, topology: Topology, instance_id: str, process_limit: int = 0
    ) -> None:
        """`process_limit`: bytes of memory that the process may have; 0: not known."""
        self.settings = settings
        self.log = log
        self.topology = topology
        self.instance = Instance(instance_id)
        self.clock = TurnClock()
        self.warnings = WarningThrottle(lambda: self.clock.now_ms)
        self.clients = Clients(
            settings, self.warnings, WarningThrottle(lambda: self.clock.now_ms, logging.INFO, "logins")
        )
        self.permissions = PermissionCheck(settings)
        self.overflow = OverflowEpisodes(self.clock, self.warnings)
        self.work = PendingWork()
        self.sync = SyncQueue(log, topology)
        self.routes = Routes(log)
        self.storage = Storage()
        self.credit_hold = CreditHold()
        self.memory = Memory(settings.memory.max_bytes or default_budget(process_limit or UNKNOWN_LIMIT), process_limit)
        self.temporary = TemporaryNodes()
        self.paging = Paging(self.memory.budget)
        self.transactions = Transactions(
            settings.transactions.limits(settings.log.segment_bytes, settings.largest_message_bytes),
            topology.disposal,
        )
        self.creation = creation_of(settings.auto_create)
        """What clients may make by naming it."""
        self.stranded: dict[Queue, None] = {}
        """Queues with messages that could not be sent on, see `messages.dead_letters`."""
        self.retries_stranded = False
        """A timer is set that tries them again, or they are being tried."""
        self.audits: dict[str, Audit] = {}
        """Audits that are on, or whose records may still be fetched, by the name of the queue."""
        self.is_stopping = False
        self.interrupted_work = InterruptedWork()
        """What was in hand when an exception came."""
        self.management: ManagementLinks
        """The management node. This and those below stand in rooms above; `assembly` fills them in."""
        self.serve_events: Callable[[Connection, list[Event]], None]
        """`loop.events.serve` of this broker."""
        self.fail_connection: Callable[[Connection], None]
        """`fail` of the loop's connections: an exception is being handled that came while this one was served."""
        self.close_link: Callable[[Connection, InLink | OutLink, AmqpError], None]
        """`attach.close.close_link` of this broker, for timers."""
        self.look_at_memory: Callable[[], None]
        """`look` of this broker's `messages.memory_watch`."""
        self.keep_time: Callable[[Queue], None]
        """`messages.expiry.keep_time` of this broker, for timers."""

    def all_connections(self) -> list[Connection]:
        """The connections, and those that are gone but for deliveries that are on their way back."""
        known = self.clients.connections
        gone = [each.connection for each in self.work.delivery_returns if each.connection.number not in known]
        return [*known.values(), *gone]

    @property
    def is_behind_disk(self) -> bool:
        """More of large messages is written than may wait for a sync."""
        return self.log.failed is None and self.log.unsynced_body_bytes > self.settings.log.max_unsynced_bytes

    def hold_if_behind(self, connection: Connection) -> None:
        """The connection brought a piece of a large message: nothing more is read from it until the disk keeps up."""
        if self.is_behind_disk:
            self.hold(connection)

    def hold(self, connection: Connection) -> None:
        """Nothing more is read from the connection until the log keeps up: see `must_wait`."""
        if not connection.reading.is_held:
            connection.reading.is_held = True
            self.work.held.append(connection)

    @property
    def must_wait(self) -> bool:
        """Connections that were held are not read yet."""
        return self.is_behind_disk or self.log.makes_room()

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
