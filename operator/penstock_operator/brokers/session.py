"""The session to one Broker: it keeps a management connection, notices when the broker behind it is a new instance, and
sends declarations and deletions in batches.

What many workers send to one broker at the same time travels in one request. When a session loses its connection, it
raises Unreachable to all that wait for a reply, and connects again, with a delay that doubles each time and that
`try_soon` ends. Source: docs/decisions/047-management-node.md, docs/decisions/054-owner-mark.md,
docs/reference/management.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from penstock_api.management import Owner
from penstock_api.state_documents import BrokerState
from penstock_operator.brokers.broker_contacts import BrokerContacts
from penstock_operator.brokers.declared_entities import DeclaredEntities
from penstock_operator.brokers.management import (
    BrokerManagement,
    Connector,
    ManagementAccess,
    NotUnderstood,
    Unanswered,
    Unreachable,
)
from penstock_operator.brokers.pending_commands import BATCH, Batch, PendingCommands, set_replies
from penstock_operator.brokers.session_change import SessionChange
from penstock_operator.plans import reconnect_pause
from penstock_operator.plans.broker_health import contested_containers
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity, Reach
from penstock_operator.plans.orphans import MarkedEntity
from penstock_operator.plans.storage_condition import storage_facts

__all__ = ["BrokerSession"]

logger = logging.getLogger(__name__)

_UNANSWERED_SECONDS: Final = 1.0
"""The pause after an attempt that was neither accepted nor refused."""
_POSTPONED: Final = 12
"""So often in a row a poll leaves aside what has changed on the broker, because declarations are on the way to it."""


class BrokerSession:
    """A session to the management of one Broker. `BrokerSessions` creates it; its tasks run until `close`."""

    def __init__(
        self,
        broker: str,
        access: ManagementAccess,
        connect: Connector,
        poll_seconds: float,
        contacts: BrokerContacts,
        changed: Callable[[SessionChange], None],
        drifted: Callable[[Owner], None],
        spread: Callable[[], float],
    ) -> None:
        self.access: Final = access
        self.state: BrokerState | None = None
        """What the broker reported about itself last; kept while it is unreachable."""
        self.reach = Reach.NOT_ASKED
        self.problem = "the operator has not connected yet"
        """Why the broker cannot be asked, without a full stop; empty while it is connected."""
        self._broker = broker
        self._label = f"Broker {broker}"
        self._contacts = contacts
        contacts.lost(broker)
        self._connect = connect
        self._poll_seconds = poll_seconds
        self._changed = changed
        self._drifted = drifted
        self._spread = spread
        self.declared = DeclaredEntities()
        """What the broker has of what this session has declared."""
        self._life: tuple[str, int] | None = None
        """Instance and epoch of the broker to which `declared` belongs."""
        self._bound_at: int | None = None
        """The revision at which the bound subscriptions of the exchanges were counted last."""
        self._learning = asyncio.Lock()
        self._management: BrokerManagement | None = None
        self._lost = asyncio.Event()
        self._hurry = asyncio.Event()
        """Set if the next attempt to connect need not wait out its delay."""
        self._pending = PendingCommands()
        self._is_sending = False
        self._postponed = 0
        """How often in a row a poll has left the changes aside."""
        self._command_added = asyncio.Event()
        self._tasks = [asyncio.create_task(self._keep_connected()), asyncio.create_task(self._send_commands())]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    async def close(self) -> None:
        """End the session; everybody who waits for a reply gets Unreachable."""
        for task in self._tasks:
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:  # also if whoever closes it is cancelled: others wait for replies
            if self.reach is not Reach.UNREACHABLE:
                self.reach, self.problem = Reach.NOT_ASKED, "the session was closed"
            self._contacts.lost(self._broker)
            self._pending.fail(self.problem)
            await self._disconnect()

    def take_over(self, before: BrokerSession) -> None:
        """Know what an ended session to the same broker knew of it, also that it does not answer: what was Unreachable
        does not become less so because it is asked with another password.
        """
        self.state, self.declared, self._life = before.state, before.declared, before._life
        if before.reach is Reach.UNREACHABLE:
            self.reach, self.problem = before.reach, before.problem

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """A task of a session must end only by `close`; otherwise all who wait for a reply would wait for ever."""
        if not task.cancelled():
            self._met_bug(task.exception())

    def _met_bug(self, error: BaseException | None) -> str:
        """Give up the connection, and return why. A bug must not end the session: the next one would meet it at once,
        without a pause, and nobody may be told that there has to be a next one.
        """
        problem = "the operator's session with it met a bug; see the operator's log"
        logger.critical("the session with %s met a bug", self._label, exc_info=error)
        self._connection_lost(problem)
        return problem

    def try_soon(self) -> None:
        """Something else shows that the broker serves: connect without waiting out the delay, which grew while it did
        not. Two attempts are at least half a second apart however often this is called; while connected it does
        nothing.
        """
        if self.reach is not Reach.CONNECTED:
            self._hurry.set()

    @property
    def is_running(self) -> bool:
        """False if a task of it has ended, which is a bug; `BrokerSessions` then creates another."""
        return not any(task.done() for task in self._tasks)

    @property
    def is_sending(self) -> bool:
        """Whether declarations or deletions are on the way to the broker."""
        return self._is_sending or bool(self._pending)

    async def declare(self, command: DeclareEntity) -> BrokerReply:
        """Declare an entity, unless the broker has it already as this session has declared it; raises Unreachable."""
        known = self.declared.reply_to(command) if self.reach is Reach.CONNECTED else None
        return known if known is not None else await self._submit(command)

    async def delete(self, command: DeleteEntity) -> BrokerReply:
        """Send a deletion, unless it would end rights that have ended already; raises Unreachable."""
        is_asked = command.rights_only and self.reach is Reach.CONNECTED
        known = self.declared.withdrawal_reply(command) if is_asked else None
        return known if known is not None else await self._submit(command)

    async def marked_entities(self) -> Sequence[MarkedEntity]:
        """All entities that have an owner mark; raises Unreachable."""
        management = self._management
        if management is None:
            raise Unreachable(self.problem)
        try:
            await self._learn_changes(management)
            await self._count_bound(management)
        except Unreachable as error:
            self._request_failed(management, error)
            raise
        return self.declared.marked()

    async def know_entities(self) -> None:
        """Have the broker tell what it has, unless it has done so in this life of it; raises Unreachable."""
        management = self._management
        if management is None:
            raise Unreachable(self.problem)
        try:
            await self._learn_changes(management, again=False)
        except Unreachable as error:
            self._request_failed(management, error)
            raise

    async def _learn_changes(self, management: BrokerManagement, *, again: bool = True) -> None:
        """Ask the broker what changed since the last time, and have the resources reconciled that this concerns. Not
        `again`: only if it has never been asked.
        """
        async with self._learning:
            if self.declared.is_listed and not again:
                return
            is_told = self.state is not None and self.state.topology_revision is not None
            life, since = self._life, self.declared.revision if is_told else None
            changes = await management.changes(since)
            if life == self._life:
                self._tell(self.declared.merge(changes))

    async def _count_bound(self, management: BrokerManagement) -> None:
        """Ask how many subscriptions each exchange has, unless nothing has changed since the last time."""
        revision = self.declared.revision
        if revision is None or self._bound_at != revision:
            bound = await management.bound_subscriptions()
            self._bound_at = revision
            self._tell(self.declared.merge_bound(bound))

    def _tell(self, owners: Sequence[Owner]) -> None:
        for owner in owners:
            self._drifted(owner)

    async def _submit(self, command: DeclareEntity | DeleteEntity) -> BrokerReply:
        if self._management is None or not self.is_running:
            raise Unreachable(self.problem)
        reply = self._pending.add(command)
        self._command_added.set()
        return await reply

    async def _send_commands(self) -> None:
        while True:
            await self._command_added.wait()
            self._command_added.clear()
            while self._pending:
                if len(self._pending) < BATCH:
                    # Let all workers that are ready add their commands first, so that these travel in the same request.
                    await asyncio.sleep(0)
                if self._management is None:
                    self._pending.fail(self.problem)
                    break
                self._is_sending = True
                await self._send(self._management, self._pending.take())
                self._is_sending = False

    async def _send(self, management: BrokerManagement, batch: Batch) -> None:
        problem, life = "the session was closed", self._life
        try:
            if batch.deletions:
                replies = await management.delete([pending.command for pending in batch.deletions])
                self._check_life(life)
                for pending, reply in zip(batch.deletions, replies, strict=True):
                    if pending.command.rights_only:
                        self.declared.note_withdrawal(pending.command, reply)
                    elif reply.is_success:
                        self.declared.forget(pending.command.entity, pending.command.name)
                set_replies(batch.deletions, replies)
            if batch.declarations:
                answers = await management.declare([pending.command for pending in batch.declarations])
                self._check_life(life)
                for declaration, answer in zip(batch.declarations, answers, strict=True):
                    self.declared.note(declaration.command, answer)
                set_replies(batch.declarations, answers)
        except Unreachable as error:
            problem = str(error)
            self._request_failed(management, error)
        except Exception as error:
            problem = self._met_bug(error)
        finally:
            # Also if the session is closed meanwhile, or a bug ends it: who waits for a reply would wait for ever.
            batch.fail(problem)

    def _check_life(self, life: tuple[str, int] | None) -> None:
        """Raise Unreachable if a reply is that of the broker in an earlier life than the one that is known now."""
        if life is not None and life != self._life:
            raise Unreachable("the broker was restarted before its reply came")

    def _request_failed(self, management: BrokerManagement, error: Unreachable) -> None:
        """Give up the connection of the request; one that was given up already may have a successor, which works."""
        if management is self._management:
            self._connection_lost(str(error))

    async def _keep_connected(self) -> None:
        delay = reconnect_pause.FIRST_SECONDS
        while True:
            self._lost.clear()
            self._hurry.clear()
            try:
                self._management = await self._connect(self.access)
                self._state_received(await self._management.state())
                delay = reconnect_pause.FIRST_SECONDS
                await self._poll(self._management)
            except NotUnderstood as error:
                self._connection_lost(str(error), Reach.NOT_UNDERSTOOD)
            except Unanswered as error:
                # The attempt was long already, and another one may go to the address of the successor.
                self._connection_lost(str(error))
                delay = _UNANSWERED_SECONDS
            except Unreachable as error:
                self._connection_lost(str(error))
            except Exception as error:
                self._met_bug(error)
            await self._disconnect()
            delay = await self._pause(delay)

    async def _pause(self, delay: float) -> float:
        """Wait before the next attempt to connect, for `delay` seconds unless `try_soon` ends it; the delay of the
        attempt after that, in seconds.
        """
        await asyncio.sleep(reconnect_pause.FIRST_SECONDS)
        try:
            async with asyncio.timeout(reconnect_pause.spread_pause(delay, self._spread())):
                await self._hurry.wait()
        except TimeoutError:
            return reconnect_pause.next_pause(delay, self._contacts.of(self._broker), self._contacts.now())
        return reconnect_pause.FIRST_SECONDS

    async def _poll(self, management: BrokerManagement) -> None:
        """Read the broker's state every `poll_seconds`, until the connection is lost."""
        while not self._lost.is_set():
            try:
                async with asyncio.timeout(self._poll_seconds):
                    await self._lost.wait()
            except TimeoutError:
                state = await management.state()
                self._state_received(state)
                if state.topology_revision is None or self._lost.is_set():
                    continue
                if state.topology_revision == self.declared.revision:
                    # It is as it was at the last poll. While it changes, the figures would be old at once.
                    await self._count_bound(management)
                elif not self._is_postponed():
                    await self._learn_changes(management)

    def _is_postponed(self) -> bool:
        """Whether the changes on the broker can wait for the next poll: while declarations are on the way to it, most
        of them are the operator's own, and a list of several pages would be void, because it changes while it is read.
        They do not wait for ever.
        """
        self._postponed = self._postponed + 1 if self.is_sending and self._postponed < _POSTPONED else 0
        return self._postponed > 0

    @property
    def problem_sentence(self) -> str:
        """Why the broker cannot be asked, as a sentence for conditions; empty while it is connected."""
        problem = self.problem.removesuffix(".")
        if "." in problem.partition(" ")[0]:
            return f"{problem}."  # It begins with a host name, which has no capital.
        return f"{problem[0].upper()}{problem[1:]}." if problem else ""

    def _state_received(self, state: BrokerState) -> None:
        if self._lost.is_set():
            return  # The connection was given up while the answer was on the way: there is nobody to send commands to.
        before, self.state = self.state, state
        identity = (state.instance_id, state.epoch, state.durable_work)
        known = before is not None and (before.instance_id, before.epoch, before.durable_work) == identity
        if self.reach is Reach.CONNECTED and known:
            assert before is not None
            if contested_containers(before) != contested_containers(state) or storage_facts(before) != storage_facts(
                state
            ):
                self._changed(SessionChange.STATE)
            return
        if self._life != (state.instance_id, state.epoch):
            self._life = state.instance_id, state.epoch
            self.declared.clear()
            self._bound_at = None
        if before is not None and before.instance_id != state.instance_id:
            logger.warning("%s is a new instance with an empty volume; everything is declared again", self._label)
        self.reach, self.problem = Reach.CONNECTED, ""
        self._contacts.answered(self._broker)
        logger.info("%s is connected: instance %s, epoch %s", self._label, state.instance_id, state.epoch)
        self._changed(SessionChange.REACH)

    def _connection_lost(self, problem: str, reach: Reach = Reach.UNREACHABLE) -> None:
        self._lost.set()
        self.problem = problem
        if reach is Reach.NOT_UNDERSTOOD:
            self._contacts.not_understood(self._broker)
        else:
            self._contacts.lost(self._broker)
        if self.reach is not reach:
            self.reach = reach
            logger.warning("there is no connection to %s: %s; the operator connects again", self._label, problem)
            self._changed(SessionChange.LOST if reach is Reach.UNREACHABLE else SessionChange.REACH)
        self._pending.fail(problem)

    async def _disconnect(self) -> None:
        management, self._management = self._management, None
        if management is not None:
            await management.close()
