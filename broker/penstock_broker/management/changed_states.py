"""QUERY with `statesSince`: the states of the subscriptions that changed since the reply whose token the request names.

Queues that a resource has declared are among them, as subscriptions without an exchange.

A token is the identity of this broker's life and a version of `topology.state_changes`. One that is not of this life,
or that is too old, is answered with all states. So is the empty one, which a reader sends first.

A reader that is told that more is left asks on until nothing is: up to the last change before its first request, which
the tokens in between name. What changes meanwhile is for its next poll. Else a poll of more busy subscriptions than one
reply has would never end.

Some figures depend on other links than those of the queue: which credit is usable changes with the socket of a
connection. So a queue that has ready messages and consumers counts as changed whenever its state was told; a delivery
needs both, which is why `dispatch` notes none.

Source: docs/reference/management.md, "States that changed".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Value
from penstock_api import management
from penstock_api.management import StatusCode
from penstock_broker.management import entity_states
from penstock_broker.management.encoded_states import ATTRIBUTES, encoded_state
from penstock_broker.management.entity_states import queue_state_as_of_a_subscription, subscription_state
from penstock_broker.management.in_flight import InFlight, InFlightSearch, add_waiting, connections_of
from penstock_broker.management.replies import ManagementReply, query_body
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.topology.records import PointToPointQueue, Subscription
from penstock_broker.topology.state_changes import Changes

__all__ = ["NAMED_PER_STEP", "NUMBERED_PER_STEP", "ChangedStatesTask", "begin"]

NUMBERED_PER_STEP: Final = 1000
"""Subscriptions that changed and get their versions in one step: about a millisecond."""

NAMED_PER_STEP: Final = 200
"""Subscriptions that are looked up in one step: about a millisecond."""


@dataclass(slots=True)
class ChangedStatesTask:
    """Such a QUERY in progress: each `step` encodes some states, until one returns the reply."""

    broker: Broker
    named: tuple[int, int] | None
    """The versions that the token names; None: it is none of this life."""
    attributes: list[str]
    most: int
    """States in one reply."""
    generation: int
    """Of what changed before the request: it gets its versions in the first steps."""
    changes: Changes | None = None
    """Known once that is done."""
    until: int = 0
    """The version up to which the reader is told in this reply and those that follow because of `left`."""
    is_whole: bool = False
    names: Iterator[str] = field(default_factory=lambda: iter(()))
    """Of the subscriptions that changed; the next steps look them up."""
    held: InFlight = field(default_factory=dict[Queue, tuple[int, int]])
    chosen: list[Subscription | PointToPointQueue] = field(default_factory=list[Subscription | PointToPointQueue])
    search: InFlightSearch | None = None
    """For the oldest deliveries, once all subscriptions are looked up."""
    subscriptions: Iterator[Subscription | PointToPointQueue] = field(default_factory=lambda: iter(()))
    encoded: list[bytes] = field(default_factory=list[bytes])

    def step(self, count: int) -> ManagementReply | None:
        """Prepare, or encode up to `count` states more; the reply once all are encoded."""
        if not self.prepare():
            return None
        for _ in range(count):
            row = self.next_row()
            if row is None:
                return self._reply()
            self.encoded.append(row)
        return None

    def prepare(self) -> bool:
        """Find what changed, look it up, then look at deliveries in flight: the next slice of that. True if nothing is
        left.
        """
        if self.changes is None:
            self.changes = self._find()
            return False
        if self.search is None:
            names = list(islice(self.names, NAMED_PER_STEP))
            found = [each for each in map(self.broker.topology.watched, names) if each is not None]
            add_waiting(self.held, (each.queue for each in found), self.broker.clock.now_us)
            self.chosen += found
            if len(names) < NAMED_PER_STEP:
                queues = [each.queue for each in self.chosen if each.queue.in_flight]
                self.search = InFlightSearch(connections_of(self.broker, queues), self.held)
                self.subscriptions = iter(self.chosen)
            return False
        return self.search.step()

    def _find(self) -> Changes | None:
        """What changed since the reply that had the token; None if more steps are needed before that is known."""
        record = self.broker.topology.state_changes
        version, until = self.named or (0, 0)
        self.is_whole = self.named is None or not record.knows(version)
        if self.is_whole:
            version = until = 0
        if not until and not record.number(self.generation, NUMBERED_PER_STEP):
            return None
        self.until = until or record.version
        changes = record.since(version, self.most, self.until)
        self.names = iter(changes.states)
        return changes

    def next_row(self) -> bytes | None:
        """As `next_state`, encoded: the values of `attributes`."""
        record = self._next()
        if record is None:
            return None
        if self.attributes == ATTRIBUTES and isinstance(record, Subscription):
            return encoded_state(record, self.held)
        state = self._state(record)
        return encode([state.get(each) for each in self.attributes])

    def next_state(self) -> entity_states.StateDocument | None:
        """The state of the next subscription that is still there, as it is now; None after the last."""
        record = self._next()
        return None if record is None else self._state(record)

    def _state(self, record: Subscription | PointToPointQueue) -> entity_states.StateDocument:
        if isinstance(record, Subscription):
            return subscription_state(record, self.held)
        return queue_state_as_of_a_subscription(record, self.held)

    def _next(self) -> Subscription | PointToPointQueue | None:
        topology = self.broker.topology
        while not self.prepare():
            pass  # only if nobody took the steps
        for subscription in self.subscriptions:
            if not topology.is_current(subscription.queue):
                continue  # it has ended since the first step: the next request is told so
            queue = subscription.queue
            if queue.waiting and queue.links.consumers:
                queue.note_change()
            return subscription
        return None

    def _reply(self) -> ManagementReply:
        changes, topology = self.changes, self.broker.topology
        assert changes is not None, "the last step has come"
        removed: list[Value] = [] if self.is_whole else list(changes.removed)
        return ManagementReply(
            status=int(StatusCode.OK),
            description="OK",
            properties={
                management.REVISION: topology.revision,
                management.TOTAL: len(topology.subscriptions),
                management.STATES_TOKEN: _token(self.broker, changes, self.until),
                management.IS_WHOLE: self.is_whole,
                management.LEFT: changes.left,
                management.NOW_MS: self.broker.clock.now_us // 1000,
            },
            encoded_body=query_body(self.attributes, self.encoded, {management.REMOVED: removed}),
        )


def begin(broker: Broker, token: str, attributes: list[str], most: int) -> ChangedStatesTask:
    """Tell what changed since the reply that had this token; `most`: states in one reply."""
    generation = broker.topology.state_changes.generation
    return ChangedStatesTask(broker, _versions(broker, token), attributes, max(most, 1), generation)


def _life(broker: Broker) -> str:
    return f"{broker.instance.id}.{broker.log.epoch}."


def _token(broker: Broker, changes: Changes, until: int) -> str:
    return f"{_life(broker)}{changes.version}" + (f"-{until}" if changes.left else "")


def _versions(broker: Broker, token: str) -> tuple[int, int] | None:
    """The version in a token of this broker's life, and the one up to which its reader is still to be told, or 0."""
    life = _life(broker)
    version, _, until = token.removeprefix(life).partition("-")
    if not token.startswith(life) or not all(each.isascii() and each.isdigit() for each in (version, until or "0")):
        return None
    return int(version), int(until or 0)
