"""Links that clients attach again with deliveries that they had not settled (AMQP 1.0 part 2, 2.6.13 and 2.7.5).

The broker keeps no unsettled state of a sender: its map is empty, and what is resumed all the same is released.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, symbols

from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Disposition,
    Flow,
    Released,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, encode_message

QUEUE = symbols("queue")
OLD, NEW = (encode_message(Message(body=body)) for body in ("old", "new"))
LONG = encode_message(Message(body=b"x" * 200_000))


@pytest.fixture
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    """A sender that says which deliveries it has not settled is attached."""
    with (
        BrokerProcess(tmp_path_factory.mktemp("recovered") / "data") as broker,
        RawClient(broker.port, "recovers") as client,
    ):
        client.begin()
        client.send(
            Attach(
                name="s",
                handle=0,
                role=False,
                source=Source(),
                target=Target(address="q", capabilities=QUEUE),
                unsettled={b"a": None, b"b": None},
                incomplete_unsettled=True,
                initial_delivery_count=0,
            )
        )
        answer = client.expect(Attach)
        assert answer.unsettled == {}
        assert not answer.incomplete_unsettled
        assert client.expect(Flow).link_credit == 1000
        yield client


def send(
    client: RawClient, number: int, payload: bytes, *, resume: bool | None = None, more: bool | None = None
) -> None:
    tag = bytes((number,))
    client.send(Transfer(handle=0, delivery_id=number, delivery_tag=tag, resume=resume, more=more), payload=payload)


def outcomes(client: RawClient, count: int) -> list[type[object] | None]:
    """How the next `count` deliveries end, in order of their ids; each is settled."""
    ended: dict[int, type[object] | None] = {}
    while len(ended) < count:
        told = client.expect(Disposition)
        assert told.settled
        for number in range(told.first, (told.last or told.first) + 1):
            ended[number] = None if told.state is None else type(told.state)
    return [ended[number] for number in sorted(ended)]


def waiting(client: RawClient) -> list[bytes]:
    client.attach_receiver("r", Source(address="q", capabilities=QUEUE), handle=1)
    client.flow(1, credit=10, drain=True)
    came: list[bytes] = []
    while True:
        frame = client.receive()
        if isinstance(frame.performative, Transfer):
            came.append(frame.payload)
        elif isinstance(frame.performative, Flow) and frame.performative.drain:
            return came


def test_what_is_resumed_is_released_and_what_is_sent_anew_is_taken(client: RawClient) -> None:
    send(client, 0, OLD, resume=True)
    send(client, 1, OLD, resume=True)
    send(client, 2, NEW)
    assert outcomes(client, 3) == [Released, Released, Accepted]
    assert waiting(client) == [NEW]


def test_a_long_one_is_released_at_its_end(client: RawClient) -> None:
    for at in range(0, len(LONG), 60_000):
        send(client, 0, LONG[at : at + 60_000], resume=True, more=at + 60_000 < len(LONG))
    send(client, 1, NEW)
    assert outcomes(client, 2) == [Released, Accepted]
    assert waiting(client) == [NEW]


def test_one_that_is_settled_or_aborted_is_ignored(client: RawClient) -> None:
    client.send(Transfer(handle=0, delivery_id=0, delivery_tag=b"a", resume=True, settled=True), payload=OLD)
    send(client, 1, OLD, resume=True, more=True)
    client.send(Transfer(handle=0, delivery_id=1, resume=True, aborted=True))
    send(client, 2, NEW)
    assert outcomes(client, 1) == [Accepted]
    assert waiting(client) == [NEW]
