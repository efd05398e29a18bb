"""Messages for which their sender has no credit: the link ends, and what came within the credit is taken.

All of them come in one read, so that no new credit can have been on its way. Source: AMQP 1.0 part 2, 2.6.7 and 2.8.16.
"""

from __future__ import annotations

from contextlib import closing

import pytest
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream

from penstock_amqp.frames.frames import encode_frame, read_body, walk
from penstock_amqp.frames.performatives import Detach, Disposition, Flow, Performative, Target, Transfer

MESSAGE = b"\x00\x53\x75\xa0\x01x"


class Sender:
    """A connection with a session and a link to the queue `work`; `credit` is what the broker granted."""

    def __init__(self, timed: SteppedBroker, name: str = "sender") -> None:
        self.timed = timed
        self.stream = SteppedStream(timed)
        client = RawClient(0, name, stream=self.stream).__enter__()
        client.begin()
        client.attach_sender("link", Target(address="work"))
        self.credit = client.expect(Flow).link_credit or 0
        self.sent = 0

    def close(self) -> None:
        self.stream.close()

    def post(self, count: int, *, settled: bool) -> None:
        """Send so many messages in one write."""
        frames = [
            Transfer(handle=0, delivery_id=number, delivery_tag=b"%d" % number, settled=settled or None)
            for number in range(self.sent, self.sent + count)
        ]
        self.sent += count
        self.stream.sendall(b"".join(encode_frame(each, payload=MESSAGE) for each in frames))

    def said(self) -> list[Performative]:
        """What the broker has sent by now."""
        for _ in range(4):
            self.timed.turn()
        data = self.stream.take()
        return [read_body(data[body:end], Performative)[0] for _, end, _, _, body in walk(data) if body < end]


def accepted(said: list[Performative]) -> int:
    return sum((each.last or each.first) - each.first + 1 for each in said if isinstance(each, Disposition))


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("durable", [True, False])
def test_a_message_without_credit_ends_its_link(timed: SteppedBroker, *, settled: bool, durable: bool) -> None:
    queue = timed.make_queue("work", durable=durable)
    with closing(Sender(timed)) as sender:
        assert sender.credit == 1000
        sender.post(1003, settled=settled)
        said = sender.said()
    (detach,) = [each for each in said if isinstance(each, Detach)]
    assert detach.closed is True and detach.error is not None
    assert detach.error.condition == "amqp:link:transfer-limit-exceeded"
    assert queue.depth == 1000
    assert accepted(said) == (0 if settled else 1000)


@pytest.mark.parametrize("settled", [True, False])
def test_all_of_the_credit_may_be_used(timed: SteppedBroker, *, settled: bool) -> None:
    queue = timed.make_queue("work")
    with closing(Sender(timed)) as sender:
        for _ in range(3):
            sender.post(1000, settled=settled)
            said = sender.said()
            assert not [each for each in said if isinstance(each, Detach)]
            assert accepted(said) == (0 if settled else 1000)
    assert queue.depth == 3000
