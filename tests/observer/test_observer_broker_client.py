"""Polling over management answers: pages, changes between pages, failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from observer.samples import START_MS, a_broker, a_subscription

from penstock_amqp.client.errors import ManagementError, TransportError
from penstock_api.management import EntityType
from penstock_observer.broker_client import PolledBroker
from penstock_observer.poller import BrokerAway

REFUSED = ManagementError(403, "no", condition=None, reason=None)


@dataclass(frozen=True)
class Answer:
    """One QUERY answer."""

    results: Sequence[Mapping[str, object]]
    total_count: int


@dataclass
class Client:
    """A management client over a list of names per poll; page size 2."""

    polls: list[list[str]]
    at: int = -1
    offsets: list[int] = field(default_factory=list[int])
    closed: bool = False

    async def read(self, type: EntityType, name: str | None = None) -> Mapping[str, object]:
        """The broker, at the end of a poll."""
        assert (type, name) == (EntityType.BROKER, None)
        return a_broker().to_wire()

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
