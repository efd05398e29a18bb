"""A session sends nothing for what the broker has already, and has healed what others change. Time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

import pytest
from support.resources import NOW, broker_state, subscription
from support.virtual_time import run_in_virtual_time

from penstock_api import declaration
from penstock_api.management import EntityType, Owner, SubscriptionDeclaration
from penstock_api.state_documents import BrokerState
from penstock_operator.brokers.management import (
    BrokerManagement,
    EntityChanges,
    EntityVersion,
    ManagementAccess,
    Unreachable,
)
from penstock_operator.brokers.session import BrokerSession
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity

TARGET = ManagementAccess(host="127.0.0.1", port=1, server_name="b", ca=b"", user="u", password="p")
T = TypeVar("T")


@dataclass
class Versioned:
    """A broker with subscriptions and their revisions. It knows all removals, and counts what it is asked."""

    there: dict[str, tuple[SubscriptionDeclaration, int]] = field(
        default_factory=dict[str, tuple[SubscriptionDeclaration, int]]
    )
    removed: dict[str, int] = field(default_factory=dict[str, int])
    revision: int = 1
    epoch: int = 1
    is_up: bool = True
    is_old: bool = False
    """Of a release that does not tell its revision."""
    declarations: int = 0
    deletions: int = 0
    refuses_count: bool = False
    """Whether the connection is lost when it is asked how many subscriptions its exchanges have."""
    counted: int = 0
    """How often it was asked how many subscriptions its exchanges have."""
    lists: list[int | None] = field(default_factory=list[int | None])
    """The revisions of the requests for changes."""

    async def connect(self, access: ManagementAccess) -> BrokerManagement:
        await self._check()
        return cast(BrokerManagement, self)

    async def _check(self) -> None:
        if not self.is_up:
            raise Unreachable("it is down")

    async def state(self) -> BrokerState:
        await self._check()
        return broker_state(epoch=self.epoch, topology_revision=None if self.is_old else self.revision)

    async def declare(self, entries: Sequence[DeclareEntity]) -> Sequence[BrokerReply]:
        await self._check()
        self.declarations += len(entries)
        return [self._declare(cast(SubscriptionDeclaration, entry.body)) for entry in entries]

    def _declare(self, body: SubscriptionDeclaration) -> BrokerReply:
        name = f"psub:durable:global:{body.subscription_name}"
        if self.there.get(name, (None, 0))[0] != body:
            self.revision += 1
            self.there[name] = body, self.revision
        return BrokerReply(status=200, body={"outcome": "Updated", "revision": self.there[name][1]})

    async def delete(self, entries: Sequence[DeleteEntity]) -> Sequence[BrokerReply]:
        self.deletions += len(entries)
        for entry in entries:
            if not entry.rights_only:
                self.loses(entry.name)
            elif self.there[entry.name][0].consumers:
                self.revision += 1
                body = self.there[entry.name][0].model_copy(update={"consumers": ()})
                self.there[entry.name] = body, self.revision
        return [BrokerReply(status=204) for _ in entries]

    def loses(self, name: str) -> None:
        """Somebody deletes a subscription."""
        del self.there[name]
        self.revision += 1
        self.removed[name] = self.revision

    def changes_it(self, name: str) -> None:
        """Somebody changes a subscription."""
        self.revision += 1
        body = self.there[name][0].model_copy(update={"selector": "theirs = 1"})
        self.there[name] = body, self.revision

    async def changes(self, since: int | None) -> EntityChanges:
        await self._check()
        self.lists.append(since)
        rows = [
            EntityVersion(EntityType.SUBSCRIPTION, name, body.owner, revision)
            for name, (body, revision) in self.there.items()
            if since is None or revision > since
        ]
        gone = [
            (EntityType.SUBSCRIPTION, name)
            for name, revision in self.removed.items()
            if since is not None and revision > since
        ]
        return EntityChanges(self.revision, since is None, rows, gone)

    async def bound_subscriptions(self) -> Mapping[str, int]:
        if self.refuses_count:
            raise Unreachable("the connection is lost")
        self.counted += 1
        return {}

    async def close(self) -> None:
        return


@dataclass
class Place:
    """The operator's session with that broker, and whose entities it was told to look at."""

    broker: Versioned = field(default_factory=Versioned)
    drifted: list[str] = field(default_factory=list[str])
    sessions: BrokerSessions = field(init=False)

    def __post_init__(self) -> None:
        self.sessions = BrokerSessions(self.broker.connect, 5, lambda: NOW)

    async def session(self, access: ManagementAccess = TARGET) -> BrokerSession:
        session = await self.sessions.ensure("shop/main", access, lambda _: None, self._told)
        await asyncio.sleep(1)
        return session

    def _told(self, owner: Owner) -> None:
        self.drifted.append(owner.name)

    async def resync(self, count: int = 3) -> int:
        """All resources are reconciled, and orphans looked for; so many declarations are sent."""
        session = await self.session()
        before = self.broker.declarations
        await asyncio.gather(*(session.declare(entry(number)) for number in range(count)))
        await session.marked_entities()
        return self.broker.declarations - before


