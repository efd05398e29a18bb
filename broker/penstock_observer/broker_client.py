"""Polls of a broker over ``$management``: the states of the subscriptions that changed, then one READ of the broker.

The states that are known are kept from poll to poll, also over a lost connection, and a state that did not change stays
the same object. A broker of an earlier release tells all states each time, page by page: subscriptions may be made or
deleted between two pages, so a poll during which that happened is repeated; if it happens again and again, the poll is
marked as not complete. The times in a poll are those of the broker's clock as it is at the poll, also if it was set.
Source: docs/reference/management.md, "States that changed".
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from pydantic import ValidationError

from penstock_amqp.client.errors import ManagementError, RequestRefused
from penstock_amqp.client.management import ChangedStates, ManagementClient
from penstock_amqp.sasl.client import NotAuthenticated
from penstock_api.management import MAX_COUNT, EntityType
from penstock_api.state_documents import BrokerState, SubscriptionState
from penstock_api.validation_messages import validation_messages
from penstock_observer.broker_clock import BrokerClock, ClockReading
from penstock_observer.clock_memory import ClockMemory
from penstock_observer.poller import BrokerAway
from penstock_observer.rows import Poll

__all__ = ["Connect", "ManagementConnection", "PolledBroker", "QueryPage", "over_unix_socket"]

log = logging.getLogger(__name__)

ATTEMPTS: Final = 3
FAILURES: Final = (OSError, ManagementError, RequestRefused, NotAuthenticated)
"""What the client raises when it can't reach the broker, or is refused; TransportError and TimeoutError are OSErrors.
"""


class QueryPage(Protocol):
    """One reply to a QUERY."""

    @property
    def results(self) -> Sequence[Mapping[str, object]]:
        """The entities of this page, attribute names as keys."""
        ...

    @property
    def total_count(self) -> int:
        """Entities that match, before offset and count."""
        ...


class ManagementConnection(Protocol):
    """The part of penstock_amqp's ManagementClient that the observer uses."""

    async def read(self, type: EntityType, name: str | None = None) -> Mapping[str, object]:
        """Attributes of one entity."""
        ...

    async def changed_states(self, token: str) -> ChangedStates:
        """The states that changed since the reply with this token."""
        ...

    async def query(self, type: EntityType, *, offset: int, count: int) -> QueryPage:
        """One page of entities in name order."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


Connect = Callable[[], Awaitable[ManagementConnection]]


def over_unix_socket(socket: Path) -> Connect:
    """A function that connects to the broker's Unix socket."""

    async def connect() -> ManagementConnection:
        return await ManagementClient.connect(f"unix:{socket}", container_id="penstock-observer")

    return connect


def machine_ms() -> float:
    """Milliseconds since the machine was started. Nobody sets this clock, and where it can it goes on while the machine
    sleeps: that the broker's clock went on then is no step.
    """
    return 1000 * time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class KnownStates:
    """The states of all subscriptions, put together from what the broker told."""

    def __init__(self) -> None:
        self.token = ""
        """What the next question names; empty: everything is asked for."""
        self._by_name: dict[str, SubscriptionState] = {}
        self._names: list[str] = []
        """Ascending; as many as there are states, or to be made again."""

    def merge(self, told: ChangedStates, token: str) -> None:
        """A reply of the broker, and the token in it. Raises ValidationError; then nothing was changed."""
        states = [SubscriptionState.read(attributes) for attributes in told.page.results]
        if told.is_whole:
            self._by_name = {}
            self._names = []
        for name in told.removed:
            if self._by_name.pop(name, None) is not None:
                self._names = []
        for state in states:
            if state.queue_name not in self._by_name:
                self._names = []
            self._by_name[state.queue_name] = state
        self.token = token

    def states(self) -> tuple[SubscriptionState, ...]:
        """By queue name."""
        if len(self._names) != len(self._by_name):
            self._names = sorted(self._by_name)
        return tuple([self._by_name[name] for name in self._names])


