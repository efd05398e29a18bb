"""Polls of a broker over ``$management``: the states of the subscriptions that changed, then one READ of the broker.

The states that are known are kept from poll to poll, also over a lost connection, and a state that did not change stays
the same object. A broker of an earlier release tells all states each time, page by page: subscriptions may be made or
deleted between two pages, so a poll during which that happened is repeated; if it happens again and again, the poll is
marked as not complete. Source: docs/reference/management.md, "States that changed".
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from pydantic import ValidationError

from penstock_amqp.client.errors import ManagementError, RequestRefused
from penstock_amqp.client.management import ChangedStates, ManagementClient
from penstock_amqp.sasl.client import NotAuthenticated
from penstock_api.management import MAX_COUNT, BrokerState, EntityType, SubscriptionState
from penstock_api.validation_messages import validation_messages
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

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._client: ManagementConnection | None = None
        self._known = KnownStates()

    async def poll(self) -> Poll:
        """Read the broker and all its subscriptions. On a failure, close the connection and raise BrokerAway."""
        try:
            if self._client is None:
                self._client = await self._connect()
            return await self._read(self._client)
        except FAILURES as error:
            await self.close()
            raise BrokerAway(f"the broker does not answer: {error or type(error).__name__}") from error
        except ValidationError as error:
            await self.close()
            raise BrokerAway(
                f"the broker's answer was not understood: {validation_messages(error)[0]}; is it of another release?"
            ) from error

    async def _read(self, client: ManagementConnection) -> Poll:
        while True:
            told = await client.changed_states(self._known.token)
            if told.token is None:
                self._known = KnownStates()
                return await _complete_poll(client)
            self._known.merge(told, told.token)
            if not told.left:
                # Last: its time is that of the poll, and no message that the poll shows may be younger than that.
                broker = BrokerState.read(await client.read(EntityType.BROKER))
                return Poll(broker, self._known.states())

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            try:
                await client.close()
            except FAILURES as error:
                log.debug("closing the management connection: %s", error)


async def _complete_poll(client: ManagementConnection) -> Poll:
    for _ in range(ATTEMPTS - 1):
        poll = await _read(client)
        if poll.complete:
            return poll
    return await _read(client)


async def _read(client: ManagementConnection) -> Poll:
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
    ordered = tuple(states[name] for name in sorted(states))
    # Last: its time is that of the poll, and no message that the poll shows may be younger than that.
    broker = BrokerState.read(await client.read(EntityType.BROKER))
    return Poll(broker, ordered, complete=totals == {len(states)})