def entry(number: int) -> DeclareEntity:
    made = subscription(metadata={"name": f"s{number}", "uid": f"uid-{number}"})
    body = declaration.subscription_declaration(made, exchange="orders", cluster_id="c1")
    return DeclareEntity(EntityType.SUBSCRIPTION, None, body)


def play(script: Callable[[Place], Awaitable[T]], place: Place | None = None) -> T:
    async def run() -> T:
        made = place or Place()
        try:
            return await script(made)
        finally:
            await made.sessions.close()

    return run_in_virtual_time(run())


def test_ten_thousand_unchanged_resources_cost_a_resync_no_declaration() -> None:
    async def script(place: Place) -> list[int]:
        return [await place.resync(10_000) for _ in range(3)]

    assert play(script) == [10_000, 0, 0]


def test_while_nothing_changes_the_broker_is_asked_for_its_state_only() -> None:
    async def script(place: Place) -> list[int | None]:
        await place.resync()
        await asyncio.sleep(20)
        place.broker.lists.clear()
        await asyncio.sleep(600)
        return place.broker.lists

    assert play(script) == []


@pytest.mark.parametrize("is_old", [False, True], ids=["with-revisions", "without"])
def test_who_has_to_know_what_the_broker_has_asks_once_in_its_life_however_many_ask(is_old: bool) -> None:
    async def script(place: Place) -> tuple[list[list[int | None]], list[str | None]]:
        name = "psub:durable:global:s0"
        body = cast(SubscriptionDeclaration, entry(0).body)
        place.broker.there[name] = body, 1
        asked: list[list[int | None]] = []
        owners: list[str | None] = []
        for epoch in (1, 2):
            place.broker.epoch, place.broker.is_up = epoch, True
            session = await place.session()
            await asyncio.sleep(10 * (epoch - 1))  # until it has connected again
            await asyncio.gather(*(session.know_entities() for _ in range(200)))
            owner = session.declared.owner_of(EntityType.SUBSCRIPTION, name)
            owners.append(None if owner is None else owner.name)
            asked.append(place.broker.lists.copy())
            place.broker.lists.clear()
            place.broker.is_up = False
            await asyncio.sleep(10)
        return asked, owners

    assert play(script, Place(Versioned(is_old=is_old))) == ([[None], [None]], ["s0", "s0"])


def test_who_has_to_know_what_a_broker_has_that_is_away_is_told_so() -> None:
    async def script(place: Place) -> str:
        session = await place.session()
        place.broker.is_up = False
        await asyncio.sleep(10)
        with pytest.raises(Unreachable) as told:
            await session.know_entities()
        return str(told.value)

    assert play(script) == "it is down"


def test_what_somebody_changes_or_deletes_on_the_broker_is_declared_again_within_seconds() -> None:
    async def script(place: Place) -> tuple[list[str], int, int]:
        await place.resync()
        await asyncio.sleep(20)
        place.broker.changes_it("psub:durable:global:s0")
        place.broker.loses("psub:durable:global:s2")
        await asyncio.sleep(6)
        told = sorted(place.drifted)
        return told, await place.resync(), await place.resync()

    assert play(script) == (["s0", "s2"], 2, 0)


def test_a_broker_that_lost_its_volume_is_declared_anew() -> None:
    async def script(place: Place) -> list[int]:
        sent = [await place.resync()]
        place.broker.there.clear()
        place.broker.epoch, place.broker.is_up = 2, False
        await asyncio.sleep(10)
        place.broker.is_up = True
        await asyncio.sleep(20)
        return [*sent, await place.resync()]

    assert play(script) == [3, 3]


