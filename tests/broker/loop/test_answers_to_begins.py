"""A Begin is answered in its turn, also if what came with it, of another session, is nothing that anybody answers.

JMS does that: `receive` acknowledges a message of one session, and the next call creates another session.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream

from penstock_amqp.frames.frames import encode_frame, read_body, walk
from penstock_amqp.frames.performatives import (
    Accepted,
    Begin,
    Disposition,
    Performative,
    Source,
    Target,
    Transfer,
)

MESSAGE = b"\x00\x53\x75\xa0\x01x"
BEGINS = 20
"""More than it takes until the broker reads this connection in long pieces, and ahead of others."""


def accept(delivery: int) -> bytes:
    return encode_frame(Disposition(role=True, first=delivery, last=delivery, settled=True, state=Accepted()))


def presettled(delivery: int) -> bytes:
    transfer = Transfer(
        handle=0, delivery_id=BEGINS + delivery, delivery_tag=b"%d" % delivery, message_format=0, settled=True
    )
    return encode_frame(transfer, payload=MESSAGE)


def accept_and_presettled(delivery: int) -> bytes:
    return accept(delivery) + presettled(delivery)


@pytest.mark.parametrize("before", [accept, presettled, accept_and_presettled])
def test_a_begin_behind_what_nobody_answers_is_answered(timed: SteppedBroker, before: Callable[[int], bytes]) -> None:
    timed.make_queue("work", durable=False)
    timed.make_queue("sent", durable=False)
    stream = SteppedStream(timed)
    with RawClient(0, "client", stream=stream) as client:
        client.begin()
        client.attach_sender("sender", Target(address="sent"))
        client.attach_sender("feed", Target(address="work"))
        client.attach_receiver("receiver", Source(address="work"))
        client.flow(2, credit=BEGINS)
        for number in range(BEGINS):
            transfer = Transfer(handle=1, delivery_id=number, delivery_tag=b"f", message_format=0, settled=True)
            client.send(transfer, payload=MESSAGE)
            client.expect_transfer()
        for number in range(BEGINS):
            stream.take()
            begin = Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)
            client.send_bytes(before(number) + encode_frame(begin, number + 1))
            timed.turn()
            answers = stream.take()
            came = [read_body(answers[at:end], Performative)[0] for _, end, _, _, at in walk(answers) if at < end]
            begun = [each.remote_channel for each in came if isinstance(each, Begin)]
            assert begun == [number + 1], f"the answer to Begin {number + 1} waits for something else to be sent"
