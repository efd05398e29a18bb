"""What the page asks the broker besides the polls: its exchanges, and the consumers of one subscription.

The answers are kept for `KEPT_SECONDS`, and one question is asked at a time, so that readers who load their pages again
and again cost the broker nothing more. Links are read only up to a bound, because QUERY of links has no filter and the
broker has one thread. Source: docs/reference/management.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

from pydantic import ValidationError

from penstock_amqp.client.errors import ManagementError
from penstock_amqp.client.management import ManagementClient, ManagementReply
from penstock_api.management import MAX_COUNT, EntityType, Operation
from penstock_api.message_operations import PeekReply, PeekRequest
from penstock_api.state_documents import ConnectionState, ExchangeState, LinkState
from penstock_observer.broker_client import FAILURES, ManagementConnection
from penstock_page.documents import Consumer, Exchanges

__all__ = [
    "MOST_CONNECTIONS",
    "BrokerDetails",
    "Connect",
    "DetailsConnection",
    "NotKnown",
    "consumers_of",
    "details_over",
]

log = logging.getLogger(__name__)

KEPT_SECONDS: Final = 10.0
MOST_CONNECTIONS: Final = 1000
ANSWER_SECONDS: Final = 10.0

T = TypeVar("T")


class DetailsConnection(ManagementConnection, Protocol):
    """The part of penstock_amqp's ManagementClient that the page uses."""

    async def request(
        self, operation: Operation, type: EntityType, name: str | None = None, body: object = None
    ) -> ManagementReply:
        """The reply to any request, whatever its status."""
        ...


Connect = Callable[[], Awaitable[DetailsConnection]]


def details_over(socket: Path) -> Connect:
    """A function that connects to the broker's Unix socket."""

    async def connect() -> DetailsConnection:
        return await ManagementClient.connect(f"unix:{socket}", container_id="penstock-observer-page")

    return connect


class NotKnown(Exception):
    """The broker was not asked, or did not answer; the message is a sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class Links:
    """All links and connections of the broker."""

    links: tuple[LinkState, ...]
    connections: tuple[ConnectionState, ...]


class BrokerDetails:
    """Asks a broker, at most once in `KEPT_SECONDS` for each kind of question."""

    def __init__(self, connect: Connect, clock: Callable[[], float]) -> None:
        self._connect = connect
        self._clock = clock
        self._turn = asyncio.Lock()
        self._exchanges: tuple[float, Exchanges] | None = None
        self._links: tuple[float, Links | NotKnown] | None = None

    async def exchanges(self) -> Exchanges:
        """The first exchanges by name, or why they are not known. Never raises."""
        async with self._turn:
            if not self._is_fresh(self._exchanges):
                try:
                    found = await self._ask(_exchanges)
                except NotKnown as error:
                    found = Exchanges(problem=str(error))
                self._exchanges = self._clock(), found
            assert self._exchanges is not None, "set above"
            return self._exchanges[1]

    async def links(self, connections: int) -> Links:
        """All links of a broker with so many connections. Raises NotKnown."""
        if connections > MOST_CONNECTIONS:
            raise NotKnown(
                f"the broker has {connections} connections, and links are read only up to {MOST_CONNECTIONS} of them, "
                "because to list more would take the broker's time from its messages"
            )
        async with self._turn:
            if not self._is_fresh(self._links):
                found: Links | NotKnown
                try:
                    found = await self._ask(_links)
                except NotKnown as error:  # kept, too: a broker that hangs makes each question wait
                    found = error
                self._links = self._clock(), found
            assert self._links is not None, "set above"
            known = self._links[1]
        if isinstance(known, NotKnown):
            raise NotKnown(str(known))
        return known

    async def peek(self, kind: EntityType, queue_name: str, wanted: PeekRequest) -> PeekReply:
        """Messages that wait in a queue, which stay where they are. Raises NotKnown; the broker may refuse."""

        async def question(client: DetailsConnection) -> PeekReply:
            reply = await client.request(Operation.PEEK, kind, queue_name, wanted)
            return PeekReply.read(reply.check().attributes)

        async with self._turn:
            return await self._ask(question)

    def _is_fresh(self, kept: tuple[float, object] | None) -> bool:
        return kept is not None and self._clock() - kept[0] < KEPT_SECONDS

    async def _ask(self, question: Callable[[DetailsConnection], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                client = await self._connect()
                try:
                    return await question(client)
                finally:
                    await client.close()
        except ManagementError as error:
            raise NotKnown(f"the broker refuses: {error.description.rstrip('.')}") from error
        except FAILURES as error:  # a TimeoutError is an OSError
            raise NotKnown(f"the broker does not answer: {error or type(error).__name__}") from error
        except ValidationError as error:
            raise NotKnown("the broker's answer was not understood; is it of another release?") from error


async def _exchanges(client: ManagementConnection) -> Exchanges:
    page = await client.query(EntityType.EXCHANGE, offset=0, count=MAX_COUNT)
    return Exchanges(rows=tuple(ExchangeState.read(each) for each in page.results), total=page.total_count)


async def _links(client: ManagementConnection) -> Links:
    connections = await client.query(EntityType.CONNECTION, offset=0, count=MAX_COUNT)
    links: list[LinkState] = []
    while True:
        page = await client.query(EntityType.LINK, offset=len(links), count=MAX_COUNT)
        links += [LinkState.read(each) for each in page.results]
        if not page.results or len(links) >= page.total_count:
            break
    return Links(tuple(links), tuple(ConnectionState.read(each) for each in connections.results))


def consumers_of(queue_name: str, known: Links) -> Sequence[Consumer]:
    """The links that consume from a queue, those with most deliveries first, with their shares of all deliveries."""
    of = {each.id: each for each in known.connections}
    links = [each for each in known.links if each.queue_name == queue_name and each.role == "Receiver"]
    total = sum(each.transfers for each in links)
    return [
        Consumer(
            container=of[each.connection].container_id if each.connection in of else each.connection,
            user=of[each.connection].user if each.connection in of else "",
            link=each.name,
            transfers=each.transfers,
            share_percent=round(each.transfers * 100 / total) if total else None,
            unsettled=each.unsettled,
            credit=each.credit,
        )
        for each in sorted(links, key=lambda link: (-link.transfers, link.id))
    ]
