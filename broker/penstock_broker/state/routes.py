"""Where the messages of a producer go: the queues that one routing result reaches, prepared for the forwarding path.

A route is made when the first message needs it, and holds until the exchange's bindings or a queue's policies change.
Source: docs/decisions/018-addresses.md and 036-what-is-durable.md.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias
from weakref import WeakValueDictionary

from penstock_amqp.messages.fields import Field, application_properties, encoded_keys, properties_field
from penstock_broker.queue.admission import AdmissionSet
from penstock_broker.queue.queue import UNLIMITED_BYTES, Queue
from penstock_broker.topology.records import Exchange, PointToPointQueue
from penstock_core.header_routing import HeadersRouter
from penstock_core.terms import ExchangeType, Overflow

__all__ = [
    "Destination",
    "ExchangeTarget",
    "ManagementTarget",
    "QueueTarget",
    "RelayTarget",
    "Route",
    "RouteMemo",
    "RouteSets",
    "Routes",
    "reached",
]

logger = logging.getLogger(__name__)

MOST_TOLD: Final = 20
"""Queues that a line about a route names."""


class RouteSets(Protocol):
    """The log, as far as routes know it."""

    def route_set(self, incarnations: tuple[int, ...]) -> int:
        """The number for a set of incarnations."""
        ...

    def release_route_set(self, number: int) -> None:
        """Give the number back."""
        ...


MOST_ROUTES: Final = 1024
"""Routes of one memo's generation."""

MOST_QUEUES: Final = 65_536
"""Queues of all routes of a generation together."""


class Route:
    """One set of queues that messages reach together."""

    __slots__ = (
        "_route_sets",
        "_selection",
        "_volatile_set",
        "is_alike",
        "is_plain",
        "kept_set",
        "logged_set",
        "open_queues",
        "picky",
        "queues",
        "rejecting",
    )

    def __init__(self, queues: tuple[Queue, ...], route_sets: RouteSets | None) -> None:
        self.queues = queues
        picky, rejecting, logged, kept = list[Queue](), list[Queue](), list[int](), list[int]()
        is_bounded = False
        reject = Overflow.REJECT
        for queue in queues:  # once, and all of it in one turn: there may be ten thousand
            policy = queue.policy
            if queue.admits is not None:
                picky.append(queue)
            if queue.is_logged:
                logged.append(queue.incarnation)
                if policy.keeps_all:
                    kept.append(queue.incarnation)
            if policy.max_ttl_us:
                is_bounded = True
            if (policy.max_bytes < UNLIMITED_BYTES or policy.max_messages) and policy.overflow is reject:
                rejecting.append(queue)
        self.picky = tuple(picky)
        """Queues that take some messages only."""
        self.open_queues = tuple(queue for queue in queues if queue.admits is None) if picky else queues
        self.rejecting = tuple(rejecting)
        self._route_sets = route_sets
        self.logged_set = route_sets.route_set(tuple(logged)) if logged and route_sets else 0
        """Route set of the queues that log durable messages; 0 if there is none."""
        self.kept_set = route_sets.route_set(tuple(kept)) if kept and route_sets else 0
        """Route set of the queues that log messages sent as not durable as well; 0 if there is none."""
        self._volatile_set = 0
        self.is_plain = not picky and not rejecting and not is_bounded
        """Every message goes to every queue, nothing is asked."""
        self.is_alike = len(logged) in (0, len(queues)) and len(kept) in (0, len(logged))
        """All of the queues log the same messages."""
        self._selection: AdmissionSet[Queue] | None = None

    def __del__(self) -> None:
        """With the last reference to a route goes its use of the log's route sets: no put will name them for it."""
        route_sets: RouteSets | None = getattr(self, "_route_sets", None)  # it may never have been complete
        if route_sets is not None:
            for number in (getattr(self, each, 0) for each in ("logged_set", "kept_set", "_volatile_set")):
                if number:
                    route_sets.release_route_set(number)

    @property
    def volatile_set(self) -> int:
        """Route set of all the queues, for messages that end with the process. Made when first needed."""
        if not self._volatile_set and self._route_sets is not None:
            self._volatile_set = self._route_sets.route_set(tuple(queue.incarnation for queue in self.queues))
        return self._volatile_set

    @property
    def selection(self) -> AdmissionSet[Queue]:
        """Asks the queues that take some messages only. Made when first needed: most routes have no such queue."""
        if self._selection is None:
            asked = [(queue, queue.admits) for queue in self.picky]
            self._selection = AdmissionSet([(queue, admits) for queue, admits in asked if admits is not None])
        return self._selection


class RouteMemo:
    """Routes by the queues that they reach: two generations, so that what is asked for again stays (a cheap stand-in
    for LRU). With twenty selectors a million combinations may come, and a route may have ten thousand queues: a
    generation ends by its routes or by their queues.
    """

    __slots__ = ("_old", "_queues", "young")

    def __init__(self) -> None:
        self.young: dict[tuple[Queue, ...], Route] = {}
        """What was asked for last; what is not here may be found by `route`."""
        self._old: dict[tuple[Queue, ...], Route] = {}
        self._queues = 0

    def __len__(self) -> int:
        return len(self.young) + len(self._old)

    def route(self, queues: tuple[Queue, ...], route_sets: RouteSets | None) -> Route:
        """The route of exactly these queues."""
        route = self.young.get(queues)
        if route is None:
            if len(self.young) >= MOST_ROUTES or self._queues >= MOST_QUEUES:
                self._old, self.young, self._queues = self.young, {}, 0
            route = self._old.pop(queues, None) or Route(queues, route_sets)
            self.young[queues] = route
            self._queues += len(queues)
        return route

    def forget(self) -> None:
        """Bindings or policies have changed."""
        self.young, self._old, self._queues = {}, {}, 0


