"""Polling over management answers: changes, pages of brokers of earlier releases, failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from observer.samples import START_MS, a_broker, a_subscription
from support.broker_process import BrokerProcess
from support.proton_client import connected, publish

from penstock_amqp.client.errors import ManagementError, TransportError
from penstock_amqp.client.management import ChangedStates, ListedEntity, ManagementClient, Page
from penstock_api.management import Deletion, EntityType, SubscriptionDeclaration
from penstock_api.state_documents import SubscriptionState
from penstock_observer.broker_client import PolledBroker
from penstock_observer.clock_memory import ClockMemory
from penstock_observer.poller import BrokerAway
from penstock_observer.rows import Poll

REFUSED = ManagementError(403, "no", condition=None, reason=None)


@dataclass(frozen=True)
class Answer:
    """One QUERY answer."""

    results: Sequence[Mapping[str, object]]
    total_count: int


@dataclass
class Client:
    """A management client of a broker that knows no `statesSince`, over a list of names per poll; page size 2."""

    polls: list[list[str]]
    at: int = -1
    offsets: list[int] = field(default_factory=list[int])
    closed: bool = False

    async def read(self, type: EntityType, name: str | None = None) -> Mapping[str, object]:
        """The broker, at the end of a poll."""
        assert (type, name) == (EntityType.BROKER, None)
        return a_broker().to_wire()

    async def changed_states(self, token: str) -> ChangedStates:
        """The first page, as if the request did not name a token."""
        assert token == ""
        names = self.polls[self.at][:2]
        page = Page([a_subscription(name).to_wire() for name in names], len(self.polls[self.at]), 1)
        return ChangedStates(page, None, True, (), 0)

    async def query(self, type: EntityType, *, offset: int, count: int) -> Answer:
        """Two of the names; a name behind a slash comes only with the second page."""
        assert (type, count) == (EntityType.SUBSCRIPTION, 1000)
        if offset == 0:
            self.at = min(self.at + 1, len(self.polls) - 1)
        self.offsets.append(offset)
        names = [name for name in self.polls[self.at] if offset or not name.endswith("/late")]
        page = names[offset : offset + 2]
        return Answer([a_subscription(name).to_wire() for name in page], len(names))

    async def close(self) -> None:
        """Note."""
        self.closed = True


def broker_of(client: Client) -> PolledBroker:
    """A broker whose connection is this client."""

    async def connect() -> Client:
        return client

    return PolledBroker(connect)


async def test_all_pages_make_one_poll() -> None:
    """Five subscriptions in three pages, in name order."""
    client = Client([["a", "b", "c", "d", "e"]])
    poll = await broker_of(client).poll()
    assert [state.subscription_name for state in poll.subscriptions] == ["a", "b", "c", "d", "e"]
    assert client.offsets == [0, 2, 4]
    assert poll.complete
    assert poll.broker.now_ms == START_MS


async def test_an_empty_broker_is_one_page() -> None:
    """No rows, complete."""
    poll = await broker_of(Client([[]])).poll()
    assert (poll.subscriptions, poll.complete) == ((), True)


async def test_a_message_that_comes_during_a_poll_is_not_from_the_future() -> None:
    """The time of a poll is asked for last. If it came first, the age of such a message would be unknown."""

    class Ticking(Client):
        """Every answer takes the broker a millisecond; a message has just come."""

        now_ms = START_MS

        async def read(self, type: EntityType, name: str | None = None) -> Mapping[str, object]:
            self.now_ms += 1
            return {**await super().read(type, name), "nowMs": self.now_ms}

        async def query(self, type: EntityType, *, offset: int, count: int) -> Answer:
            self.now_ms += 1
            page = await super().query(type, offset=offset, count=count)
            return Answer([{**row, "oldestAvailableMs": self.now_ms} for row in page.results], page.total_count)

    poll = await broker_of(Ticking([["a", "b", "c"]])).poll()
    assert [state.oldest_available_ms for state in poll.subscriptions] == [START_MS + 1, START_MS + 1, START_MS + 2]
    assert poll.broker.now_ms == START_MS + 3


async def test_a_poll_during_which_something_came_is_repeated() -> None:
    """The second one sees a stable list."""
    client = Client([["a", "b", "c/late"], ["a", "b", "c"]])
    client.polls[0].insert(2, "x")
    poll = await broker_of(client).poll()
    assert [state.subscription_name for state in poll.subscriptions] == ["a", "b", "c"]
    assert poll.complete


async def test_a_broker_that_never_rests_gives_a_poll_that_says_so() -> None:
    """After three attempts what was seen is taken, marked as not complete."""
    client = Client([["a", "b", "x", "c/late"]])
    poll = await broker_of(client).poll()
    assert not poll.complete
    assert client.at == 0
    assert len(client.offsets) == 6


async def test_a_clock_that_was_set_is_told_once_and_remembered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An hour forward at the third of four polls, which are ten seconds apart. An observer that starts later tells the
    same of a message from before.
    """

    class Set(Client):
        """Its clock is an hour ahead from the third poll on."""

        times = (START_MS, START_MS + 10_000, START_MS + 3_620_000, START_MS + 3_630_000)

        async def read(self, type: EntityType, name: str | None = None) -> Mapping[str, object]:
            return {**await super().read(type, name), "nowMs": self.times[self.at]}

        async def query(self, type: EntityType, *, offset: int, count: int) -> Answer:
            page = await super().query(type, offset=offset, count=count)
            waits = {"depth": 1, "ready": 1, "oldestAvailableMs": START_MS - 5_000}
            return Answer([{**row, **waits} for row in page.results], page.total_count)

    client, elapsed = Set([["a"], ["a"], ["a"], ["a"]]), iter([0, 2, 10_000, 10_002, 20_000, 20_002, 30_000, 30_002])
    memory = ClockMemory(tmp_path)

    async def connect() -> Client:
        return client

    broker = PolledBroker(connect, memory, lambda: next(elapsed))
    polls = [await broker.poll() for _ in range(4)]
    assert [poll.clock_step_ms for poll in polls] == [None, 0, 3_600_000, 0]
    ages = [poll.broker.now_ms - (poll.subscriptions[0].oldest_available_ms or 0) for poll in polls]
    assert ages == [5_000, 15_000, 25_000, 35_000]
    assert "the broker's clock was set forward by 3600 s" in caplog.text
    later = await PolledBroker(connect, memory).poll()
    assert later.clock_step_ms is None
    assert later.subscriptions == polls[-1].subscriptions


