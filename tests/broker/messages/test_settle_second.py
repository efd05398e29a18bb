"""receiver-settle-mode second: the receiver accepts, we settle once the end of the message is safe, then it settles.
With a sender it is the other way round: we accept, it settles, then we do.

And what the reply to an attach says about who settles when.
"""

from __future__ import annotations

import pytest
from support.broker_process import BrokerProcess
from support.proton_client import connected, is_empty, publish, take
from support.raw_client import RawClient

from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Flow,
    Rejected,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Described, ULong

ACCEPTED = 0x24
RELEASED = 0x26


def attach(client: RawClient, *, snd: int | None, rcv: int | None) -> Attach:
    """Attach a receiver with the settle modes asked; the reply."""
    client.begin()
    client.send(
        Attach(
            name="l",
            handle=0,
            role=True,
            snd_settle_mode=snd,
            rcv_settle_mode=rcv,
            source=Source(address="q"),
            target=Target(),
        )
    )
    return client.expect(Attach)


def answer(client: RawClient, transfer: Transfer, outcome: int) -> None:
    """End a delivery without settling it."""
    assert transfer.delivery_id is not None
    state = Described(ULong(outcome), [])
    client.send(Disposition(role=True, first=transfer.delivery_id, settled=False, state=state))


def test_what_is_accepted_is_settled_by_us_and_gone_after_a_kill(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        publish(connection.create_sender("q"), ["one", "two"])
    with RawClient(broker_process.port, "careful") as client:
        reply = attach(client, snd=0, rcv=1)
        assert (reply.snd_settle_mode, reply.rcv_settle_mode) == (0, 1)
        client.flow(0, credit=2)
        transfers = [client.expect_transfer()[0] for _ in range(2)]
        answer(client, transfers[0], ACCEPTED)
        settled = client.expect(Disposition)
        assert (settled.role, settled.first, settled.settled) == (False, transfers[0].delivery_id, True)
        assert settled.state == Accepted()
        broker_process.kill()
    broker_process.start()
    with connected(broker_process.url) as connection:
        receiver = connection.create_receiver("q", credit=10)
        assert take(receiver, 1) == [("two", 1)]  # it may have been seen
        assert is_empty(receiver)


def test_what_is_released_unsettled_is_settled_by_us_and_comes_again(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        publish(connection.create_sender("q"), ["one"])
    with RawClient(broker_process.port, "careful") as client:
        attach(client, snd=0, rcv=1)
        client.flow(0, credit=2)
        transfer, _ = client.expect_transfer()
        answer(client, transfer, RELEASED)
        again: Transfer | None = None
        is_settled = False
        while again is None or not is_settled:
            received = client.receive().performative
            if isinstance(received, Transfer):
                again = received
            elif isinstance(received, Disposition):
                is_settled = received.settled is True
            else:
                assert isinstance(received, Flow)


def test_a_link_lost_before_we_settled_gets_nothing_and_harms_nobody(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        publish(connection.create_sender("q"), ["one"])
    with RawClient(broker_process.port, "careful") as client:
        attach(client, snd=0, rcv=1)
        client.flow(0, credit=1)
        transfer, _ = client.expect_transfer()
        answer(client, transfer, ACCEPTED)
        client.send(Detach(handle=0, closed=True))
        while not isinstance(client.receive().performative, Detach):
            pass  # the disposition may have come in time
    with connected(broker_process.url) as connection:
        assert is_empty(connection.create_receiver("q", credit=10))


@pytest.mark.parametrize(
    ("asked", "told"),
    [((None, None), (0, 0)), ((0, 0), (0, 0)), ((2, 0), (0, 0)), ((1, 0), (1, 0)), ((1, 1), (1, 0)), ((2, 1), (0, 1))],
)
def test_the_reply_to_a_receiver_says_what_holds(
    broker_process: BrokerProcess, asked: tuple[int | None, int | None], told: tuple[int, int]
) -> None:
    with RawClient(broker_process.port, "receiver") as client:
        reply = attach(client, snd=asked[0], rcv=asked[1])
        assert (reply.snd_settle_mode or 0, reply.rcv_settle_mode or 0) == told


def attach_sender(client: RawClient, *, snd: int, rcv: int) -> Attach:
    """Attach a sender to the queue "q" with the settle modes asked; the reply. Credit is still to come."""
    client.begin()
    client.send(
        Attach(
            name="l",
            handle=0,
            role=False,
            snd_settle_mode=snd,
            rcv_settle_mode=rcv,
            source=Source(),
            target=Target(address="q"),
            initial_delivery_count=0,
        )
    )
    return client.expect(Attach)


def send(client: RawClient, number: int) -> None:
    """Send one durable message, unsettled."""
    body = encode(Described(ULong(0x77), "text"))
    durable = encode(Described(ULong(0x70), [True]))
    transfer = Transfer(handle=0, delivery_id=number, delivery_tag=b"%d" % number, settled=False)
    client.send(transfer, payload=durable + body)


def settle(client: RawClient, first: int, last: int) -> None:
    """Settle deliveries of ours that were accepted."""
    client.send(Disposition(role=False, first=first, last=last, settled=True, state=Accepted()))


@pytest.mark.parametrize("snd", [0, 1, 2])
@pytest.mark.parametrize("rcv", [0, 1])
def test_a_sender_chooses_its_mode_and_ours(broker_process: BrokerProcess, snd: int, rcv: int) -> None:
    with RawClient(broker_process.port, "sender") as client:
        reply = attach_sender(client, snd=snd, rcv=rcv)
        assert (reply.snd_settle_mode, reply.rcv_settle_mode or 0) == (snd, rcv)


@pytest.mark.parametrize(("rcv", "settled"), [(0, True), (1, False)])
def test_what_a_sender_settles_first_is_accepted_unsettled(
    broker_process: BrokerProcess, rcv: int, settled: bool
) -> None:
    with RawClient(broker_process.port, "sender") as client:
        attach_sender(client, snd=0, rcv=rcv)
        client.expect(Flow)
        send(client, 0)
        answered = client.expect(Disposition)
        assert (answered.first, answered.settled or False, answered.state) == (0, settled, Accepted())
        broker_process.kill()
    broker_process.start()
    with connected(broker_process.url) as connection:
        assert take(connection.create_receiver("q", credit=10), 1) == [("text", 0)]  # accepted means kept


def test_what_a_sender_never_settles_is_settled_in_the_end(broker_process: BrokerProcess) -> None:
    """uamqp asks for second, and then waits for the broker to settle; so do Azure's libraries for Python."""
    with RawClient(broker_process.port, "sender") as client:
        attach_sender(client, snd=0, rcv=1)
        client.expect(Flow)
        for number in (0, 1):
            send(client, number)
            assert not client.expect(Disposition).settled
            answered = client.expect(Disposition)
            assert (answered.first, answered.settled, answered.state) == (number, True, Accepted())
        settle(client, 0, 1)  # late, and of no consequence
        send(client, 2)
        assert client.expect(Disposition).first == 2


def test_a_sender_may_settle_before_it_is_answered_and_may_leave_unsettled(broker_process: BrokerProcess) -> None:
    with RawClient(broker_process.port, "sender") as client:
        attach_sender(client, snd=0, rcv=1)
        client.expect(Flow)
        send(client, 0)
        settle(client, 0, 0)
        send(client, 1)
        answered = client.expect(Disposition)
        while 1 not in range(answered.first, (answered.last or answered.first) + 1):
            answered = client.expect(Disposition)
        client.send(Detach(handle=0, closed=True))
        while not isinstance(client.receive().performative, Detach):
            pass  # what is left unsettled ends with the link
        client.close()
    with connected(broker_process.url) as connection:
        assert len(take(connection.create_receiver("q", credit=10), 2)) == 2


def test_what_is_rejected_is_left_unsettled_too(broker_process: BrokerProcess) -> None:
    with RawClient(broker_process.port, "sender") as client:
        attach_sender(client, snd=0, rcv=1)
        client.expect(Flow)
        transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"0", settled=False)
        client.send(transfer, payload=b"no message")
        answered = client.expect(Disposition)
        assert not answered.settled
        assert isinstance(answered.state, Rejected)
        settle(client, 0, 0)
        send(client, 1)
        assert client.expect(Disposition).state == Accepted()