@dataclass(slots=True, eq=False, weakref_slot=True)
class ExchangeTarget:
    """An exchange, and the routing key if the address fixes one; else each message's subject is the key."""

    exchange: Exchange
    key: str | None
    version: int = -1
    """The exchange's version for which the fields below hold."""
    constant: Route | None = None
    """The route of every message, if neither key nor properties need looking at."""
    headers: dict[bytes, str] | None = None
    """The properties that a Headers exchange routes by, encoded; None for the other types."""
    routes: RouteMemo = field(default_factory=RouteMemo)

    def refresh(self, route_sets: RouteSets | None) -> None:
        """Prepare for the exchange's present bindings."""
        exchange, router = self.exchange, self.exchange.router
        self.version = exchange.version
        logger.debug("The bindings of exchange %r have changed: its routes with key %r are made anew", exchange.name,
                     self.key)  # fmt: skip
        self.routes.forget()
        self.constant = None
        if isinstance(router, HeadersRouter):
            self.headers = encoded_keys(router.names)
            if not router.names:
                self.constant = Route(router.handles, route_sets)
        elif self.key is not None:
            self.constant = Route(router.route(self.key), route_sets)
        elif not router.needs_key:
            self.constant = Route(router.handles, route_sets)
        elif exchange.type is not ExchangeType.TOPIC and not router.handles:
            self.constant = Route((), route_sets)

    def route(self, data: bytes, start: int, route_sets: RouteSets | None) -> Route:
        """The route of a message whose sections begin at `start`. Raises DecodeError."""
        queues = reached(self.exchange, self.key, data, start, self.headers)
        found = self.routes.young.get(queues)
        if found is None:
            found = self.routes.route(queues, route_sets)
            if logger.isEnabledFor(logging.DEBUG):
                told = [queue.name for queue in queues[:MOST_TOLD]]
                logger.debug("A route of exchange %r: %d queues, %s", self.exchange.name, len(queues), told)
        return found


def reached(
    exchange: Exchange, key: str | None, data: bytes, start: int, headers: dict[bytes, str] | None = None
) -> tuple[Queue, ...]:
    """The queues that a message reaches on an exchange: by `key`, else by its subject, or by its properties.

    `headers`: the names of a Headers exchange's properties as `encoded_keys` made them, if the caller keeps them.
    Raises DecodeError.
    """
    router = exchange.router
    if isinstance(router, HeadersRouter):
        wanted = encoded_keys(router.names) if headers is None else headers
        return router.route(application_properties(data, start, wanted) if wanted else {})
    if key is None:
        subject = properties_field(data, start, Field.SUBJECT)
        key = subject if isinstance(subject, str) else ""
    return router.route(key)


@dataclass(slots=True, eq=False)
class QueueTarget:
    """A point-to-point queue."""

    node: PointToPointQueue
    version: int = -1
    constant: Route | None = None

    def refresh(self, route_sets: RouteSets | None) -> None:
        """Prepare for the queue's present policies."""
        self.version = self.node.revision
        self.constant = Route((self.node.queue,), route_sets)


@dataclass(slots=True, eq=False)
class RelayTarget:
    """No address of its own: each message's `to` says where it goes."""

    known: dict[str, ExchangeTarget | QueueTarget] = field(default_factory=dict[str, "ExchangeTarget | QueueTarget"])


@dataclass(slots=True, eq=False)
class ManagementTarget:
    """The management node."""


Destination: TypeAlias = ExchangeTarget | QueueTarget | RelayTarget | ManagementTarget


class Routes:
    """The routes and targets that are remembered for the whole broker."""

    __slots__ = ("_route_sets", "_routes", "_shared", "targets")

    def __init__(self, route_sets: RouteSets) -> None:
        self._route_sets = route_sets
        self._routes = RouteMemo()
        self.targets: dict[str, ExchangeTarget | QueueTarget] = {}
        """Where addresses of policies lead, see `messages.internal_publish`."""
        self._shared: WeakValueDictionary[tuple[int, str | None], ExchangeTarget] = WeakValueDictionary()

    def target_of(self, exchange: Exchange, key: str | None) -> ExchangeTarget:
        """An exchange as a target; one for all who send to it with this key, since its route may have ten thousand
        queues.
        """
        target = self._shared.get((id(exchange), key))
        if target is None or target.exchange is not exchange:
            target = self._shared[id(exchange), key] = ExchangeTarget(exchange, key)
        return target

    def route_of(self, reached: tuple[Queue, ...]) -> Route:
        """The route of exactly these queues, for messages that filters kept from some."""
        return self._routes.route(reached, self._route_sets)

    def forget(self) -> None:
        """Bindings or policies have changed."""
        self._routes.forget()
