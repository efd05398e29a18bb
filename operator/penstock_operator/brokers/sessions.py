"""One session per Broker: it keeps a management connection, notices another instance behind it, and sends in batches.

What many workers ask of one broker at the same time travels in one request. A session that loses its connection says
Unreachable to everybody and connects again, slower and slower. Source: section 5 of the design (drift, instanceId),
docs/management.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

from penstock_api.management import BrokerState
from penstock_operator.brokers.management import (
    BrokerManagement,
    Connector,
    ManagementTarget,
    NotUnderstood,
    Unreachable,
)
from penstock_operator.plans.broker_health import contested_containers
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity, Reach
from penstock_operator.plans.orphans import MarkedEntity

__all__ = ["BrokerSession", "BrokerSessions", "SessionChange"]

logger = logging.getLogger(__name__)

_BATCH: Final = 500
_FIRST_RECONNECT_SECONDS: Final = 0.5
_LONGEST_RECONNECT_SECONDS: Final = 10.0

CommandT = TypeVar("CommandT", DeclareEntity, DeleteEntity)


class SessionChange(Enum):
    """What a session has found out."""

    REACH = "Reach"
    """The broker came, went, or is another one: everything on it has to be looked at."""
    STATE = "State"
    """It says something else of itself."""


@dataclass(slots=True)
class _PendingCommand(Generic[CommandT]):
    entry: CommandT
    reply: asyncio.Future[BrokerReply]


class BrokerSession:
    """The management of one Broker. Made by `Sessions`; its task runs until `close`."""

    def __init__(
        self,
        label: str,
        target: ManagementTarget,
        connect: Connector,
        poll_seconds: float,
        changed: Callable[[SessionChange], None],
    ) -> None:
        self.target: Final = target
        self.state: BrokerState | None = None
        """What the broker said of itself last; kept while it is unreachable."""
        self.reach = Reach.UNREACHABLE
        self.problem = "The operator has not connected yet."
        self._label = label
        self._connect = connect
        self._poll_seconds = poll_seconds
        self._changed = changed
        self._management: BrokerManagement | None = None
        self._lost = asyncio.Event()
        self._declarations: list[_PendingCommand[DeclareEntity]] = []
        self._deletions: list[_PendingCommand[DeleteEntity]] = []
        self._wanted = asyncio.Event()
        self._tasks = [asyncio.create_task(self._keep_connected()), asyncio.create_task(self._send())]
        for task in self._tasks:
            task.add_done_callback(self._end)

    async def close(self) -> None:
        """End the session; whoever waits for an answer gets Unreachable."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.reach, self.problem = Reach.UNREACHABLE, "the session was closed"
        self._fail_waiting(self.problem)
        await self._disconnect()

    def _end(self, task: asyncio.Task[None]) -> None:
        """A task of a session ends by `close` only; anything else is a bug, which its waiters must not wait for."""
        if not task.cancelled():
            logger.critical("the session of %s ended by a bug", self._label, exc_info=task.exception())
            self._lose("the operator's session with it ended by a bug; see the operator's log")

    @property
    def is_running(self) -> bool:
        """False once a bug has ended it; `Sessions` then makes another."""
        return not any(task.done() for task in self._tasks)

    async def declare(self, entry: DeclareEntity) -> BrokerReply:
        """CREATE; raises Unreachable."""
        return await self._ask(self._declarations, entry)

    async def delete(self, entry: DeleteEntity) -> BrokerReply:
        """DELETE; raises Unreachable."""
        return await self._ask(self._deletions, entry)

    async def marked_entities(self) -> Sequence[MarkedEntity]:
        """Everything that bears an owner mark; raises Unreachable."""
        management = self._management
        if management is None:
            raise Unreachable(self.problem)
        try:
            return await management.marked_entities()
        except Unreachable as error:
            self._lose(str(error))
            raise

    async def _ask(self, waiting: list[_PendingCommand[CommandT]], entry: CommandT) -> BrokerReply:
        if self._management is None or not self.is_running:
            raise Unreachable(self.problem)
        pending = _PendingCommand(entry, asyncio.get_running_loop().create_future())
        waiting.append(pending)
        self._wanted.set()
        return await pending.reply

    async def _send(self) -> None:
        while True:
            await self._wanted.wait()
            # Let every worker that is ready to ask put its question in first.
            await asyncio.sleep(0)
            self._wanted.clear()
            while self._management is not None and (self._deletions or self._declarations):
                await self._send_batch(self._management)

    async def _send_batch(self, management: BrokerManagement) -> None:
        removals, self._deletions = self._deletions[:_BATCH], self._deletions[_BATCH:]
        declarations, self._declarations = self._declarations[:_BATCH], self._declarations[_BATCH:]
        try:
            # Exchanges are made before, and removed after, what is bound to them; removals go first.
            if removals:
                removals.sort(key=lambda pending: pending.entry.entity.value, reverse=True)
                _reply(removals, await management.delete([pending.entry for pending in removals]))
            if declarations:
                declarations.sort(key=lambda pending: pending.entry.entity.value)
                _reply(declarations, await management.declare([pending.entry for pending in declarations]))
        except Unreachable as error:
            self._lose(str(error))
            _fail([*removals], str(error))
            _fail([*declarations], str(error))

    async def _keep_connected(self) -> None:
        delay = _FIRST_RECONNECT_SECONDS
        while True:
            self._lost.clear()
            try:
                self._management = await self._connect(self.target)
                self._see(await self._management.state())
                delay = _FIRST_RECONNECT_SECONDS
                await self._watch(self._management)
            except NotUnderstood as error:
                self._lose(str(error), Reach.NOT_UNDERSTOOD)
            except Unreachable as error:
                self._lose(str(error))
            await self._disconnect()
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_RECONNECT_SECONDS)

    async def _watch(self, management: BrokerManagement) -> None:
        """Look at the broker now and then, until it is lost."""
        while not self._lost.is_set():
            try:
                await asyncio.wait_for(self._lost.wait(), self._poll_seconds)
            except TimeoutError:
                self._see(await management.state())

    def _see(self, state: BrokerState) -> None:
        before, self.state = self.state, state
        identity = (state.instance_id, state.epoch, state.durable_work)
        known = before is not None and (before.instance_id, before.epoch, before.durable_work) == identity
        if self.reach is Reach.CONNECTED and known:
            assert before is not None
            if contested_containers(before) != contested_containers(state):
                self._changed(SessionChange.STATE)
            return
        if before is not None and before.instance_id != state.instance_id:
            logger.warning("%s has an empty volume; everything is declared again", self._label)
        self.reach, self.problem = Reach.CONNECTED, ""
        logger.info("%s is connected: instance %s, epoch %s", self._label, state.instance_id, state.epoch)
        self._changed(SessionChange.REACH)

    def _lose(self, problem: str, reach: Reach = Reach.UNREACHABLE) -> None:
        self._lost.set()
        self.problem = problem
        if self.reach is not reach:
            self.reach = reach
            logger.warning("%s is lost: %s; the operator connects again", self._label, problem)
            self._changed(SessionChange.REACH)
        self._fail_waiting(problem)

    async def _disconnect(self) -> None:
        management, self._management = self._management, None
        if management is not None:
            await management.close()

    def _fail_waiting(self, problem: str) -> None:
        removals, self._deletions = self._deletions, []
        declarations, self._declarations = self._declarations, []
        _fail([*removals], problem)
        _fail([*declarations], problem)


