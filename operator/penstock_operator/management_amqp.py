"""`management.Management` over AMQP: the client of penstock_amqp, with its errors mapped in one place."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

from pydantic import ValidationError

from penstock_amqp.client.client import Address
from penstock_amqp.client.errors import ManagementError, RequestRefused
from penstock_amqp.client.management import ListedEntity, ManagementClient, ManagementReply
from penstock_amqp.sasl.client import Login, NotAuthenticated
from penstock_api.faults import faults
from penstock_api.management import BrokerState, Deletion, EntityType, Owner
from penstock_operator.decisions import Answer, Declare, Undeclare
from penstock_operator.management import NotUnderstood, Target, Unreachable
from penstock_operator.orphans import Marked

__all__ = ["connect"]

logger = logging.getLogger(__name__)

_TIMEOUT_SECONDS: Final = 10.0
_NAME: Final = {EntityType.EXCHANGE: "name", EntityType.SUBSCRIPTION: "queueName"}


async def connect(target: Target) -> AmqpManagement:
    """Connect to a broker's management listener; raises Unreachable."""
    context = ssl.create_default_context(cadata=target.ca.decode())
    address = Address(host=target.host, port=target.port, tls=context, server_name=target.server_name)
    async with _mapped(target.server_name):
        client = await ManagementClient.connect(
            address,
            login=Login(target.user, target.password),
            timeout_seconds=_TIMEOUT_SECONDS,
            container_id="penstock-operator",
        )
    return AmqpManagement(client, target.server_name)


class AmqpManagement:
    """One connection."""

    def __init__(self, client: ManagementClient, server_name: str) -> None:
        self._client = client
        self._server_name = server_name

    async def state(self) -> BrokerState:
        """The broker itself."""
        async with _mapped(self._server_name):
            said = await self._client.read(EntityType.BROKER)
        try:
            return BrokerState.read(said)
        except ValidationError as error:
            version = said.get("version", "unknown")
            raise NotUnderstood(
                f"The broker, version {version}, says of itself what this operator doesn't understand "
                f"({'; '.join(faults(error))}). Upgrade the CRDs and the operator; until then the broker keeps what it "
                "has."
            ) from error

    async def declare(self, entries: Sequence[Declare]) -> Sequence[Answer]:
        """CREATE of each, in order."""
        asked = [ListedEntity(entry.entity, entry.name, entry.body) for entry in entries]
        async with _mapped(self._server_name):
            return [_answer(found) for found in await self._client.create_all(asked)]

    async def undeclare(self, entries: Sequence[Undeclare]) -> Sequence[Answer]:
        """DELETE of each, in order."""
        asked = [
            ListedEntity(
                entry.entity,
                entry.name,
                Deletion(if_unused=entry.if_unused, if_empty=entry.if_empty, owner_uid=entry.owner_uid),
            )
            for entry in entries
        ]
        async with _mapped(self._server_name):
            return [_answer(found) for found in await self._client.delete_all(asked)]

    async def marked(self) -> Sequence[Marked]:
        """Everything that bears an owner mark."""
        found: list[Marked] = []
        async with _mapped(self._server_name):
            for entity, name in _NAME.items():
                for attributes in await self._client.query_all(entity, attributes=[name, "owner"]):
                    owner = _owner(attributes)
                    if owner is not None:
                        found.append(Marked(str(attributes[name]), owner))
        return found

    async def close(self) -> None:
        """Close the connection; what it was doing is over anyway."""
        try:
            await self._client.close()
        except (OSError, TimeoutError):
            return


def _owner(attributes: Mapping[str, object]) -> Owner | None:
    """The mark of an entity; None if there is none, or a later operator set one whose kind or policy isn't known here:
    then nothing may be done to the entity in its name.
    """
    try:
        return None if attributes.get("owner") is None else Owner.read(attributes["owner"])
    except ValidationError as error:
        logger.info("a mark of another release is left alone: %s", error)
        return None


def _answer(answer: ManagementReply) -> Answer:
    body = answer.body
    return Answer(
        status=answer.status,
        description=answer.description,
        condition=answer.condition,
        reason=answer.reason,
        body=cast(Mapping[str, object], body) if isinstance(body, dict) else {},
    )


@asynccontextmanager
async def _mapped(server_name: str) -> AsyncGenerator[None]:
    """Every way in which a broker can fail to answer, as Unreachable with a sentence."""
    try:
        yield
    except TimeoutError as error:
        raise Unreachable(f"{server_name} does not answer") from error
    except NotAuthenticated as error:
        raise Unreachable(f"{server_name} does not take the operator's password: {error}") from error
    except (ManagementError, RequestRefused) as error:
        raise Unreachable(f"{server_name} refused a request: {error}") from error
    except ValidationError as error:
        raise Unreachable(f"{server_name} answered what does not fit: {faults(error)[0]}") from error
    except OSError as error:
        raise Unreachable(f"{server_name} can't be reached: {error}") from error
