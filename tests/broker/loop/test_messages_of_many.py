"""Several connections that each send a message or two in the same turn: these are stored together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from proton import Delivery
from support.raw_client import RawClient, symbols
from support.stepped_broker import SteppedBroker, SteppedStream

import penstock_native
from penstock_amqp.endpoint.events import DATA, NUMBER
from penstock_amqp.frames.frames import encode_frame, read_body, walk
from penstock_amqp.frames.performatives import (
    Accepted,
    Close,
    Detach,
    Disposition,
    Performative,
    Rejected,
    Source,
    Target,
)
from penstock_amqp.frames.performatives import Transfer as TransferFrame
from penstock_amqp.messages.transaction_types import TransactionalState
from penstock_amqp.types.values import Described, Symbol, ULong
from penstock_broker.access.connection import Connection
from penstock_broker.loop import events, loop, read_ahead
from penstock_broker.messages import publish_batches, store
from penstock_broker.messages.publish_batches import Batch
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Producer
from penstock_broker.state.routes import Route
from penstock_broker.topology.records import Exchange

DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41"
"""A header that says so."""
pytestmark = pytest.mark.skipif(penstock_native.proton is None, reason="the engine in Python reads no sockets itself")

WARM = 8
"""Messages after which a connection's input is read in long pieces."""


def encoded(body: bytes) -> bytes:
    """A durable message with one data section."""
    return DURABLE + b"\x00\x53\x75\xa0" + bytes((len(body),)) + body


class Site(SteppedBroker):
    """A broker that closes what its clients have opened."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: list[SteppedStream] = []

    def close(self) -> None:
        for stream in self.streams:
            stream.close()
        super().close()


class Client:
    """A connection with one link, on which it sends."""

    def __init__(self, timed: Site, name: str, address: str | Target) -> None:
        self.stream = SteppedStream(timed)
        timed.streams.append(self.stream)
        self._client = RawClient(0, name, stream=self.stream).__enter__()
        self._client.begin()
        target = address if isinstance(address, Target) else Target(address=address)
        reply = self._client.attach_sender("link", target)
        assert isinstance(reply.target, Target)
        self.address = reply.target.address or ""
        self.name, self._sent = name, 0
        self.warm_up(timed)

    def warm_up(self, timed: Site) -> None:
        """Send what is forgotten, until the broker reads this connection in long pieces."""
        for _ in range(WARM):
            self.post(b"warm")
            timed.turn()
            timed.turn()
        assert self.outcomes() == [Accepted] * WARM

    def subscribe(self, name: str, address: str) -> None:
        """Attach a link that gets no credit."""
        self._client.attach_receiver(name, Source(address=address))

    def post(
        self,
        body: bytes,
        *,
        payload: bytes | None = None,
        settled: bool = False,
        state: TransactionalState | None = None,
    ) -> None:
        """Send a message; its body is the client's name and `body`."""
        tag = b"%d" % self._sent
        frame = TransferFrame(
            handle=0,
            delivery_id=self._sent,
            delivery_tag=tag,
            message_format=0,
            settled=settled or None,
            state=state,
        )
        self._sent += 1
        whole = encoded(self.name.encode() + b" " + body) if payload is None else payload
        self._client.send(frame, payload=whole)

    def detach(self) -> None:
        """Ask for the end of the link, and wait for nothing."""
        self._client.send(Detach(handle=0, closed=True))

    def frames(self) -> list[Performative]:
        """What has come by now."""
        data = self.stream.take()
        return [read_body(data[body:end], Performative)[0] for _, end, _, _, body in walk(data) if body < end]

    def outcomes(self) -> list[type]:
        """The states of the deliveries that the broker has settled by now."""
        told: list[type] = []
        for frame in self.frames():
            if isinstance(frame, Disposition):
                assert frame.settled
                told += [type(frame.state)] * ((frame.last or frame.first) - frame.first + 1)
        return told


