"""A broker that lost its volume: how soon the session is there, and what it sends. Time is virtual.

The broker needs half a second for each request, and as many workers as the operator has by default declare everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import cast

import pytest
from support.resources import NOW, broker_state, subscription
from support.virtual_time import run_in_virtual_time

from penstock_api import declaration
from penstock_api.management import EntityType, Owner
from penstock_api.state_documents import BrokerState
from penstock_operator.brokers.management import (
    BrokerManagement,
    EntityChanges,
    EntityVersion,
    ManagementAccess,
    Unreachable,
)
from penstock_operator.brokers.session import BrokerSession
from penstock_operator.brokers.session_change import SessionChange
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, Reach
from penstock_operator.settings import OperatorSettings

TARGET = ManagementAccess(host="127.0.0.1", port=1, server_name="b", ca=b"", user="u", password="p")
WORKERS = OperatorSettings(broker_image="b", lag_image="l").workers
REQUEST_SECONDS = 0.5


def entry(number: int) -> DeclareEntity:
    made = subscription(metadata={"name": f"s{number}", "uid": f"uid-{number}"})
    body = declaration.subscription_declaration(made, exchange="orders", cluster_id="c1")
    return DeclareEntity(EntityType.SUBSCRIPTION, f"psub:durable:global:s{number}", body)


@dataclass
class Wiped:
    """A broker that begins with nothing, and is away until the test says so."""

    is_up: bool = False
    there: dict[str, tuple[Owner | None, int]] = field(default_factory=dict[str, tuple[Owner | None, int]])
    batches: list[int] = field(default_factory=list[int])
    lists: int = 0
    """How often it was asked what has changed."""

    async def connect(self, access: ManagementAccess) -> BrokerManagement:
        self._check()
        return cast(BrokerManagement, self)

    def _check(self) -> None:
        if not self.is_up:
            raise Unreachable("it is down")

    async def state(self) -> BrokerState:
        self._check()
        return broker_state(topology_revision=len(self.there))

    async def declare(self, entries: Sequence[DeclareEntity]) -> Sequence[BrokerReply]:
        self.batches.append(len(entries))
        await asyncio.sleep(REQUEST_SECONDS)
        self._check()
        replies: list[BrokerReply] = []
        for each in entries:
            assert each.name is not None
            self.there[each.name] = each.body.owner, len(self.there) + 1
            replies.append(BrokerReply(status=201, body={"outcome": "Created", "revision": self.there[each.name][1]}))
        return replies

    async def changes(self, since: int | None) -> EntityChanges:
        self.lists += 1
        found = [EntityVersion(EntityType.SUBSCRIPTION, name, *it) for name, it in self.there.items()]
        revision = len(self.there)
        await asyncio.sleep(REQUEST_SECONDS)
        changed = [it for it in found if since is None or (it.revision or 0) > since]
        return EntityChanges(revision, since is None, changed)

    async def bound_subscriptions(self) -> Mapping[str, int]:
        return {}

    async def close(self) -> None:
        return


@dataclass
class Site:
    """The broker, the session with it, and the workers of an operator, which begin when it is reachable."""

    broker: Wiped = field(default_factory=Wiped)
    drifted: list[str] = field(default_factory=list[str])
    reached: list[float] = field(default_factory=list[float])
    """When the broker was reachable."""

    def __post_init__(self) -> None:
        self.sessions = BrokerSessions(self.broker.connect, 5, self.clock)

    def clock(self) -> datetime:
        return NOW + timedelta(seconds=asyncio.get_running_loop().time())

    def _changed(self, change: SessionChange) -> None:
        if change is SessionChange.REACH:
            self.reached.append(asyncio.get_running_loop().time())

    async def session(self) -> BrokerSession:
        return await self.sessions.ensure(
            "shop/main", TARGET, self._changed, lambda owner: self.drifted.append(owner.name)
        )

    async def declare(self, session: BrokerSession, count: int) -> None:
        """What the workers do: each declares one entity after the other."""
        waiting = iter(range(count))

        async def work() -> None:
            for number in waiting:
                await session.declare(entry(number))

        await asyncio.gather(*(work() for _ in range(WORKERS)))


def play(script: Callable[[Site], Awaitable[None]]) -> Site:
    async def run() -> Site:
        site = Site()
        try:
            await script(site)
        finally:
            await site.sessions.close()
        return site

    return run_in_virtual_time(run())


@pytest.mark.parametrize("away", [3.0, 10.1, 30.3, 60.9, 110.0])
def test_while_it_is_probably_starting_a_broker_is_found_within_two_seconds(away: float) -> None:
    async def script(site: Site) -> None:
        session = await site.session()
        await asyncio.sleep(away)
        site.broker.is_up = True
        while session.reach is not Reach.CONNECTED:
            await asyncio.sleep(0.01)

    assert play(script).reached[0] - away <= 2.0


@pytest.mark.parametrize("count", [1_000, 10_000])
def test_everything_is_declared_once_in_requests_that_are_full(count: int) -> None:
    """Half of the workers wait for a request of a hundred while the other half fills the next one."""

    async def script(site: Site) -> None:
        site.broker.is_up = True
        session = await site.session()
        await asyncio.sleep(0.1)
        await site.declare(session, count)

    assert play(script).broker.batches == [100] * (count // 100)


def test_what_changes_on_the_broker_is_asked_for_when_the_operator_has_declared_everything() -> None:
    """Ten thousand declarations take 50 s here, in which there are nine polls."""

    async def script(site: Site) -> None:
        site.broker.is_up = True
        session = await site.session()
        await asyncio.sleep(0.1)
        await site.declare(session, 10_000)
        assert site.broker.lists == 0
        await asyncio.sleep(10)
        assert site.broker.lists == 1

    assert play(script).drifted == []


def test_declarations_that_never_end_put_that_off_for_a_minute_only() -> None:
    async def script(site: Site) -> None:
        site.broker.is_up = True
        session = await site.session()
        await asyncio.sleep(0.1)
        declaring = asyncio.create_task(site.declare(session, 26_000))
        await asyncio.sleep(64)
        assert site.broker.lists == 0
        await asyncio.sleep(6)
        assert site.broker.lists == 1
        await declaring

    play(script)


def test_what_is_declared_while_a_list_is_read_is_not_called_gone() -> None:
    async def script(site: Site) -> None:
        site.broker.is_up = True
        session = await site.session()
        await asyncio.sleep(0.1)
        await session.declare(entry(1))
        reading = asyncio.create_task(session.marked_entities())
        await asyncio.sleep(0.1)
        late = asyncio.create_task(session.declare(entry(2)))
        await asyncio.gather(reading, late)
        await asyncio.sleep(10)
        await session.declare(entry(2))

    site = play(script)
    assert (site.broker.batches, site.drifted) == ([1, 1], [])


def test_others_see_that_declarations_are_on_the_way_until_all_are_there() -> None:
    seen: list[tuple[int, bool]] = []

    async def script(site: Site) -> None:
        site.broker.is_up = True
        session = await site.session()
        await asyncio.sleep(0.1)
        assert not site.sessions.is_declaring()
        declaring = asyncio.create_task(site.declare(session, 1000))
        while not declaring.done():
            await asyncio.sleep(0.1)
            seen.append((len(site.broker.there), site.sessions.is_declaring()))
        await asyncio.sleep(0.1)
        assert not site.sessions.is_declaring()

    play(script)
    meanwhile = [is_declaring for there, is_declaring in seen if there < 1000]
    assert len(meanwhile) > 20
    assert all(meanwhile)
