"""`BrokerManagement` over AMQP: the management client of penstock_amqp, with its errors mapped in one place."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

from pydantic import ValidationError

from penstock_amqp.client.address import Address
from penstock_amqp.client.errors import ManagementError, NoAnswer, RequestRefused
from penstock_amqp.client.management import ListedEntity, ManagementClient, ManagementReply, Page
from penstock_amqp.sasl.client import Login, NotAuthenticated
from penstock_api.management import LISTED_BY, MAX_COUNT, Deletion, EntityType, Owner
from penstock_api.state_documents import BrokerState
from penstock_api.validation_messages import validation_messages
from penstock_operator.brokers.declared_entities import KEPT
from penstock_operator.brokers.management import (
    EntityChanges,
    EntityVersion,
    ManagementAccess,
    NotUnderstood,
    Unanswered,
    Unreachable,
)
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity

__all__ = ["connect"]

logger = logging.getLogger(__name__)

_TIMEOUT_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 2.0
"""So long an address may neither accept nor refuse a connection (docs/decisions/107-addresses-of-deleted-pods.md)."""
_ATTEMPTS: Final = 3
"""So often a list of several pages is read if the topology changes while it is read."""
_MOST_ROWS: Final = 500_000
"""A list of a broker has at most so many rows, and `_MOST_CHARACTERS`, or it is taken for an invalid reply: the image
of a Broker may send pages without an end, and all Brokers share the operator's memory.
"""
_MOST_CHARACTERS: Final = 128 * 1024 * 1024
_READ: Final = tuple(sorted({*KEPT, "revision"}))
"""What is read of the replies to declarations. The whole state of a subscription is several times as long, and to write
and read it was half of the work of a declaration.
"""


async def connect(access: ManagementAccess) -> AmqpManagement:
    """Connect to a broker's management listener; raises Unreachable, Unanswered if nothing is there."""
    async with _mapped(access.server_name):
        address = Address(
            host=access.host,
            port=access.port,
            tls=ssl.create_default_context(cadata=access.ca.decode()),
            server_name=access.server_name,
            answer_seconds=_ANSWER_SECONDS,
        )
        client = await ManagementClient.connect(
            address,
            login=Login(access.user, access.password),
            timeout_seconds=_TIMEOUT_SECONDS,
            container_id="penstock-operator",
        )
    client.before_change = access.before_change
    return AmqpManagement(client, access.server_name)


