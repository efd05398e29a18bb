"""Where the messages of a producer go: the queues that one routing result reaches, prepared for the forwarding path.

A route is made when the first message needs it, and holds until the exchange's bindings or a queue's policies change.
Source: docs/decisions/018-addresses.md and 036-what-is-durable.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock_amqp.messages.fields import Field, application_properties, encoded_keys, properties_field
from penstock_broker.queue.admission import AdmissionSet
from penstock_broker.queue.queue import Queue
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
    "RouteSets",
    "Routes",
    "reached",
]

RouteSets: TypeAlias = Callable[[tuple[int, ...]], int]
"""The log's number for a set of incarnations."""

MOST_ROUTES: Final = 1024
"""Routes that are remembered; with the next one all are forgotten."""


class Route:
    """One set of queues that messages reach together."""

    __slots__ = (
        "_selection",
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
        self.picky = tuple(queue for queue in queues if queue.admits is not None)
        """Queues that take some messages only."""
        self.open_queues = tuple(queue for queue in queues if queue.admits is None)
        self.rejecting = tuple(
            queue for queue in queues if queue.policy.overflow is Overflow.REJECT and queue.policy.is_limited
        )
        logged = tuple(queue.incarnation for queue in queues if queue.is_logged)
        kept = tuple(queue.incarnation for queue in queues if queue.is_logged and queue.policy.keeps_all)
        self.logged_set = route_sets(logged) if logged and route_sets else 0
        """Route set of the queues that log durable messages; 0 if there is none."""
        self.kept_set = route_sets(kept) if kept and route_sets else 0
        """Route set of the queues that log messages sent as not durable as well; 0 if there is none."""
        self.is_plain = not self.picky and not self.rejecting and not any(queue.policy.max_ttl_us for queue in queues)
        """Every message goes to every queue, nothing is asked."""
        self.is_alike = len({(queue.is_logged, queue.policy.keeps_all) for queue in queues}) <= 1
        """All of the queues log the same messages."""
        self._selection: AdmissionSet[Queue] | None = None

    @property
    def selection(self) -> AdmissionSet[Queue]:
        """Asks the queues that take some messages only. Made when first needed: most routes have no such queue."""
        if self._selection is None:
            asked = [(queue, queue.admits) for queue in self.picky]
            self._selection = AdmissionSet([(queue, admits) for queue, admits in asked if admits is not None])
        return self._selection


@dataclass(slots=True, eq=False)
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
    routes: dict[tuple[Queue, ...], Route] = field(default_factory=dict[tuple[Queue, ...], Route])

    def refresh(self, route_sets: RouteSets | None) -> None:
        """Prepare for the exchange's present bindings."""
        exchange, router = self.exchange, self.exchange.router
        self.version = exchange.version
        self.routes = {}
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
        found = self.routes.get(queues)
        if found is None:
            found = self.routes[queues] = Route(queues, route_sets)
        return found


def reached(
    exchange: Exchange, key: str | None, data: bytes, start: int, headers: Mapping[bytes, str] | None = None
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

    __slots__ = ("_route_sets", "_routes", "targets")

    def __init__(self, route_sets: RouteSets) -> None:
        self._route_sets = route_sets
        self._routes: dict[tuple[Queue, ...], Route] = {}
        self.targets: dict[str, ExchangeTarget | QueueTarget] = {}
        """Where addresses of policies lead, see `messages.deposit`."""

    def route_of(self, reached: tuple[Queue, ...]) -> Route:
        """The route of exactly these queues, for messages that filters kept from some."""
        if len(self._routes) > MOST_ROUTES:
            self._routes.clear()
        route = self._routes.get(reached)
        if route is None:
            route = self._routes[reached] = Route(reached, self._route_sets)
        return route

    def forget(self) -> None:
        """Bindings or policies have changed."""
        self._routes.clear()
