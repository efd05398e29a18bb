"""One audit of a subscription as the broker keeps it. Source: docs/decisions/074-message-audit.md."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock_amqp.endpoint.events import Entry
from penstock_api.message_audit import AuditState, EventKind
from penstock_broker.queue.audit import QueueAudit
from penstock_broker.queue.queue import Queue

__all__ = ["Audit"]


@dataclass(slots=True, eq=False)
class Audit:
    """What is told of it, its records, and the messages that are still to be written down."""

    queue: Queue
    state: AuditState
    """As it was when the audit began or ended; `records` and `is_written` are those of that time."""
    records: QueueAudit
    unwritten: deque[tuple[EventKind, Iterator[Entry]]] = field(
        default_factory=deque[tuple[EventKind, Iterator[Entry]]]
    )
    """What was in the queue at the beginning or end, which is written in slices."""
    is_fetched: bool = False
    """It is over, and nobody needs it any more, unless the last answer was lost."""
    is_writing: bool = False
    """A later turn goes on with these."""

    def state_now(self) -> AuditState:
        """What is told of it now."""
        is_written = self.state.ended_ms is not None and not self.unwritten
        ended_by = self.records.ended_by
        return self.state.model_copy(
            update={
                "records": self.records.written,
                "is_written": is_written,
                "ended_by": None if ended_by is None else ended_by.value,
            }
        )