@pytest.mark.parametrize("error", [ConnectionRefusedError("refused"), TimeoutError(), TransportError("gone"), REFUSED])
async def test_a_failure_means_away_and_the_next_poll_connects_again(error: Exception) -> None:
    """The broken connection is let go."""
    client = Client([["a"]])
    made: list[Client] = []

    async def connect() -> Client:
        made.append(client)
        if len(made) == 1:
            raise error
        return client

    broker = PolledBroker(connect)
    with pytest.raises(BrokerAway, match="does not answer"):
        await broker.poll()
    assert len((await broker.poll()).subscriptions) == 1
    assert len((await broker.poll()).subscriptions) == 1
    assert len(made) == 2


async def test_an_answer_of_another_release_is_told() -> None:
    """The field that is wrong is named, nothing crashes."""

    class Strange(Client):
        async def read(self, type: EntityType, name: str | None = None) -> Mapping[str, object]:
            return {**a_broker().to_wire(), "epoch": "three"}

    client = Strange([[]])
    with pytest.raises(BrokerAway, match=r"epoch.*another release"):
        await broker_of(client).poll()
    assert client.closed


@dataclass
class ChangingClient(Client):
    """A client of a broker that tells what changed; `told` are its replies."""

    told: list[ChangedStates] = field(default_factory=list[ChangedStates])
    tokens: list[str] = field(default_factory=list[str])

    async def changed_states(self, token: str) -> ChangedStates:
        """The next reply."""
        self.tokens.append(token)
        return self.told.pop(0)


def told(
    *names: str, token: str, is_whole: bool = False, removed: tuple[str, ...] = (), left: int = 0
) -> ChangedStates:
    """A reply with the states of these subscriptions."""
    rows = [a_subscription(name).to_wire() for name in names]
    return ChangedStates(
        Page(rows, 99, 1), token, is_whole, tuple(f"psub:durable:global:{each}" for each in removed), left
    )