@pytest.fixture
def timed() -> Iterator[Site]:
    broker = Site()
    yield broker
    broker.close()


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches were stored together, each time."""
    counts: list[int] = []
    real = publish_batches.publish_batches

    def count(
        broker: Broker,
        route: Route,
        sources: list[Batch],
        exchange: Exchange | None,
        failed: Callable[[Connection], None],
    ) -> list[Producer]:
        counts.append(len(sources))
        return real(broker, route, sources, exchange, failed)

    monkeypatch.setattr(events, "publish_batches", count)
    return counts


def clients(timed: Site, count: int, address: str = "work") -> list[Client]:
    return [Client(timed, f"client-{number}", address) for number in range(count)]


def bodies(timed: Site, name: str = "work") -> list[bytes]:
    """What was sent after the warming up, in the order of the queue."""
    found = (entry[DATA] for _, entry in timed.queue(name).everything(timed.log.next_number))
    return [data[data.index(b"client") :] for data in found if b"warm" not in data]


def test_messages_of_several_connections_are_stored_together(timed: Site, shared: list[int]) -> None:
    queue = timed.make_queue("work")
    senders = clients(timed, 5)
    enqueued = queue.totals.enqueued
    shared.clear()
    for sender in senders:
        sender.post(b"1")
        sender.post(b"2")
    timed.turn()
    timed.turn()
    assert shared == [5]
    assert queue.totals.enqueued - enqueued == 10
    assert sorted(bodies(timed)) == [b"client-%d %d" % (number, at) for number in range(5) for at in (1, 2)]
    assert [sender.outcomes() for sender in senders] == [[Accepted, Accepted]] * 5
    numbers = [entry[NUMBER] for _, entry in queue.everything(timed.log.next_number)]
    assert numbers == sorted(numbers)
    timed.restart()
    assert len(bodies(timed)) == 10


def test_messages_of_connections_that_had_to_wait_for_their_turn_are_stored_together_too(
    timed: Site, shared: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn has time for two of nine, read one by one; later there is time for all, and not more than three are
    handled at once.
    """
    monkeypatch.setattr(read_ahead, "READ_TOGETHER", 1)
    queue = timed.make_queue("work")
    senders = clients(timed, 9)
    enqueued = queue.totals.enqueued
    shared.clear()
    for sender in senders:
        sender.post(b"1")
    timed.step_seconds = 0.0012
    timed.turn()
    timed.step_seconds = 0.0
    assert shared == [2]
    monkeypatch.setattr(loop, "LATE_TOGETHER", 3)
    timed.turn()
    assert shared == [2, 3, 3, 1]
    timed.turn()
    assert queue.totals.enqueued - enqueued == 9
    assert [sender.outcomes() for sender in senders] == [[Accepted]] * 9


def test_an_exchange_counts_what_came_together(timed: Site, shared: list[int]) -> None:
    timed.connect().receive("amq.topic/news")
    senders = clients(timed, 3, "amq.topic/news")
    exchange = timed.broker.topology.exchanges["amq.topic"]
    received, received_bytes = exchange.received, exchange.received_bytes
    for sender in senders:
        sender.post(b"1")
    timed.turn()
    timed.turn()
    size = len(encoded(b"client-0 1"))
    assert shared[-1] == 3
    assert (exchange.received - received, exchange.received_bytes - received_bytes) == (3, 3 * size)
    assert [sender.outcomes() for sender in senders] == [[Accepted]] * 3


def test_what_a_consumer_accepts_meanwhile_does_not_part_them(timed: Site, shared: list[int]) -> None:
    queue = timed.make_queue("work")
    one, two = clients(timed, 2)
    consumer = timed.connect("consumer")
    consumer.receive("work", credit=12)
    for _ in range(WARM):
        consumer.take()
    depth = queue.depth
    consumer.got[0][1].update(Delivery.ACCEPTED)
    consumer.got[0][1].settle()
    shared.clear()
    one.post(b"x")
    consumer.flush()
    two.post(b"x")
    timed.turn()
    timed.turn()
    assert shared == [2]
    assert queue.depth - depth == 1
    assert one.outcomes() == two.outcomes() == [Accepted]


