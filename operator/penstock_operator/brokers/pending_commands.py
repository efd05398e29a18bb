"""The declarations and deletions that wait to be sent to one broker, and which of them travel in the next request.

Each waits for the worker that reconciles its resource. Deletions go first. Within a request, and among those that wait
for a later one, exchanges are declared before queues and subscriptions, and deleted after them. Source:
docs/decisions/047-management-node.md, docs/decisions/117-declared-again.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from penstock_operator.brokers.management import Unreachable
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity

__all__ = ["BATCH", "Batch", "PendingCommand", "PendingCommands", "set_replies"]

BATCH: Final = 100
"""Commands of one kind in one request. By default there are twice as many workers: so one half of them prepares what it
declares next while the broker works on the declarations of the other half.
"""

CommandT = TypeVar("CommandT", DeclareEntity, DeleteEntity)


@dataclass(slots=True)
class PendingCommand(Generic[CommandT]):
    """A declaration or deletion, and the future that gets the broker's reply."""

    command: CommandT
    reply: asyncio.Future[BrokerReply]


@dataclass(frozen=True, slots=True)
class Batch:
    """What is sent next, in this order."""

    deletions: Sequence[PendingCommand[DeleteEntity]]
    declarations: Sequence[PendingCommand[DeclareEntity]]

    def fail(self, problem: str) -> None:
        """Who waits for a reply gets Unreachable."""
        _set_unreachable(self.deletions, problem)
        _set_unreachable(self.declarations, problem)


@dataclass(slots=True)
class PendingCommands:
    """What waits to be sent to one broker."""

    _deletions: list[PendingCommand[DeleteEntity]] = field(default_factory=list[PendingCommand[DeleteEntity]])
    _declarations: list[PendingCommand[DeclareEntity]] = field(default_factory=list[PendingCommand[DeclareEntity]])

    def __len__(self) -> int:
        return len(self._deletions) + len(self._declarations)

    def add(self, command: DeclareEntity | DeleteEntity) -> asyncio.Future[BrokerReply]:
        """Have a command sent; the future gets the broker's reply, or Unreachable."""
        reply: asyncio.Future[BrokerReply] = asyncio.get_running_loop().create_future()
        if isinstance(command, DeleteEntity):
            self._deletions.append(PendingCommand(command, reply))
        else:
            self._declarations.append(PendingCommand(command, reply))
        return reply

    def take(self) -> Batch:
        """What is sent next; the rest stays. All that wait are put in order, not only those that are taken: else an
        exchange could come behind the subscriptions that need it. What nobody waits for any more is not sent: a pass
        that took too long has ended, and a declaration that goes after the deletion of a later pass would undo that.
        """
        self._deletions = [pending for pending in self._deletions if not pending.reply.done()]
        self._declarations = [pending for pending in self._declarations if not pending.reply.done()]
        self._deletions.sort(key=lambda pending: pending.command.entity.value, reverse=True)
        self._declarations.sort(key=lambda pending: pending.command.entity.value)
        batch = Batch(self._deletions[:BATCH], self._declarations[:BATCH])
        del self._deletions[:BATCH], self._declarations[:BATCH]
        return batch

    def fail(self, problem: str) -> None:
        """Everybody who waits gets Unreachable."""
        waiting = Batch(self._deletions, self._declarations)
        self._deletions, self._declarations = [], []
        waiting.fail(problem)


def set_replies(pending: Sequence[PendingCommand[CommandT]], replies: Sequence[BrokerReply]) -> None:
    """Give each who waits his reply."""
    for waiting, reply in zip(pending, replies, strict=True):
        if not waiting.reply.done():
            waiting.reply.set_result(reply)


def _set_unreachable(pending: Sequence[PendingCommand[CommandT]], problem: str) -> None:
    for waiting in pending:
        if not waiting.reply.done():
            waiting.reply.set_exception(Unreachable(problem))
