"""Rollbacks that take several turns, because their transactions held very many deliveries.

Until all of these are back their queues send nothing, so that nobody gets a later message before an earlier one.
Source: docs/decisions/149-rollbacks-in-slices.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.events import Held
from penstock_amqp.endpoint.links import Acquisition
from penstock_broker.access.connection import Connection
from penstock_broker.queue.queue import Queue
from penstock_broker.state.open_transactions import Settlement

__all__ = ["Rollback"]


@dataclass(slots=True, eq=False)
class Rollback:
    """One transaction that is rolled back, and what is still to be returned of it."""

    connection: Connection
    """It may have ended since."""
    settlements: list[Settlement]
    """What was settled, or given an outcome, in the transaction: the first comes last."""
    acquisition: Acquisition | None
    acquired: Iterator[tuple[Ptr, Held]]
    """Of what it acquired, the rest; it is looked at behind the settlements."""
    queues: tuple[Queue, ...]
    """Those that send nothing meanwhile."""
    has_outcome: set[int] = field(default_factory=set[int])
    """The ids of the `Held` to which the client gave an outcome without settling them."""
    after: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """What is to be done once all is back."""
