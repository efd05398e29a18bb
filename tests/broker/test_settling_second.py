"""receiver-settle-mode second: the receiver accepts, we settle once the end of the message is safe, then it settles.

And what the reply to an attach says about who settles when.
"""

from __future__ import annotations

import pytest
from amqp.raw_client import RawClient
from broker.clients import connected, is_empty, publish, take
from support.broker_process import BrokerProcess

from penstock_amqp.frames.performatives import Accepted, Attach, Detach, Disposition, Flow, Source, Target, Transfer
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


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_sender_chooses_its_mode_and_is_settled_first(broker_process: BrokerProcess, mode: int) -> None:
    with RawClient(broker_process.port, "sender") as client:
        client.begin()
        client.send(
            Attach(
                name="l",
                handle=0,
                role=False,
                snd_settle_mode=mode,
                rcv_settle_mode=1,
                source=Source(),
                target=Target(address="q"),
                initial_delivery_count=0,
            )
        )
        reply = client.expect(Attach)
        assert (reply.snd_settle_mode, reply.rcv_settle_mode or 0) == (mode, 0)
