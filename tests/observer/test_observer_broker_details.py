"""What the page asks the broker: shares of consumers, and that many readers cost no more than one."""

from __future__ import annotations

from typing import Any

import pytest
from observer.page_site import Clock

from penstock_api.state_documents import ConnectionState, LinkState
from penstock_observer.broker_details import (
    KEPT_SECONDS,
    MOST_CONNECTIONS,
    BrokerDetails,
    DetailsConnection,
    Links,
    NotKnown,
    consumers_of,
)


def a_link(identifier: str, transfers: int, **changes: Any) -> LinkState:
    """A consumer of the queue q."""
    values: dict[str, Any] = {
        "id": identifier,
        "connection": identifier.split("-")[0],
        "name": f"link-{identifier}",
        "role": "Receiver",
        "address": "q",
        "queue_name": "q",
        "credit": 10,
        "unsettled": 1,
        "transfers": transfers,
    }
    return LinkState(**(values | changes))


def a_connection(identifier: str, container: str) -> ConnectionState:
    """Of the user ann."""
    return ConnectionState(
        id=identifier, container_id=container, user="ann", peer="p", listener="amqp", opened_ms=0, links=1
    )


def test_shares_are_those_of_all_deliveries_of_the_queue() -> None:
    """The busiest first; links of other queues and producers do not count, one of an unknown connection does."""
    links = (
        a_link("1-0", 100),
        a_link("2-0", 300),
        a_link("9-0", 0),
        a_link("1-1", 5000, queue_name="other"),
        a_link("1-2", 5000, role="Sender", queue_name=None),
    )
    found = consumers_of("q", Links(links, (a_connection("1", "c-1"), a_connection("2", "c-2"))))
    assert [(each.container, each.user, each.transfers, each.share_percent) for each in found] == [
        ("c-2", "ann", 300, 75),
        ("c-1", "ann", 100, 25),
        ("9", "", 0, 0),
    ]
    [idle] = consumers_of("q", Links((a_link("1-0", 0),), ()))
    assert idle.share_percent is None


async def test_a_broker_that_is_away_is_asked_once_in_ten_seconds() -> None:
    """And one with many connections is not asked for its links at all."""
    asked: list[float] = []
    clock = Clock()

    async def connect() -> DetailsConnection:
        asked.append(clock())
        raise ConnectionRefusedError("refused")

    details = BrokerDetails(connect, clock)
    for _ in range(5):
        assert (await details.exchanges()).problem == "the broker does not answer: refused"
    clock.seconds += KEPT_SECONDS
    await details.exchanges()
    assert asked == [1000.0, 1000.0 + KEPT_SECONDS]
    with pytest.raises(NotKnown, match="the broker has 1001 connections"):
        await details.links(MOST_CONNECTIONS + 1)
    assert len(asked) == 2


async def test_the_links_of_a_broker_that_is_away_are_asked_once_in_ten_seconds() -> None:
    """However many readers look at their subscription, each of whom would wait for those before."""
    asked: list[float] = []
    clock = Clock()

    async def connect() -> DetailsConnection:
        asked.append(clock())
        raise ConnectionRefusedError("refused")

    details = BrokerDetails(connect, clock)
    for _ in range(5):
        with pytest.raises(NotKnown, match="the broker does not answer: refused"):
            await details.links(1)
    clock.seconds += KEPT_SECONDS
    with pytest.raises(NotKnown):
        await details.links(1)
    assert asked == [1000.0, 1000.0 + KEPT_SECONDS]