def test_after_a_lost_connection_nothing_is_declared_again() -> None:
    async def script(place: Place) -> list[int]:
        sent = [await place.resync()]
        place.broker.is_up = False
        await asyncio.sleep(10)
        place.broker.is_up = True
        await asyncio.sleep(20)
        sent.append(await place.resync())
        await place.session(replace(TARGET, password="q"))
        return [*sent, await place.resync()]

    assert play(script) == [3, 0, 0]


def test_what_somebody_did_while_the_connection_was_lost_is_healed() -> None:
    async def script(place: Place) -> list[str]:
        await place.resync()
        await asyncio.sleep(20)
        place.broker.is_up = False
        await asyncio.sleep(10)
        place.broker.loses("psub:durable:global:s1")
        place.broker.is_up = True
        await asyncio.sleep(30)
        return place.drifted

    assert play(script) == ["s1"]


def test_a_broker_that_does_not_tell_its_revision_is_compared_at_each_resync() -> None:
    async def script(place: Place) -> tuple[list[int], list[str]]:
        sent = [await place.resync(), await place.resync()]
        place.broker.changes_it("psub:durable:global:s0")
        place.broker.loses("psub:durable:global:s2")
        sent += [await place.resync(), await place.resync()]
        return sent, sorted(place.drifted)

    assert play(script, Place(Versioned(is_old=True))) == ([3, 0, 0, 2], ["s0", "s2"])


def test_what_the_operator_deletes_is_no_drift() -> None:
    async def script(place: Place) -> tuple[list[str], int]:
        await place.resync()
        session = await place.session()
        name = "psub:durable:global:s1"
        deletion = DeleteEntity(
            entity=EntityType.SUBSCRIPTION, name=name, if_unused=True, if_empty=False, owner_uid="uid-1"
        )
        await session.delete(deletion)
        await asyncio.sleep(20)
        return place.drifted, len(await session.marked_entities())

    assert play(script) == ([], 2)


def test_bound_subscriptions_are_counted_once_per_change() -> None:
    """Somebody's change is one, which a poll finds, and that it is put right by the resync is another."""

    async def script(place: Place) -> list[int]:
        seen: list[int] = []
        await place.resync()
        seen.append(place.broker.counted)
        await place.resync()
        seen.append(place.broker.counted)
        place.broker.changes_it("psub:durable:global:s0")
        await asyncio.sleep(20)
        await place.resync()
        return [*seen, place.broker.counted]

    assert play(script) == [1, 1, 3]


def test_bound_subscriptions_are_counted_within_two_polls_of_the_last_change_and_no_more() -> None:
    """A poll is every 5 s, the next resync is far."""

    async def script(place: Place) -> list[int]:
        await place.resync()
        seen: list[int] = []
        for _ in range(3):  # a change with each poll
            place.broker.changes_it("psub:durable:global:s0")
            await asyncio.sleep(5)
            seen.append(place.broker.counted)
        await asyncio.sleep(5)
        seen.append(place.broker.counted)
        await asyncio.sleep(600)
        return [*seen, place.broker.counted]

    assert play(script) == [1, 1, 1, 2, 2]


def test_a_count_that_is_not_answered_is_asked_for_again() -> None:
    async def script(place: Place) -> list[int]:
        await place.resync()
        place.broker.changes_it("psub:durable:global:s0")
        place.broker.refuses_count = True
        await asyncio.sleep(12)
        place.broker.refuses_count = False
        seen = [place.broker.counted]
        await asyncio.sleep(20)
        return [*seen, place.broker.counted]

    assert play(script) == [1, 2]


def test_a_resource_that_may_not_use_the_broker_any_more_costs_nothing_once_its_rights_have_ended() -> None:
    """It is looked at again at each resync."""

    async def script(place: Place) -> list[int]:
        given = entry(1).body.model_copy(update={"consumers": ("system:serviceaccount:billing:app",)})
        session = await place.session()
        await session.declare(replace(entry(1), body=given))
        ending = DeleteEntity(
            entity=EntityType.SUBSCRIPTION,
            name="psub:durable:global:s1",
            if_unused=False,
            if_empty=False,
            owner_uid="uid-1",
            rights_only=True,
        )
        seen: list[int] = []
        for _ in range(5):
            await session.delete(ending)
            await asyncio.sleep(120)
            seen.append(place.broker.deletions)
        return seen

    assert play(script) == [1, 2, 2, 2, 2]