def test_those_for_other_queues_are_stored_apart(timed: Site, shared: list[int]) -> None:
    timed.make_queue("work")
    timed.make_queue("play")
    one, two, three = (Client(timed, f"client-{at}", address) for at, address in enumerate(("work", "play", "work")))
    shared.clear()
    for sender in (one, two, three):
        sender.post(b"x")
    timed.turn()
    timed.turn()
    assert sum(shared) == 3
    assert len(shared) >= 2
    assert sorted(bodies(timed)) == [b"client-0 x", b"client-2 x"]
    assert bodies(timed, "play") == [b"client-1 x"]
    assert [sender.outcomes() for sender in (one, two, three)] == [[Accepted]] * 3


def test_a_message_that_names_an_unknown_transaction_is_not_stored_with_others(timed: Site, shared: list[int]) -> None:
    timed.make_queue("work")
    senders = clients(timed, 3)
    shared.clear()
    senders[0].post(b"1")
    senders[1].post(b"2", state=TransactionalState(txn_id=b"nowhere"))
    senders[2].post(b"3")
    timed.turn()
    timed.turn()
    assert sum(shared) == 2
    assert [sender.outcomes() for sender in senders] == [[Accepted], [Rejected], [Accepted]]
    assert sorted(bodies(timed)) == [b"client-0 1", b"client-2 3"]


