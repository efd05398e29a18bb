"""A broker session: batches, a new instance of the broker, a lost connection. The management behind it is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import assert_never

import pytest
from support.resources import NOW, broker_state, exchange, subscription
from support.virtual_time import run_in_virtual_time
from support.waiting import wait_until

from penstock_api import declaration
from penstock_api.management import EntityType
from penstock_api.state_documents import BrokerState, ContestedContainer
from penstock_operator.brokers.management import (
    BrokerManagement,
    EntityChanges,
    ManagementAccess,
    NotUnderstood,
    Unanswered,
    Unreachable,
)
from penstock_operator.brokers.session import BrokerSession
from penstock_operator.brokers.session_change import SessionChange
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity, Reach

TARGET = ManagementAccess(host="127.0.0.1", port=1, server_name="b", ca=b"", user="u", password="p")


def clock() -> datetime:
    """The time of the loop, which begins at noon."""
    return NOW + timedelta(seconds=asyncio.get_running_loop().time())


def state(instance: str = "i1", epoch: int = 1) -> BrokerState:
    return broker_state(instance_id=instance, epoch=epoch)


@dataclass
class Script:
    """The scripted management: its state, whether it answers, and the commands that it got."""

    now: BrokerState = field(default_factory=state)
    is_up: bool = True
    batches: list[list[str]] = field(default_factory=list[list[str]])
    connects: int = 0
    is_silent: bool = False
    """Its address neither accepts nor refuses; an attempt then takes two seconds."""
    times: list[float] = field(default_factory=list[float])
    """When each attempt to connect was made."""
    later: NotUnderstood | None = None
    """It is of a later release."""
    state_seconds: float = 0
    """How long its state is on the way."""
    is_stuck: bool = False
    """It takes declarations and never answers them."""
    bug: Exception | None = None
    """What a declaration raises."""
    bug_at_connect: Exception | None = None
    """What an attempt to connect raises."""

    async def connect(self, access: ManagementAccess) -> BrokerManagement:
        self.connects += 1
        self.times.append(asyncio.get_running_loop().time())
        if self.is_silent:
            await asyncio.sleep(2)
            raise Unanswered("nothing answers")
        if self.bug_at_connect is not None:
            raise self.bug_at_connect
        self._check()
        return Scripted(self)

    def _check(self) -> None:
        if not self.is_up:
            raise Unreachable("it is down")


@dataclass
class Scripted:
    script: Script

    async def state(self) -> BrokerState:
        self._check()
        if self.script.state_seconds:
            await asyncio.sleep(self.script.state_seconds)
        if self.script.later is not None:
            raise self.script.later
        return self.script.now

    async def declare(self, entries: Sequence[DeclareEntity]) -> Sequence[BrokerReply]:
        self._check()
        self.script.batches.append([f"+{entry.entity.name}" for entry in entries])
        if self.script.is_stuck:
            await asyncio.Event().wait()
        if self.script.bug is not None:
            raise self.script.bug
        return [BrokerReply(status=201) for _ in entries]

    async def delete(self, entries: Sequence[DeleteEntity]) -> Sequence[BrokerReply]:
        self._check()
        self.script.batches.append([f"-{entry.entity.name}" for entry in entries])
        return [BrokerReply(status=204) for _ in entries]

    async def changes(self, since: int | None) -> EntityChanges:
        self._check()
        return EntityChanges(1, True, [])

    async def bound_subscriptions(self) -> Mapping[str, int]:
        self._check()
        return {}

    async def close(self) -> None:
        return

    def _check(self) -> None:
        if not self.script.is_up:
            raise Unreachable("it is down")


@dataclass
class Fixture:
    script: Script
    sessions: BrokerSessions
    changes: int = 0
    states: int = 0
    losses: int = 0

    def changed(self, news: SessionChange) -> None:
        match news:
            case SessionChange.REACH:
                self.changes += 1
            case SessionChange.STATE:
                self.states += 1
            case SessionChange.LOST:
                self.losses += 1
            case _:
                assert_never(news)

    async def session(self) -> BrokerSession:
        return await self.sessions.ensure("shop/main", TARGET, self.changed)


@pytest.fixture
async def made() -> AsyncIterator[Fixture]:
    script = Script()
    fixture = Fixture(script, BrokerSessions(script.connect, 0.01, lambda: NOW))
    yield fixture
    await fixture.sessions.close()


async def until(condition: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return condition()

    await wait_until(holds)


SUBSCRIPTION = DeclareEntity(
    EntityType.SUBSCRIPTION, None, declaration.subscription_declaration(subscription(), exchange="orders")
)
EXCHANGE = DeclareEntity(EntityType.EXCHANGE, "orders", declaration.exchange_declaration(exchange()))


def removal(entity: EntityType) -> DeleteEntity:
    return DeleteEntity(entity=entity, name="q", if_unused=True, if_empty=False, owner_uid="u")


async def test_it_connects_and_says_so_once(made: Fixture) -> None:
    session = await made.session()
    await until(lambda: session.reach is Reach.CONNECTED)
    assert (session.state, made.changes, session.problem_sentence) == (state(), 1, "")
    assert await made.session() is session


async def test_a_first_attempt_that_fails_is_a_loss_and_the_next_ones_are_not_news(made: Fixture) -> None:
    made.script.is_up = False
    session = await made.session()
    assert (session.reach, session.problem_sentence) == (Reach.NOT_ASKED, "The operator has not connected yet.")
    await until(lambda: made.losses == 1)
    assert (session.reach, session.problem_sentence) == (Reach.UNREACHABLE, "It is down.")
    await until(lambda: made.script.connects >= 2)
    assert (made.changes, made.losses) == (0, 1)


async def test_a_broker_that_is_not_understood_is_not_called_unreachable_and_asked_again(made: Fixture) -> None:
    made.script.later = NotUnderstood("The broker, version 9, says what is new. Upgrade the operator.")
    session = await made.session()
    await until(lambda: session.reach is Reach.NOT_UNDERSTOOD)
    assert (session.problem, made.changes) == (str(made.script.later), 1)
    with pytest.raises(Unreachable):
        await session.declare(EXCHANGE)
    made.script.later = None
    await until(lambda: session.reach is Reach.CONNECTED)
    assert made.changes == 2


async def test_what_is_asked_at_the_same_time_travels_together_in_a_safe_order(made: Fixture) -> None:
    session = await made.session()
    await until(lambda: session.reach is Reach.CONNECTED)
    replies = await asyncio.gather(
        session.declare(SUBSCRIPTION),
        session.delete(removal(EntityType.EXCHANGE)),
        session.declare(EXCHANGE),
        session.delete(removal(EntityType.SUBSCRIPTION)),
    )
    assert [reply.status for reply in replies] == [201, 204, 201, 204]
    assert made.script.batches == [["-SUBSCRIPTION", "-EXCHANGE"], ["+EXCHANGE", "+SUBSCRIPTION"]]


@pytest.mark.parametrize("after", [state("i2"), state("i1", 2)], ids=["another-instance", "another-start"])
async def test_another_instance_or_start_is_a_change(made: Fixture, after: BrokerState) -> None:
    session = await made.session()
    await until(lambda: made.changes == 1)
    made.script.now = after
    await until(lambda: made.changes == 2)
    assert session.state == after


async def test_a_fight_is_news_of_the_broker_alone_and_only_when_it_reads_otherwise(made: Fixture) -> None:
    session = await made.session()
    await until(lambda: made.changes == 1)

    async def fight(takeovers: int) -> None:
        contested = (ContestedContainer(container_id="twin", takeovers=takeovers, last_ms=0),)
        made.script.now = state().model_copy(update={"contested_containers": contested})
        await until(lambda: session.state == made.script.now)

    await fight(5)
    assert (made.changes, made.states) == (1, 1)
    await fight(9)
    assert made.states == 1
    await fight(10)
    assert made.states == 2
    made.script.now = state()
    await until(lambda: made.states == 3)
    assert made.changes == 1


async def test_a_host_name_that_begins_a_sentence_stays_as_it_is(made: Fixture) -> None:
    session = await made.session()
    await until(lambda: session.reach is Reach.CONNECTED)
    session.problem = "main-management.shop.svc does not answer"
    assert session.problem_sentence == "main-management.shop.svc does not answer."


async def test_a_lost_broker_is_unreachable_at_once_and_connected_again(made: Fixture) -> None:
    session = await made.session()
    await until(lambda: session.reach is Reach.CONNECTED)
    made.script.is_up = False
    with pytest.raises(Unreachable, match="it is down"):
        await session.declare(SUBSCRIPTION)
    assert session.reach is Reach.UNREACHABLE
    assert session.problem_sentence == "It is down."
    with pytest.raises(Unreachable):
        await session.delete(removal(EntityType.EXCHANGE))
    assert (made.changes, made.losses) == (1, 1)
    made.script.is_up = True
    await until(lambda: session.reach is Reach.CONNECTED)
    assert (made.changes, made.losses) == (2, 1)
    assert (await session.declare(SUBSCRIPTION)).status == 201


async def test_another_target_is_another_session_that_remembers_the_instance(made: Fixture) -> None:
    first = await made.session()
    await until(lambda: first.reach is Reach.CONNECTED)
    moved = ManagementAccess(host="127.0.0.2", port=1, server_name="b", ca=b"", user="u", password="p")
    second = await made.sessions.ensure("shop/main", moved, made.changed)
    assert second is not first
    assert second.state == state()
    assert (first.reach, second.reach) == (Reach.NOT_ASKED, Reach.NOT_ASKED)
    with pytest.raises(Unreachable):
        await first.declare(SUBSCRIPTION)


async def test_a_broker_that_does_not_answer_stays_unreachable_until_another_password_has_helped(made: Fixture) -> None:
    made.script.is_up = False
    first = await made.session()
    await until(lambda: first.reach is Reach.UNREACHABLE)
    second = await made.sessions.ensure("shop/main", replace(TARGET, password="q"), made.changed)
    assert (second.reach, second.problem) == (Reach.UNREACHABLE, "it is down")
    made.script.is_up = True
    await until(lambda: second.reach is Reach.CONNECTED)


async def test_what_was_not_understood_may_be_understood_by_another_session(made: Fixture) -> None:
    made.script.later = NotUnderstood("The broker, version 9, says what is new.")
    first = await made.session()
    await until(lambda: first.reach is Reach.NOT_UNDERSTOOD)
    second = await made.sessions.ensure("shop/main", replace(TARGET, password="q"), made.changed)
    assert second.reach is Reach.NOT_ASKED


def declared(name: str) -> DeclareEntity:
    made = subscription(metadata={"name": name, "uid": f"uid-{name}"})
    body = declaration.subscription_declaration(made, exchange="orders", cluster_id="c1")
    return DeclareEntity(EntityType.SUBSCRIPTION, f"psub:durable:global:{name}", body)


async def test_who_waits_for_a_reply_hears_of_it_when_another_session_takes_over(made: Fixture) -> None:
    session = await made.session()
    await until(lambda: session.reach is Reach.CONNECTED)
    made.script.is_stuck = True
    waiting = asyncio.create_task(session.declare(declared("a")))
    await until(lambda: made.script.batches == [["+SUBSCRIPTION"]])
    await made.sessions.ensure("shop/main", replace(TARGET, port=2), made.changed)
    with pytest.raises(Unreachable, match="the session was closed"):
        await asyncio.wait_for(waiting, 60)


async def test_who_waits_for_a_reply_hears_of_it_when_a_bug_ends_the_session(made: Fixture) -> None:
    session = await made.session()
    await until(lambda: session.reach is Reach.CONNECTED)
    made.script.bug = RuntimeError("a bug")
    with pytest.raises(Unreachable):
        await asyncio.wait_for(session.declare(declared("a")), 60)


async def test_after_a_bug_the_session_connects_again_by_itself(made: Fixture) -> None:
    session = await made.session()
    await until(lambda: session.reach is Reach.CONNECTED)
    made.script.bug = RuntimeError("a bug")
    with pytest.raises(Unreachable, match="bug"):
        await asyncio.wait_for(session.declare(declared("a")), 60)
    made.script.bug = None
    await until(lambda: session.reach is Reach.CONNECTED)
    assert (await session.declare(declared("a"))).status == 201


@pytest.mark.parametrize("asked_at", [0.5, 6], ids=["the first state", "a poll"])
def test_a_state_that_arrives_after_the_connection_was_given_up_does_not_make_it_connected(asked_at: float) -> None:
    """Whoever reads CONNECTED sends a command, and there would be nobody to send it to."""
    script = Script(state_seconds=1)

    async def loses_it_while_the_state_is_on_the_way() -> list[tuple[float, Reach, str]]:
        sessions = BrokerSessions(script.connect, 4.5, clock)
        session = await sessions.ensure("shop/main", TARGET, lambda _: None)
        await asyncio.sleep(asked_at)
        script.bug = RuntimeError("a bug")
        with pytest.raises(Unreachable, match="a bug"):
            await session.declare(declared("a"))
        script.bug = None
        found: list[tuple[float, Reach, str]] = []
        for _ in range(3):
            await asyncio.sleep(0.75)
            found.append((asyncio.get_running_loop().time() - asked_at, session.reach, session.problem))
        await sessions.close()
        return found

    problem = "the operator's session with it met a bug; see the operator's log"
    # The state arrives after 0.5 s; the next attempt begins after 1 s, and has its state after 2 s.
    assert run_in_virtual_time(loses_it_while_the_state_is_on_the_way()) == [
        (0.75, Reach.UNREACHABLE, problem),
        (1.5, Reach.UNREACHABLE, problem),
        (2.25, Reach.CONNECTED, ""),
    ]


def test_a_bug_at_each_attempt_to_connect_has_the_pauses_of_a_broker_that_is_away() -> None:
    """Also while the broker is away already, and nobody is told anew. A new session for each bug would have none."""
    script = Script(is_up=False)
    losses: list[SessionChange] = []

    async def comes_back() -> tuple[Reach, str]:
        sessions = BrokerSessions(script.connect, 5, clock)
        session = await sessions.ensure("shop/main", TARGET, losses.append)
        await asyncio.sleep(1)
        script.bug_at_connect = RuntimeError("a bug")
        await asyncio.sleep(6)
        found = session.problem
        script.bug_at_connect, script.is_up = None, True
        await asyncio.sleep(2)
        reach = session.reach
        await sessions.close()
        return reach, found

    reach, problem = run_in_virtual_time(comes_back())
    assert script.times == [0, 0.5, 1.5, 3.5, 5.5, 7.5]
    assert (reach, losses) == (Reach.CONNECTED, [SessionChange.LOST, SessionChange.REACH])
    assert problem == "the operator's session with it met a bug; see the operator's log"


@pytest.mark.parametrize("later", range(8))
async def test_a_command_that_comes_while_the_connection_is_given_up_is_answered(made: Fixture, later: int) -> None:
    """`later`: so many turns of the loop after the loss."""
    session = await made.session()
    await until(lambda: session.reach is Reach.CONNECTED)
    made.script.is_up = False
    with pytest.raises(Unreachable):
        await session.declare(declared("a"))
    for _ in range(later):
        await asyncio.sleep(0)
    with pytest.raises(Unreachable):
        await asyncio.wait_for(session.declare(declared("b")), 60)


async def test_a_dropped_session_is_gone(made: Fixture) -> None:
    await made.session()
    await made.sessions.drop("shop/main")
    assert made.sessions.get("shop/main") is None


def test_the_pauses_between_attempts_grow_to_two_seconds_and_after_two_minutes_to_ten() -> None:
    script = Script(is_up=False)

    async def down() -> None:
        sessions = BrokerSessions(script.connect, 5, clock)
        await sessions.ensure("shop/main", TARGET, lambda _: None)
        await asyncio.sleep(160)
        await sessions.close()

    run_in_virtual_time(down())
    assert script.times[:5] == [0, 0.5, 1.5, 3.5, 5.5]
    assert script.times[-6:] == [119.5, 121.5, 125.5, 133.5, 143.5, 153.5]


def test_a_session_that_is_told_to_hurry_connects_before_its_pause_is_over() -> None:
    """After 140 s without an answer the next attempt would be at 143.5 s; the pod serves at 140 s."""
    script = Script(is_up=False)

    async def comes_back() -> tuple[Reach, str]:
        sessions = BrokerSessions(script.connect, 5, clock)
        session = await sessions.ensure("shop/main", TARGET, lambda _: None)
        await asyncio.sleep(140)
        script.is_up = True
        session.try_soon()
        await asyncio.sleep(0.01)
        found = session.reach, session.problem
        await sessions.close()
        return found

    assert run_in_virtual_time(comes_back()) == (Reach.CONNECTED, "")
    assert script.times[-2:] == [133.5, 140]


def test_after_an_attempt_in_vain_the_pauses_grow_anew() -> None:
    """The pod serves, but its address is not announced everywhere yet."""
    script = Script(is_up=False)

    async def down() -> None:
        sessions = BrokerSessions(script.connect, 5, clock)
        session = await sessions.ensure("shop/main", TARGET, lambda _: None)
        await asyncio.sleep(140)
        session.try_soon()
        await asyncio.sleep(4)
        await sessions.close()

    run_in_virtual_time(down())
    assert script.times[-5:] == [133.5, 140, 140.5, 141.5, 143.5]


def test_hurrying_all_the_time_is_two_attempts_a_second() -> None:
    script = Script(is_up=False)

    async def down() -> None:
        sessions = BrokerSessions(script.connect, 5, clock)
        session = await sessions.ensure("shop/main", TARGET, lambda _: None)
        for _ in range(1000):
            session.try_soon()
            await asyncio.sleep(0.01)
        await sessions.close()

    run_in_virtual_time(down())
    assert script.connects == 20


def test_an_address_that_does_not_answer_is_tried_again_soon_and_the_pauses_do_not_grow() -> None:
    """An attempt that is given up after two seconds has waited already."""
    script = Script(is_silent=True)

    async def comes_back() -> Reach:
        sessions = BrokerSessions(script.connect, 5, clock)
        session = await sessions.ensure("shop/main", TARGET, lambda _: None)
        await asyncio.sleep(14)
        script.is_silent = False
        await asyncio.sleep(1.5)
        found = session.reach
        await sessions.close()
        return found

    assert run_in_virtual_time(comes_back()) is Reach.CONNECTED
    assert script.times == [0, 3, 6, 9, 12, 15]


def test_pauses_are_spread_over_half_of_their_length_but_never_below_half_a_second() -> None:
    script = Script(is_up=False)

    async def down() -> None:
        sessions = BrokerSessions(script.connect, 5, clock, lambda: 1.0)
        await sessions.ensure("shop/main", TARGET, lambda _: None)
        await asyncio.sleep(6)
        await sessions.close()

    run_in_virtual_time(down())
    assert script.times == [0, 0.5, 1.25, 2.5, 3.75, 5]