class AmqpManagement:
    """One connection to a broker's management."""

    def __init__(self, client: ManagementClient, server_name: str) -> None:
        self._client = client
        self._server_name = server_name
        self._marks_queues = False
        """Whether the broker tells the owner marks of queues. One of an earlier release would look at all messages."""

    async def state(self) -> BrokerState:
        """What the broker reports about itself."""
        async with _mapped(self._server_name):
            said = await self._client.read(EntityType.BROKER)
        try:
            state = BrokerState.read(said)
        except ValidationError as error:
            version = said.get("version", "unknown")
            raise NotUnderstood(
                f"The broker, version {version}, reports a state that this operator doesn't understand "
                f"({'; '.join(validation_messages(error))}). Upgrade the CRDs and the operator; until then the broker "
                "keeps what it has."
            ) from error
        self._marks_queues = "queue.owner" in (state.understands or ())
        return state

    async def declare(self, entries: Sequence[DeclareEntity]) -> Sequence[BrokerReply]:
        """Create or update each entity, in order."""
        commands = [ListedEntity(entry.entity, entry.name, entry.body) for entry in entries]
        async with _mapped(self._server_name):
            return [_reply(found) for found in await self._client.create_all(commands, attributes=_READ)]

    async def delete(self, entries: Sequence[DeleteEntity]) -> Sequence[BrokerReply]:
        """Delete each entity, in order."""
        commands = [
            ListedEntity(
                entry.entity,
                entry.name,
                Deletion(
                    if_unused=entry.if_unused,
                    if_empty=entry.if_empty,
                    owner_uid=entry.owner_uid,
                    rights_only=entry.rights_only,
                ),
            )
            for entry in entries
        ]
        async with _mapped(self._server_name):
            return [_reply(found) for found in await self._client.delete_all(commands)]

    async def changes(self, since: int | None) -> EntityChanges:
        """The exchanges, subscriptions and queues whose declarations changed since a revision, or all of them."""
        async with _mapped(self._server_name):
            changes = await self._changes(since)
            for _ in range(_ATTEMPTS - 1):
                if changes.revision is not None:
                    break
                changes = await self._changes(since)
        return changes

    async def _changes(self, since: int | None) -> EntityChanges:
        """One attempt. If the topology changed between the pages of a list, an entity may be missing in it; then the
        revision is None.
        """
        there: list[EntityVersion] = []
        removed: list[tuple[EntityType, str]] = []
        revisions: list[int | None] = []
        for entity, name in LISTED_BY.items():
            is_marked = entity is not EntityType.QUEUE or self._marks_queues
            attributes = [name, "owner", "revision"] if is_marked else [name]
            pages = await self._pages(entity, attributes, since)
            if since is not None and any(page.is_whole for page in pages):
                return await self._changes(None)
            there += [self._version(entity, row) for page in pages for row in page.results]
            removed += [(entity, gone) for page in pages for gone in page.removed]
            first, last = pages[0].revision, pages[-1].revision
            revisions.append(first if first == last else None)
        known = [revision for revision in revisions if revision is not None]
        revision = min(known) if len(known) == len(revisions) else None
        return EntityChanges(revision, since is None, there, removed)

    def _version(self, entity: EntityType, row: Mapping[str, object]) -> EntityVersion:
        name, revision = _name(row, LISTED_BY[entity], self._server_name), row.get("revision")
        return EntityVersion(entity, name, _owner(row), revision if isinstance(revision, int) else None)

    async def _pages(self, entity: EntityType, attributes: Sequence[str], since: int | None) -> list[Page]:
        pages: list[Page] = []
        rows = characters = 0
        while True:
            page = await self._client.query(entity, offset=rows, attributes=attributes, changed_since=since)
            pages.append(page)
            rows += len(page.results)
            characters += len(str(page.results)) + len(str(page.removed))
            if len(page.results) > MAX_COUNT or rows > _MOST_ROWS or characters > _MOST_CHARACTERS:
                raise Unreachable(
                    f"{self._server_name} sent an invalid reply: a list of more than {_MOST_ROWS:,} entries, of "
                    f"{_MOST_CHARACTERS // 2**20} MiB, or of {MAX_COUNT:,} in one page"
                )
            if len(page.results) < MAX_COUNT:
                return pages

    async def bound_subscriptions(self) -> Mapping[str, int]:
        """How many subscriptions are bound to each exchange, by its name."""
        async with _mapped(self._server_name):
            pages = await self._pages(EntityType.EXCHANGE, ["name", "boundSubscriptions"], None)
        rows = [row for page in pages for row in page.results]
        return {
            _name(row, "name", self._server_name): bound
            for row in rows
            if isinstance(bound := row.get("boundSubscriptions"), int)
        }

    async def close(self) -> None:
        """Close the connection; an error while closing is ignored."""
        try:
            await self._client.close()
        except (OSError, TimeoutError):
            return


def _name(row: Mapping[str, object], key: str, server_name: str) -> str:
    """The name in a row of a list. Raises Unreachable if the row has none: who is meant is then not known."""
    found = row.get(key)
    if not isinstance(found, str):
        raise Unreachable(f"{server_name} sent an invalid reply: a row of a list has no `{key}`")
    return found


def _owner(attributes: Mapping[str, object]) -> Owner | None:
    """The owner mark of an entity; None if it has none, or if a later release of the operator set one that this release
    can't parse: such an entity must be left alone.
    """
    try:
        return None if attributes.get("owner") is None else Owner.read(attributes["owner"])
    except ValidationError as error:
        logger.info("an owner mark of another release is ignored: %s", error)
        return None


def _reply(reply: ManagementReply) -> BrokerReply:
    body = reply.body
    return BrokerReply(
        status=reply.status,
        description=reply.description,
        condition=reply.condition,
        reason=reply.reason,
        body=cast(Mapping[str, object], body) if isinstance(body, dict) else {},
    )


@asynccontextmanager
async def _mapped(server_name: str) -> AsyncGenerator[None]:
    """Maps every error of the client to Unreachable with a plain sentence."""
    try:
        yield
    except NoAnswer as error:
        raise Unanswered(f"{server_name} can't be reached: {error}") from error
    except TimeoutError as error:
        raise Unreachable(f"{server_name} does not answer") from error
    except NotAuthenticated as error:
        raise Unreachable(f"{server_name} does not accept the operator's password: {error}") from error
    except (ManagementError, RequestRefused) as error:
        raise Unreachable(f"{server_name} refused a request: {error}") from error
    except ValidationError as error:
        raise Unreachable(f"{server_name} sent an invalid reply: {validation_messages(error)[0]}") from error
    except OSError as error:
        raise Unreachable(f"{server_name} can't be reached: {error}") from error
