"""Messages that are on their way into very many queues, which takes several turns.

They are in the log as a whole already, and are accepted once they are in every queue. Whatever comes behind them waits
for them, so that each queue keeps the order. Source: docs/decisions/023-bounded-turns.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock_amqp.endpoint.events import Entry
from penstock_broker.state.routes import Route

__all__ = ["FanOut", "RoutedMessages"]


@dataclass(frozen=True, slots=True)
class RoutedMessages:
    """Messages that are numbered, and in the log where they are to be: for all queues of a route."""

    route: Route
    entries: list[Entry]
    """Those that wait at once."""
    delayed: list[Entry]
    """Those that are for later."""
    size: int
    """Bytes of them all."""
    first_expiry: int
    """When the first of `entries` expires, microseconds since the epoch; 0: none does."""
    ordered: bool
    """Some have a priority or a group."""
    keep: bool
    """As if each said that it is durable."""


@dataclass(slots=True, eq=False)
class FanOut:
    """Messages, and how far they have come."""

    messages: RoutedMessages
    turn: int
    """In which they came: what came in one turn is answered together."""
    reached: int = 0
    """So many of the route's queues were served."""
    after: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """What is to be done once every queue was served."""
    failure: Exception | None = None
    """Why they, or others of the same turn, did not come into all of their queues: they must not be accepted."""

    @property
    def is_over(self) -> bool:
        """True once every queue was served."""
        return self.reached >= len(self.messages.route.queues)
