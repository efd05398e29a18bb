"""The answer to a flow that asks for an echo; the numbers are typed from part 2, 2.6.7."""

from __future__ import annotations

from penstock_amqp.frames.flow_echo import LinkCredit, echo_frame
from penstock_amqp.frames.frames import read_body
from penstock_amqp.frames.performatives import Flow
from penstock_amqp.types.values import Symbol

SESSION = Flow(next_incoming_id=7, incoming_window=1024, next_outgoing_id=40, outgoing_window=2**31 - 1)


def answered(flow: Flow, link: LinkCredit | None) -> Flow:
    frame = echo_frame(flow, 3, SESSION, link)
    assert frame[6:8] == b"\x00\x03"
    return read_body(frame[8:], Flow)[0]


def test_a_receiver_that_asks_learns_how_far_we_sent() -> None:
    # It has seen 10 deliveries and lets us send 5 more: up to 15. We have 2 left, so 13 were sent.
    flow = Flow(
        next_incoming_id=40,
        incoming_window=99,
        next_outgoing_id=7,
        outgoing_window=99,
        handle=5,
        delivery_count=10,
        link_credit=5,
        echo=True,
    )
    told = answered(flow, LinkCredit(handle=1, is_sender=True, credit=2, available=8))
    assert told == Flow(
        next_incoming_id=7,
        incoming_window=1024,
        next_outgoing_id=40,
        outgoing_window=2**31 - 1,
        handle=1,
        delivery_count=13,
        link_credit=2,
        available=8,
    )


def test_a_sender_that_asks_learns_its_credit() -> None:
    flow = Flow(
        next_incoming_id=0,
        incoming_window=9,
        next_outgoing_id=30,
        outgoing_window=9,
        handle=5,
        delivery_count=30,
        link_credit=0,
        available=4,
        echo=True,
    )
    told = answered(flow, LinkCredit(handle=2, is_sender=False, credit=500))
    assert (told.handle, told.delivery_count, told.link_credit, told.available) == (2, 30, 500, None)


def test_counts_wrap_at_32_bits() -> None:
    flow = Flow(
        incoming_window=9, next_outgoing_id=0, outgoing_window=9, handle=0, delivery_count=2**32 - 1, link_credit=3
    )
    assert answered(flow, LinkCredit(handle=0, is_sender=True, credit=1)).delivery_count == 1


def test_a_session_that_asks_learns_about_itself_alone() -> None:
    flow = Flow(next_incoming_id=1, incoming_window=9, next_outgoing_id=2, outgoing_window=9, echo=True)
    told = answered(flow, None)
    assert told == SESSION


def test_more_sent_than_the_peer_still_allows_is_counted_and_no_credit_is_left() -> None:
    flow = Flow(incoming_window=9, next_outgoing_id=0, outgoing_window=9, handle=0, delivery_count=1, link_credit=0)
    told = answered(flow, LinkCredit(handle=0, is_sender=True, credit=-1))
    assert (told.delivery_count, told.link_credit) == (2, 0)


def test_the_answer_names_the_transaction_in_which_the_link_acquires() -> None:
    # Part 4, 4.4: it tells with which transaction the next transfers will be.
    flow = Flow(next_incoming_id=40, incoming_window=99, next_outgoing_id=7, outgoing_window=99, handle=5, echo=True)
    told = answered(flow, LinkCredit(handle=1, is_sender=True, credit=0, txn_id=b"seven"))
    assert told.properties == {Symbol("txn-id"): b"seven"}
    assert answered(flow, LinkCredit(handle=1, is_sender=True, credit=0)).properties is None