class BrokerSessions:
    """The sessions of all Brokers, by Broker."""

    def __init__(self, connect: Connector, poll_seconds: float):
        self._connect = connect
        self._poll_seconds = poll_seconds
        self._sessions: dict[str, BrokerSession] = {}

    def get(self, broker: str) -> BrokerSession | None:
        """The session of a Broker (`namespace/name`)."""
        return self._sessions.get(broker)

    async def ensure(
        self, broker: str, target: ManagementTarget, changed: Callable[[SessionChange], None]
    ) -> BrokerSession:
        """The session of a Broker at this target; another address or password means another session."""
        session = self._sessions.get(broker)
        if session is not None and session.target == target and session.is_running:
            return session
        state = None
        if session is not None:
            state = session.state
            await session.close()
        made = BrokerSession(f"Broker {broker}", target, self._connect, self._poll_seconds, changed)
        made.state = state
        self._sessions[broker] = made
        return made

    async def drop(self, broker: str) -> None:
        """End the session of a Broker that is gone."""
        session = self._sessions.pop(broker, None)
        if session is not None:
            await session.close()

    async def close(self) -> None:
        """End all sessions."""
        for broker in tuple(self._sessions):
            await self.drop(broker)


def _reply(pending: Sequence[_PendingCommand[CommandT]], replies: Sequence[BrokerReply]) -> None:
    for one, reply in zip(pending, replies, strict=True):
        if not one.reply.done():
            one.reply.set_result(reply)


def _fail(pending: Sequence[_PendingCommand[DeclareEntity] | _PendingCommand[DeleteEntity]], problem: str) -> None:
    for one in pending:
        if not one.reply.done():
            one.reply.set_exception(Unreachable(problem))
