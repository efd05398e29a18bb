"""A consumer that closes while its session's window keeps messages back: other links of the session go on, and nothing
stays behind. The numbers are typed from part 2, 2.5.6 and 2.6.7.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient

from penstock_amqp.frames.performatives import Attach, Begin, Detach, End, Flow, Source, Target, Transfer
from penstock_amqp.messages.message_codec import Message, encode_message

COUNT = 20
LONG = encode_message(Message(body=b"x" * 50_000))
"""Twenty of them are more than the broker gives to a session that is shut."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("windows") / "data", settings={"maxMessageBytes": 200_000}) as process:
        yield process


class Consumer:
    """A client with one session for its messages, whose window a test opens."""

    def __init__(self, broker: BrokerProcess, queue: str) -> None:
        self.client = RawClient(broker.port, queue)
        self._queue = queue
        self._handle = self._sent = 0
        self.taken = 0
        self.client.begin(1)
        self.client.send(
            Attach(name="to", handle=0, role=False, target=Target(address=queue), initial_delivery_count=0), 1
        )
        self.client.expect(Attach)
        self.client.send(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=10))
        self.client.expect(Begin)

    def publish(self, count: int) -> None:
        for _ in range(count):
            number, self._sent = self._sent, self._sent + 1
            sent = Transfer(handle=0, delivery_id=number, delivery_tag=number.to_bytes(4, "big"), settled=True)
            self.client.send(sent, 1, LONG)

    def attach(self, *, presettled: bool) -> None:
        self._handle += 1
        self.client.send(
            Attach(
                name=f"from-{self._handle}",
                handle=self._handle,
                role=True,
                snd_settle_mode=int(presettled),
                source=Source(address=self._queue),
                target=Target(),
            )
        )
        self.client.expect(Attach)

    def allow(self, window: int, credit: int, *, count: int = 0, drain: bool | None = None) -> None:
        self.client.send(
            Flow(
                next_incoming_id=self.taken,
                incoming_window=window,
                next_outgoing_id=0,
                outgoing_window=10,
                handle=self._handle,
                delivery_count=count,
                link_credit=credit,
                drain=drain,
            )
        )

    def take(self) -> None:
        """The next message, which is one frame."""
        self.client.expect_transfer()
        self.taken += 1

    def end(self, frame: Detach | End) -> None:
        """Send it, and wait for the answer; what was sent is settled before that."""
        self.client.send(frame)
        while not isinstance(self.client.receive().performative, type(frame)):
            pass

    def detach(self) -> None:
        self.end(Detach(handle=self._handle, closed=True))


@pytest.mark.parametrize("presettled", [False, True], ids=["unsettled", "presettled"])
def test_the_next_consumer_of_the_session_gets_messages(broker: BrokerProcess, presettled: bool) -> None:
    peer = Consumer(broker, f"next-{presettled}")
    with peer.client:
        for _ in range(3):
            peer.publish(COUNT)
            peer.attach(presettled=presettled)
            peer.allow(1, COUNT)
            peer.take()
            peer.detach()
        peer.publish(COUNT)
        peer.attach(presettled=presettled)
        peer.allow(100, COUNT)
        for _ in range(COUNT):
            peer.take()
        peer.allow(100, 0, count=COUNT, drain=True)
        while not (flow := peer.client.expect(Flow)).drain:
            pass
        assert (flow.delivery_count, flow.link_credit, flow.next_outgoing_id) == (COUNT, 0, peer.taken)


def test_what_was_kept_back_is_delivered_by_another_session(broker: BrokerProcess) -> None:
    peer = Consumer(broker, "session")
    with peer.client as client:
        peer.publish(COUNT)
        peer.attach(presettled=False)
        peer.allow(1, COUNT)
        peer.take()
        peer.end(End())
        client.begin()
        peer.taken = 0
        peer.attach(presettled=False)
        peer.allow(100, COUNT)
        for _ in range(COUNT):
            peer.take()


def window_of(client: RawClient) -> int:
    """The broker's incoming window of the session."""
    client.send(Flow(next_incoming_id=0, incoming_window=1, next_outgoing_id=0, outgoing_window=1, echo=True))
    while (flow := client.expect(Flow)).handle is not None:
        pass
    return flow.incoming_window


def test_what_comes_of_a_message_behind_the_end_of_its_link_leaves_the_window_open(broker: BrokerProcess) -> None:
    """The broker ends the link where the message gets too long; the client has sent much more of it by then."""
    with RawClient(broker.port, "too long") as client:
        client.begin()
        before = window_of(client)
        for turn in range(2):
            client.attach_sender(f"to-{turn}", Target(address="too-long"))
            handle = client.last_handle
            client.send(Transfer(handle=handle, delivery_id=turn, delivery_tag=b"t", more=True), payload=LONG)
            for _ in range(50):
                client.send(Transfer(handle=handle, more=True), payload=LONG)
            assert client.expect(Detach).error is not None
            client.send(Detach(handle=handle, closed=True))
        client.attach_sender("to-the-end", Target(address="too-long"))  # so all of it has been read
        assert window_of(client) == before
