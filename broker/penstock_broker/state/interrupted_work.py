"""What the code held in its hands when an exception interrupted it: in no list of a queue and in no engine.

A message passes from list to list: out of a backlog and into an engine, out of the engine and into the log's acks. If
an exception comes between two lists, whoever holds the message puts it here and raises the exception again. The
connection on which it happened is then taken apart (`attach.failed_connection`), which gives everything its place and
empties this record. Source: docs/decisions/077-internal-errors.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock_amqp.endpoint.events import Entry
from penstock_broker.queue.queue import Queue

__all__ = ["NOTHING", "InterruptedWork"]

NOTHING: Final = -1
"""`InterruptedWork.undone_from` if no commit was interrupted."""


class InterruptedWork:
    """Of one broker; empty whenever no exception is under way."""

    __slots__ = ("doubtful", "left", "taken", "undone_from")

    def __init__(self) -> None:
        self.taken: list[tuple[Queue, Entry]] = []
        """Messages that go back to their queue, unless they are in it or have left it for good."""
        self.left: list[tuple[Queue, Entry]] = []
        """Messages that have left their queue for good: accepted, or moved to another one. The log may not know."""
        self.doubtful: dict[Queue, None] = {}
        """Further queues whose counters may be wrong."""
        self.undone_from = NOTHING
        """Message number: what has this one or a higher one was part of a commit that did not happen."""

    def take(self, queue: Queue, entries: Iterable[Entry]) -> None:
        """Messages of a queue are to go back."""
        self.taken += [(queue, entry) for entry in entries]
        self.doubtful[queue] = None

    def leave(self, queue: Queue, entries: Iterable[Entry]) -> None:
        """Messages of a queue have left it for good."""
        self.left += [(queue, entry) for entry in entries]
        self.doubtful[queue] = None

    def clear(self) -> None:
        """All of it has its place."""
        self.taken, self.left = [], []
        self.doubtful = {}
        self.undone_from = NOTHING