class PolledBroker:
    """A broker polled over a management connection, which is opened when needed and again after a failure."""

    def __init__(
        self, connect: Connect, memory: ClockMemory | None = None, clock_ms: Callable[[], float] = machine_ms
    ) -> None:
        """`memory`: what an observer before this one saw of the clock; None: nothing is known, nor remembered."""
        self._connect = connect
        self._memory = memory
        self._clock_ms = clock_ms
        self._clock: BrokerClock | None = None
        self._client: ManagementConnection | None = None
        self._known = KnownStates()

    async def poll(self) -> Poll:
        """Read the broker and all its subscriptions. On a failure, close the connection and raise BrokerAway."""
        try:
            if self._client is None:
                self._client = await self._connect()
            return self._on_one_clock(*await self._read(self._client))
        except FAILURES as error:
            await self.close()
            raise BrokerAway(f"the broker does not answer: {error or type(error).__name__}") from error
        except ValidationError as error:
            await self.close()
            raise BrokerAway(
                f"the broker's answer was not understood: {validation_messages(error)[0]}; is it of another release?"
            ) from error

    async def _read(self, client: ManagementConnection) -> tuple[Poll, ClockReading]:
        while True:
            told = await client.changed_states(self._known.token)
            if told.token is None:
                self._known = KnownStates()
                return await self._complete_poll(client)
            self._known.merge(told, told.token)
            if not told.left:
                broker, reading = await self._read_broker(client)
                return Poll(broker, self._known.states()), reading

    async def _complete_poll(self, client: ManagementConnection) -> tuple[Poll, ClockReading]:
        """Of a broker of an earlier release."""
        for _ in range(ATTEMPTS - 1):
            states, is_complete = await _all_states(client)
            broker, reading = await self._read_broker(client)
            if is_complete:
                return Poll(broker, states), reading
        states, is_complete = await _all_states(client)
        broker, reading = await self._read_broker(client)
        return Poll(broker, states, is_complete), reading

    async def _read_broker(self, client: ManagementConnection) -> tuple[BrokerState, ClockReading]:
        """To be asked last: its time is that of the poll, and no message that the poll shows may be younger than
        that.
        """
        asked_ms = self._clock_ms()
        broker = BrokerState.read(await client.read(EntityType.BROKER))
        return broker, ClockReading(broker.now_ms, asked_ms, self._clock_ms())

    def _on_one_clock(self, poll: Poll, reading: ClockReading) -> Poll:
        instance = poll.broker.instance_id
        if self._clock is None:
            self._clock = BrokerClock(() if self._memory is None else self._memory.load(instance))
        step_ms = self._clock.read(reading)
        if step_ms:
            if self._memory is not None:
                self._memory.save(instance, self._clock.clocks)
            log.warning(
                "the broker's clock was set %s by %d s; its states are Unknown until that is a window ago",
                "forward" if step_ms > 0 else "back",
                round(abs(step_ms) / 1000),
            )
        return replace(poll, subscriptions=self._clock.on_present_clock(poll.subscriptions), clock_step_ms=step_ms)

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            try:
                await client.close()
            except FAILURES as error:
                log.debug("closing the management connection: %s", error)


async def _all_states(client: ManagementConnection) -> tuple[tuple[SubscriptionState, ...], bool]:
    """All states by name, page by page; false if some came or went meanwhile."""
    states: dict[str, SubscriptionState] = {}
    totals: set[int] = set()
    offset = 0
    while True:
        page = await client.query(EntityType.SUBSCRIPTION, offset=offset, count=MAX_COUNT)
        totals.add(page.total_count)
        for attributes in page.results:
            state = SubscriptionState.read(attributes)
            states[state.queue_name] = state
        offset += len(page.results)
        if not page.results or offset >= page.total_count:
            break
    return tuple(states[name] for name in sorted(states)), totals == {len(states)}
