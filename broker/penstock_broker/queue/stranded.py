"""A message that could not be sent on: its queue keeps it, and `messages.dead_letters` tries again."""

from __future__ import annotations

from dataclasses import dataclass

from penstock_amqp.endpoint.events import AmqpError, Entry
from penstock_core.fate import Cause

__all__ = ["Stranded"]


@dataclass(frozen=True, slots=True)
class Stranded:
    """A message that could not be sent on."""

    entry: Entry
    cause: Cause
    error: AmqpError | None
    """What the consumer said when it rejected it."""
