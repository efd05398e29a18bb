"""Since when a broker is known not to answer. The management behind the session is scripted, and time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import cast

from support.resources import NOW, broker_state
from support.virtual_time import run_in_virtual_time

from penstock_api.state_documents import BrokerState
from penstock_operator.brokers.management import BrokerManagement, ManagementAccess, NotUnderstood, Unreachable
from penstock_operator.brokers.session import BrokerSession
from penstock_operator.brokers.sessions import BrokerSessions

TARGET = ManagementAccess(host="127.0.0.1", port=1, server_name="b", ca=b"", user="u", password="p")


def clock() -> datetime:
    return NOW + timedelta(seconds=asyncio.get_running_loop().time())


@dataclass
class Down:
    """A broker that answers nothing but questions for its state, and these only while it is up."""

    is_up: bool = True
    later: bool = False
    """It is of a later release."""

    async def connect(self, access: ManagementAccess) -> BrokerManagement:
        return cast(BrokerManagement, self)

    async def state(self) -> BrokerState:
        if not self.is_up:
            raise Unreachable("it is down")
        if self.later:
            raise NotUnderstood("it is of a later release")
        return broker_state()

    async def close(self) -> None:
        return


@dataclass
class Place:
    """The operator's sessions, with one Broker, and the seconds since the start that it told one after the other."""

    broker: Down = field(default_factory=Down)
    sessions: BrokerSessions = field(init=False)

    def __post_init__(self) -> None:
        self.sessions = BrokerSessions(self.broker.connect, 1, clock)

    async def session(self, access: ManagementAccess = TARGET) -> BrokerSession:
        return await self.sessions.ensure("shop/main", access, lambda _: None)

    def since(self) -> float | None:
        found = self.sessions.contacts.of("shop/main").unasked_since
        return None if found is None else (found - NOW).total_seconds()


def told(script: Coroutine[None, None, list[float | None]]) -> list[float | None]:
    return run_in_virtual_time(script)


def test_before_there_is_a_session_it_counts_from_the_first_look_at_the_broker() -> None:
    async def script() -> list[float | None]:
        place = Place()
        await asyncio.sleep(3)
        first = place.since()
        await asyncio.sleep(3)
        return [first, place.since()]

    assert told(script()) == [3, 3]


def test_while_it_is_connected_there_is_no_such_moment_and_each_loss_begins_anew() -> None:
    async def script() -> list[float | None]:
        place, said = Place(), list[float | None]()
        await place.session()
        await asyncio.sleep(0.1)
        said.append(place.since())
        place.broker.is_up = False
        await asyncio.sleep(9.9)
        said.append(place.since())
        place.broker.is_up = True
        await asyncio.sleep(20)
        said.append(place.since())
        place.broker.is_up = False
        await asyncio.sleep(10)
        said.append(place.since())
        await place.sessions.close()
        return said

    connected, first, again, second = told(script())
    assert (connected, first, again) == (None, 1, None)
    assert second is not None
    assert 30 <= second <= 31


def test_a_broker_that_answers_what_cannot_be_understood_is_not_reached_meanwhile() -> None:
    async def script() -> list[float | None]:
        place = Place(Down(is_up=False))
        await place.session()
        await asyncio.sleep(10)
        place.broker.is_up = place.broker.later = True
        await asyncio.sleep(10)
        said = place.since()
        await place.sessions.close()
        return [said]

    assert told(script()) == [0]


def test_another_session_with_another_password_does_not_begin_the_count_anew() -> None:
    async def script() -> list[float | None]:
        place = Place(Down(is_up=False))
        await asyncio.sleep(2)
        place.since()
        await asyncio.sleep(2)
        await place.session()
        await asyncio.sleep(10)
        await place.session(replace(TARGET, password="q"))
        await asyncio.sleep(10)
        said = [place.since()]
        await place.sessions.drop("shop/main")
        await asyncio.sleep(10)
        await place.session()
        said.append(place.since())
        await place.sessions.close()
        return said

    assert told(script()) == [2, 2]


def test_a_broker_without_a_session_counts_from_the_end_of_its_session() -> None:
    async def script() -> list[float | None]:
        place = Place()
        await place.session()
        await asyncio.sleep(7)
        await place.sessions.drop("shop/main")
        await asyncio.sleep(7)
        said = [place.since()]
        await place.sessions.forget("shop/main")
        return [*said, place.since()]

    assert told(script()) == [7, 14]
