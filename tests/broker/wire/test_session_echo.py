"""A flow of a session that asks for an answer gets one, whatever the same read brings before or behind it.

The engine says nothing of such a flow. Source: AMQP 1.0 part 2, 2.7.4 (echo).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream

from penstock_amqp.frames.frames import encode_frame, read_body, walk
from penstock_amqp.frames.performatives import Accepted, Disposition, Flow, Performative, Source, Target, Transfer
from penstock_amqp.types.composites import to_value

MESSAGE = b"\x00\x53\x75\xa0\x40" + bytes(64)
ASKED = encode_frame(
    Flow(next_incoming_id=0, incoming_window=5000, next_outgoing_id=0, outgoing_window=5000, echo=True)
)


class Peer:
    """A connection that sends to `work` (handle 0) and takes from it (handle 1), and is read in long pieces."""

    def __init__(self, timed: SteppedBroker) -> None:
        self.timed = timed
        self.stream = SteppedStream(timed)
        client = RawClient(0, "peer", stream=self.stream).__enter__()
        client.begin()
        client.attach_sender("to", Target(address="work"))
        client.attach_receiver("from", Source(address="work"))
        client.flow(1, credit=1000)
        self.sent = 0
        for _ in range(10):
            self.stream.sendall(self.messages(10))
            self.said()

    def close(self) -> None:
        self.stream.close()

    def messages(self, count: int) -> bytes:
        """So many that are settled already."""
        first, self.sent = self.sent, self.sent + count
        frames = [
            Transfer(handle=0, delivery_id=number, delivery_tag=b"%d" % number, settled=True)
            for number in range(first, self.sent)
        ]
        return b"".join(encode_frame(each, payload=MESSAGE) for each in frames)

    def said(self) -> list[Performative]:
        """What the broker has sent by now."""
        for _ in range(4):
            self.timed.turn()
        data = self.stream.take()
        return [read_body(data[body:end], Performative)[0] for _, end, _, _, body in walk(data) if body < end]

    def answers(self) -> int:
        """Flows of the session that came."""
        return sum(isinstance(each, Flow) and each.handle is None for each in self.said())


@pytest.fixture
def peer(timed: SteppedBroker) -> Iterator[Peer]:
    timed.make_queue("work", durable=False)
    with closing(Peer(timed)) as peer:
        yield peer


def accepts(first: int, count: int) -> bytes:
    """One disposition for each."""
    state = to_value(Accepted())
    frames = [Disposition(role=True, first=each, settled=True, state=state) for each in range(first, first + count)]
    return b"".join(encode_frame(each) for each in frames)


def test_it_is_answered_behind_many_accepts(peer: Peer) -> None:
    peer.stream.sendall(accepts(0, 50) + ASKED)
    assert peer.answers() == 1


@pytest.mark.parametrize("before", [0, 1, 30, 300])
@pytest.mark.parametrize("behind", [0, 1, 30, 300])
def test_it_is_answered_among_messages(peer: Peer, before: int, behind: int) -> None:
    peer.stream.sendall(peer.messages(before) + ASKED + peer.messages(behind))
    assert peer.answers() == 1


@pytest.mark.parametrize("cut", range(1, len(ASKED)))
def test_it_is_answered_when_it_comes_in_two_reads(peer: Peer, cut: int) -> None:
    peer.stream.sendall(peer.messages(20) + ASKED[:cut])
    assert peer.answers() == 0
    peer.stream.sendall(ASKED[cut:] + peer.messages(20))
    assert peer.answers() == 1
