"""A request is answered after its connection was given up, when the session has another one: to a broker that works, or
to one that was restarted meanwhile. Neither an old success nor an old failure may be taken for one of today.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from support.resources import NOW, broker_state, exchange
from support.virtual_time import run_in_virtual_time

from penstock_api import declaration
from penstock_api.management import EntityType
from penstock_api.state_documents import BrokerState
from penstock_operator.brokers.management import BrokerManagement, EntityChanges, ManagementAccess, Unreachable
from penstock_operator.brokers.session import BrokerSession
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity, Reach

ACCESS = ManagementAccess(host="127.0.0.1", port=1, server_name="b", ca=b"", user="u", password="p")
ORDERS = DeclareEntity(EntityType.EXCHANGE, "orders", declaration.exchange_declaration(exchange(), cluster_id="c1"))
RIGHTS = DeleteEntity(
    entity=EntityType.EXCHANGE, name="orders", if_unused=False, if_empty=False, owner_uid="u", rights_only=True
)
POLL = 5.0
"""The first connection does not answer the first poll."""
ANSWERED = 20.0
"""When the first connection answers what it was asked before; the second one is there by then."""


@dataclass
class Restarted:
    """A broker, the connections to it, and on which of them it was asked to change something."""

    connections: int = 0
    asked: list[int] = field(default_factory=list[int])
    fails: bool = False
    """Whether the late answer is a failure."""
    is_restarted: bool = True
    """Whether the second connection is to another life of it."""
    answered: float = ANSWERED

    async def connect(self, _: ManagementAccess) -> BrokerManagement:
        self.connections += 1
        return Connection(self, self.connections)


@dataclass
class Connection:
    broker: Restarted
    number: int

    async def state(self) -> BrokerState:
        if self.number == 1 and asyncio.get_running_loop().time() > 0:
            raise Unreachable("it does not answer")
        return broker_state(instance_id="i1", epoch=self.number if self.broker.is_restarted else 1)

    async def declare(self, entries: Sequence[DeclareEntity]) -> Sequence[BrokerReply]:
        await self._asked()
        # Those of its earlier life had reached a higher revision.
        return [BrokerReply(status=201, body={"revision": 500 if self.number == 1 else 3}) for _ in entries]

    async def delete(self, entries: Sequence[DeleteEntity]) -> Sequence[BrokerReply]:
        await self._asked()
        return [BrokerReply(status=204) for _ in entries]

    async def changes(self, since: int | None) -> EntityChanges:
        await self._late()
        return EntityChanges(3, True, [])

    async def bound_subscriptions(self) -> Mapping[str, int]:
        return {}

    async def close(self) -> None:
        """What is on the way is not given up: nothing promises that it is."""

    async def _asked(self) -> None:
        self.broker.asked.append(self.number)
        await self._late()

    async def _late(self) -> None:
        if self.number == 1:
            await asyncio.sleep(self.broker.answered - asyncio.get_running_loop().time())
            if self.broker.fails:
                raise Unreachable("the connection has ended")


def clock() -> datetime:
    return NOW + timedelta(seconds=asyncio.get_running_loop().time())


Request = Callable[[BrokerSession], Coroutine[None, None, object]]
REQUESTS: dict[str, Request] = {
    "declare": lambda session: session.declare(ORDERS),
    "delete": lambda session: session.delete(RIGHTS),
    "marked_entities": lambda session: session.marked_entities(),
    "know_entities": lambda session: session.know_entities(),
}


async def asked_once(broker: Restarted, request: Request) -> tuple[object, BrokerSession, BrokerSessions]:
    """The request is sent on the first connection; its end, and the session a minute later."""
    sessions = BrokerSessions(broker.connect, POLL, clock)
    session = await sessions.ensure("shop/main", ACCESS, lambda _: None)
    await asyncio.sleep(1)
    assert session.reach is Reach.CONNECTED
    (end,) = await asyncio.gather(request(session), return_exceptions=True)
    assert asyncio.get_running_loop().time() == ANSWERED
    assert session.reach is Reach.CONNECTED, "the second connection works"
    await asyncio.sleep(60)
    return end, session, sessions


@pytest.mark.parametrize("name", REQUESTS)
def test_a_late_failure_does_not_end_the_connection_that_works(name: str) -> None:
    broker = Restarted(fails=True)

    async def story() -> tuple[object, Reach]:
        end, session, sessions = await asked_once(broker, REQUESTS[name])
        reach = session.reach
        await sessions.close()
        return end, reach

    end, reach = run_in_virtual_time(story())
    assert isinstance(end, Unreachable)
    assert (reach, broker.connections) == (Reach.CONNECTED, 2)


@pytest.mark.parametrize("name", REQUESTS)
def test_why_there_is_no_connection_is_said_by_what_ended_it(name: str) -> None:
    """Whatever else was on the way only learned that its connection was closed."""
    broker = Restarted(fails=True, answered=POLL + 0.25)

    async def story() -> tuple[object, str]:
        sessions = BrokerSessions(broker.connect, POLL, clock)
        session = await sessions.ensure("shop/main", ACCESS, lambda _: None)
        await asyncio.sleep(1)
        (end,) = await asyncio.gather(REQUESTS[name](session), return_exceptions=True)
        problem = session.problem
        await sessions.close()
        return end, problem

    end, problem = run_in_virtual_time(story())
    assert isinstance(end, Unreachable)
    assert (problem, broker.connections) == ("it does not answer", 1)


@pytest.mark.parametrize("name", ["declare", "delete"])
def test_what_an_earlier_life_of_the_broker_has_done_is_asked_for_again(name: str) -> None:
    """The second life begins with what is on the volume, and of that nobody knows whether the change is in it."""
    broker = Restarted()

    async def story() -> object:
        end, session, sessions = await asked_once(broker, REQUESTS[name])
        await REQUESTS[name](session)
        await sessions.close()
        return end

    end = run_in_virtual_time(story())
    assert isinstance(end, Unreachable)
    assert "restarted" in str(end)
    assert (broker.asked, broker.connections) == ([1, 2], 2)


def test_a_late_success_of_the_same_life_counts() -> None:
    broker = Restarted(is_restarted=False)

    async def story() -> object:
        end, session, sessions = await asked_once(broker, REQUESTS["declare"])
        await session.declare(ORDERS)
        await sessions.close()
        return end

    end = run_in_virtual_time(story())
    assert isinstance(end, BrokerReply)
    assert broker.asked == [1]