async def test_polls_ask_for_what_changed_and_keep_the_rest() -> None:
    """Parts of one reply make one poll; what was not told is the same object; a whole reply voids what was known."""
    client = ChangingClient([[]])
    client.told = [
        told("b", "d", token="t1", is_whole=True, left=1),
        told("a", token="t2"),
        told("c", "b", token="t3", removed=("d", "never-seen")),
        told(token="t4"),
        told("e", token="u1", is_whole=True),
    ]
    broker = broker_of(client)
    polls = [await broker.poll() for _ in range(4)]
    assert client.tokens == ["", "t1", "t2", "t3", "t4"]
    named = [[state.subscription_name for state in poll.subscriptions] for poll in polls]
    assert named == [["a", "b", "d"], ["a", "b", "c"], ["a", "b", "c"], ["e"]]
    assert all(poll.complete for poll in polls)
    assert polls[1].subscriptions[0] is polls[0].subscriptions[0]
    assert polls[1].subscriptions[1] is not polls[0].subscriptions[1]
    assert all(now is before for now, before in zip(polls[2].subscriptions, polls[1].subscriptions, strict=True))


async def test_an_answer_that_is_not_understood_changes_nothing() -> None:
    """The next poll asks for the same again."""
    wrong = told("a", "b", token="t2", removed=("a",))
    wrong.page.results[1]["depth"] = "deep"
    client = ChangingClient([[]], told=[told("a", token="t1", is_whole=True), wrong, told("b", token="t2")])
    broker = broker_of(client)
    await broker.poll()
    with pytest.raises(BrokerAway, match="depth"):
        await broker.poll()
    assert len((await broker.poll()).subscriptions) == 2
    assert client.tokens == ["", "t1", "t1"]


async def test_real_brokers_tell_what_changed_over_reconnects_and_restarts(tmp_path: Path) -> None:
    """What the observer puts together is what a full read tells, whatever happened between two polls."""
    with BrokerProcess(tmp_path / "data") as process:
        clients: list[ManagementClient] = []

        async def connect() -> ManagementClient:
            clients.append(await ManagementClient.connect(process.management))
            return clients[-1]

        broker = PolledBroker(connect)
        names = [f"s{number}" for number in range(1200)]
        bodies = [
            SubscriptionDeclaration(subscription_name=name, exchange="amq.topic", binding_keys=(name,))
            for name in names
        ]
        administrator = await ManagementClient.connect(process.management)
        replies = await administrator.create_all([ListedEntity(EntityType.SUBSCRIPTION, None, each) for each in bodies])
        assert {reply.status for reply in replies} == {201}
        first = await agreed(broker, administrator)
        assert len(first.subscriptions) == 1200
        with connected(process.url) as client:
            publish(client.create_sender("amq.topic/s7"), ["1", "2"])
        await administrator.delete(EntityType.SUBSCRIPTION, "psub:durable:global:s1100", Deletion())
        await clients[-1].close()
        with pytest.raises(BrokerAway):
            await broker.poll()
        second = await agreed(broker, administrator)
        before = {state.queue_name: state for state in first.subscriptions}
        changed = [state.queue_name for state in second.subscriptions if before[state.queue_name] is not state]
        assert changed == ["psub:durable:global:s7"]
        assert len(second.subscriptions) == 1199
        await administrator.close()
        process.kill()
        process.start()
        with pytest.raises(BrokerAway):
            await broker.poll()
        administrator = await ManagementClient.connect(process.management)
        third = await agreed(broker, administrator)
        assert third.broker.epoch == second.broker.epoch + 1
        assert len(third.subscriptions) == 1199
        await administrator.close()
        await broker.close()


async def agreed(broker: PolledBroker, administrator: ManagementClient) -> Poll:
    """A poll, which has what a full read tells."""
    poll = await broker.poll()
    states = await administrator.states(SubscriptionState)
    assert list(poll.subscriptions) == sorted(states, key=lambda state: state.queue_name)
    return poll
