"""Declares a topology on a broker through its management socket, and reports the outcome of each declaration.

What an earlier run declared and the manifests no longer do is reported as orphaned. It is deleted only with `--prune`,
and only as its deletion policy allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from penstock_amqp.client.errors import ManagementError
from penstock_amqp.client.management import ListedEntity, ManagementClient, ManagementReply
from penstock_api.declaration import LOCAL_CLUSTER
from penstock_api.failure import Failure
from penstock_api.management import DeclarationOutcome, Deletion, EntityType, Owner
from penstock_api.state_documents import ExchangeState, SubscriptionState
from penstock_cli.up.topology import DeclaredEntity

__all__ = ["Declaration", "OrphanedEntity", "declare"]

LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Declaration:
    """One CREATE and the broker's reply."""

    declared: DeclaredEntity
    answer: ManagementReply

    @property
    def is_news(self) -> bool:
        """False if the broker had it already, just as declared."""
        return self._outcome != DeclarationOutcome.UNCHANGED.value

    @property
    def _outcome(self) -> str:
        return str(self.answer.attributes.get("outcome", "")) if self.answer.is_success else "Refused"

    def __str__(self) -> str:
        text = f"{self.declared.resource}: {self._outcome}"
        if not self.answer.is_success:
            return f"{text}: {self.answer.description} ({self.answer.reason or self.answer.status})"
        blocked = self.answer.attributes.get("blockedBy")
        return f"{text} by {blocked}" if blocked is not None else text


@dataclass(frozen=True, slots=True)
class OrphanedEntity:
    """Something on the broker that an earlier manifest declared and none does now."""

    type: EntityType
    name: str
    owner: Owner
    depth: int = 0
    """Messages that wait in it."""
    fate: str = "it stays; `penstock up --prune` removes it"

    is_news = True

    def __str__(self) -> str:
        waiting = f" with {self.depth} messages" if self.depth else ""
        resource = f"{self.owner.kind} {self.owner.namespace}/{self.owner.name}"
        return f"{resource}{waiting} is in no manifest any more: {self.fate}"


async def declare(
    socket: Path, topology: Sequence[DeclaredEntity], seconds: float, *, prune: bool = False
) -> list[Declaration | OrphanedEntity]:
    """Wait for the broker to serve its management socket, then declare all of `topology` in its order.

    A refused declaration does not affect the others; the refusal is in the result.

    Raises:
        Failure: the broker does not serve within `seconds`, or closes the connection meanwhile.
    """
    client = await _connect(socket, seconds)
    try:
        answers: list[ManagementReply] = []
        for kind in (EntityType.EXCHANGE, EntityType.QUEUE, EntityType.SUBSCRIPTION):
            entries = [ListedEntity(one.type, one.name, one.body) for one in topology if one.type is kind]
            answers += await client.create_all(entries)
        orphans = await _orphans(client, topology)
        if prune:
            orphans = await _removed(client, orphans)
    except (ConnectionError, TimeoutError) as error:
        raise Failure(f"the broker was lost while topology was declared: {error}.", "See the broker's log.") from error
    finally:
        await client.close()
    return [*(Declaration(one, answer) for one, answer in zip(topology, answers, strict=True)), *orphans]


async def _orphans(client: ManagementClient, topology: Sequence[DeclaredEntity]) -> list[OrphanedEntity]:
    """Subscriptions and queues before exchanges, the order in which they can be removed."""
    declared = {(one.type, one.name) for one in topology}
    found = [
        OrphanedEntity(EntityType.SUBSCRIPTION, state.queue_name, state.owner, state.depth)
        for state in await client.states(SubscriptionState)
        if state.owner is not None
    ]
    found += [
        OrphanedEntity(EntityType.QUEUE, str(row["name"]), Owner.read(row["owner"]), int(str(row["depth"])))
        for row in await client.query_all(EntityType.QUEUE, attributes=("name", "owner", "depth"))
        if row["owner"] is not None
    ]
    found += [
        OrphanedEntity(EntityType.EXCHANGE, state.name, state.owner)
        for state in await client.states(ExchangeState)
        if state.owner is not None
    ]
    return [one for one in found if one.owner.cluster_id == LOCAL_CLUSTER and (one.type, one.name) not in declared]


async def _removed(client: ManagementClient, orphans: Sequence[OrphanedEntity]) -> list[OrphanedEntity]:
    """Delete the orphans as their policies allow; return the same orphans, each with what happened to it."""
    done: list[OrphanedEntity] = []
    for orphan in orphans:
        policy = orphan.owner.deletion_policy
        if policy == "Retain":
            done.append(replace(orphan, fate="it stays, as its deletionPolicy says"))
            continue
        wish = Deletion(if_unused=True, if_empty=policy == "DeleteWhenEmpty", owner_uid=orphan.owner.uid)
        try:
            await client.delete(orphan.type, orphan.name, wish)
        except ManagementError as refusal:
            done.append(replace(orphan, fate=f"it stays: {refusal}"))
        else:
            done.append(replace(orphan, fate="removed"))
    return done


async def _connect(socket: Path, seconds: float) -> ManagementClient:
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            return await ManagementClient.connect(f"unix:{socket}")
        except (OSError, TimeoutError) as error:  # not there yet
            if asyncio.get_running_loop().time() > deadline:
                raise Failure(f"the broker does not answer on {socket} after {seconds:.0f} s: {error}") from error
            await asyncio.sleep(LOOK_SECONDS)