@pytest.fixture
def alike(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches were numbered and logged together, each time."""
    counts: list[int] = []
    real = publish_batches._take_alike  # pyright: ignore[reportPrivateUsage]

    def count(*given: Any) -> int:
        counts.append(real(*given))
        return counts[-1]

    monkeypatch.setattr(publish_batches, "_take_alike", count)
    return counts


LASTING_4 = b"\x00\x53\x70\xc0\x05\x03\x41\x50\x04\x40"
"""A header that names the usual priority, which the warm messages do not."""


def test_those_that_begin_alike_are_numbered_together(timed: Site, alike: list[int]) -> None:
    queue = timed.make_queue("work")
    senders = clients(timed, 5)
    alike.clear()
    for sender in senders:
        sender.post(b"1")
        if sender is senders[3]:
            sender.post(b"2")
    timed.turn()
    timed.turn()
    assert alike == [5]
    assert [len(sender.outcomes()) for sender in senders] == [1, 1, 1, 2, 1]
    timed.restart()
    assert sorted(bodies(timed)) == sorted([b"client-%d 1" % number for number in range(5)] + [b"client-3 2"])
    assert queue.totals.enqueued == 5 * WARM + 6


def test_one_that_begins_otherwise_parts_them(timed: Site, alike: list[int]) -> None:
    """Its first message begins as those of the others do, its second does not."""
    timed.make_queue("work")
    senders = clients(timed, 5)
    received = timed.queue("work").totals.enqueued
    alike.clear()
    for sender in senders:
        sender.post(b"1")
        if sender is senders[2]:
            sender.post(b"2", payload=LASTING_4 + encoded(b"client-2 2")[len(DURABLE) :])
    timed.turn()
    timed.turn()
    assert alike == [2, 2]
    assert [len(sender.outcomes()) for sender in senders] == [1, 1, 2, 1, 1]
    numbers = [entry[NUMBER] for _, entry in timed.queue("work").everything(timed.log.next_number)]
    assert numbers == sorted(set(numbers))
    assert timed.queue("work").totals.enqueued - received == 6
    expected = sorted([b"client-%d 1" % number for number in range(5)] + [b"client-2 2"])
    assert sorted(bodies(timed)) == expected
    timed.restart()
    assert sorted(bodies(timed)) == expected


def test_what_is_settled_by_its_sender_gets_no_outcome(timed: Site, alike: list[int]) -> None:
    timed.make_queue("work")
    senders = clients(timed, 3)
    alike.clear()
    for sender in senders:
        sender.post(b"1", settled=sender is not senders[0])
        if sender is senders[1]:
            sender.post(b"2")
    timed.turn()
    timed.turn()
    assert alike == [3]
    assert [sender.outcomes() for sender in senders] == [[Accepted], [Accepted], []]
    assert len(bodies(timed)) == 4
    links = [link for each in timed.broker.clients.connections.values() for link in each.endpoint.all_links()]
    producers = [link.context for link in links if isinstance(link.context, Producer)]
    assert [producer.owed_credit - WARM for producer in producers] == [1, 2, 1]


def test_volatile_ones_are_accepted_at_once(timed: Site, alike: list[int]) -> None:
    timed.make_queue("work")
    senders = clients(timed, 3)
    for sender in senders:  # each has to be seen once
        sender.post(b"warm", payload=encoded(b"warm")[len(DURABLE) :])
    timed.turn()
    assert [sender.outcomes() for sender in senders] == [[Accepted]] * 3
    alike.clear()
    for sender in senders:
        sender.post(b"1", payload=encoded(sender.name.encode() + b" 1")[len(DURABLE) :])
    timed.turn()
    assert alike == [3]
    assert [sender.outcomes() for sender in senders] == [[Accepted]] * 3
    assert sorted(bodies(timed)) == [b"client-0 1", b"client-1 1", b"client-2 1"]
    timed.restart()
    assert bodies(timed) == []


def test_an_accept_that_fails_costs_its_connection_and_no_other(
    timed: Site, alike: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed.make_queue("work")
    senders = clients(timed, 3)

    def fail(*_: object) -> None:
        raise RuntimeError("a mistake")

    for connection in timed.broker.clients.connections.values():
        if connection.client.container_id == "client-1":
            monkeypatch.setattr(connection.endpoint, "accept", fail)
    for sender in senders:
        sender.post(b"1")
    timed.turn()
    timed.turn()
    assert alike[-1] == 3
    assert senders[0].outcomes() == senders[2].outcomes() == [Accepted]
    assert [type(frame) for frame in senders[1].frames()] == [Close]
    assert len(bodies(timed)) == 3


class Layer:
    """Something between a socket and AMQP that gives what came in parts of so many bytes."""

    def __init__(self, first: int) -> None:
        self._first, self._rest = first, b""
        self._sent: list[bytes] = []
        self.has_ended, self.peer_certificate = False, None

    def feed(self, ciphertext: bytes | memoryview) -> bytes:
        whole = self._rest + bytes(ciphertext)
        given, self._rest = whole[: self._first], whole[self._first :]
        return given

    @property
    def has_more(self) -> bool:
        return bool(self._rest)

    def send(self, plaintext: bytes | memoryview) -> None:
        self._sent.append(bytes(plaintext))

    def output(self) -> bytes:
        sent, self._sent = b"".join(self._sent), []
        return sent

    def known(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_what_a_layer_keeps_back_is_not_forgotten(timed: Site, shared: list[int]) -> None:
    """As TLS does, which does not decrypt everything at once; no event tells of what it keeps."""
    timed.make_queue("work")
    senders = clients(timed, 3)
    one = encoded(b"client-0 1")
    frame = TransferFrame(handle=0, delivery_id=8, delivery_tag=b"8", message_format=0)
    size = len(encode_frame(frame, payload=one))
    for connection in timed.broker.clients.connections.values():
        connection.transport.wrapping = Layer(size)
        connection.line = connection.light_line = None  # which only a plain socket has
    shared.clear()
    for sender in senders:
        sender.post(b"1")
        if sender is senders[0]:
            sender.post(b"2")
    for _ in range(4):
        timed.turn()
    assert sorted(bodies(timed)) == [b"client-0 1", b"client-0 2", b"client-1 1", b"client-2 1"]
    assert [sender.outcomes() for sender in senders] == [[Accepted, Accepted], [Accepted], [Accepted]]
    assert shared == [2]


def test_a_message_that_cannot_be_read_is_refused_and_the_others_are_not(timed: Site) -> None:
    timed.make_queue("work")
    senders = clients(timed, 4)
    for sender in senders:
        sender.post(b"x", payload=b"\x00\x53\x70\xff" if sender is senders[1] else None)
    timed.turn()
    timed.turn()
    assert [sender.outcomes() for sender in senders] == [[Accepted], [Rejected], [Accepted], [Accepted]]
    assert sorted(bodies(timed)) == [b"client-0 x", b"client-2 x", b"client-3 x"]


def test_a_mistake_with_one_batch_costs_its_connection_and_no_other(
    timed: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second message of a batch, when the first is numbered already."""
    queue = timed.make_queue("work")
    senders = clients(timed, 4)
    real = publish_batches.learn_prefix

    def learn(producer: Producer, data: bytes) -> bytes:
        if b"spoilt" in data:
            raise RuntimeError("a mistake")
        return real(producer, data)

    monkeypatch.setattr(publish_batches, "learn_prefix", learn)
    depth = queue.depth
    for sender in senders:
        sender.post(b"x")
        if sender is senders[2]:
            sender.post(b"y", payload=b"\x00\x53\x72\xc1\x01\x00" + encoded(b"spoilt"))
    timed.turn()
    timed.turn()
    frames = senders[2].frames()
    assert [type(frame) for frame in frames] == [Close]
    assert [sender.outcomes() for sender in senders if sender is not senders[2]] == [[Accepted]] * 3
    assert sorted(bodies(timed)) == [b"client-0 x", b"client-1 x", b"client-3 x"]
    assert queue.depth - depth == 3


def test_a_mistake_where_all_are_stored_costs_those_that_were_stored_together(
    timed: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed.make_queue("work")
    senders, witness = clients(timed, 3), Client(timed, "client-9", "work")

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a mistake")

    with monkeypatch.context() as patched:
        patched.setattr(store, "put_numbered", fail)
        for sender in senders:
            sender.post(b"x")
        timed.turn()
    timed.turn()
    assert [[type(frame) for frame in sender.frames()] for sender in senders] == [[Close]] * 3
    witness.post(b"x")
    timed.turn()
    timed.turn()
    assert witness.outcomes() == [Accepted]


def test_who_detaches_behind_a_message_has_it_stored_first(timed: Site) -> None:
    timed.make_queue("work")
    senders = clients(timed, 3)
    for sender in senders:
        sender.post(b"x")
        if sender is senders[1]:
            sender.detach()
    timed.turn()
    timed.turn()
    assert sorted(bodies(timed)) == [b"client-0 x", b"client-1 x", b"client-2 x"]
    assert senders[0].outcomes() == senders[2].outcomes() == [Accepted]
    assert [type(frame) for frame in senders[1].frames()][-1] is Detach


def test_while_the_volume_is_full_each_is_refused(timed: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    timed.make_queue("work")
    senders = clients(timed, 3)
    refused = timed.broker.storage.refused
    monkeypatch.setattr(timed.log, "accepts_publishing", lambda: False)
    for sender in senders:
        sender.post(b"x")
    timed.turn()
    timed.turn()
    assert [sender.outcomes() for sender in senders] == [[Rejected]] * 3
    assert timed.broker.storage.refused - refused == 3
    assert bodies(timed) == []


def test_a_link_that_ends_with_the_node_of_another_is_asked_for_nothing(
    timed: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first sends breaks its link, whose temporary topic goes with it, and with that the link of the second,
    whose message came in the same turn.
    """
    made = Target(
        dynamic=True,
        dynamic_node_properties={Symbol("lifetime-policy"): Described(ULong(0x2B), [])},
        capabilities=symbols("temporary-topic"),
    )
    owner = Client(timed, "client-0", made)
    owner.subscribe("one", owner.address)
    owner.subscribe("two", owner.address)
    owner.warm_up(timed)
    guest = Client(timed, "client-1", f"{owner.address}/key")
    were_open: list[list[bool]] = []
    real = publish_batches.publish_batches

    def note(*given: Any) -> list[Producer]:
        were_open.append([producer.link.is_open for producer, _ in given[2]])
        return real(*given)

    monkeypatch.setattr(events, "publish_batches", note)
    owner.post(b"x", payload=b"\x00\x53\x70\xff", settled=True)
    guest.post(b"x", settled=True)
    timed.turn()
    timed.turn()
    assert [type(frame) for frame in owner.frames()][:1] == [Detach]
    assert [type(frame) for frame in guest.frames()] == [Detach]
    assert were_open == [[True]]
