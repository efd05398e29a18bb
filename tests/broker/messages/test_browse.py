"""What browsers are told of messages: the header that a consumer would get. Real clients, time by hand."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import pytest
from proton import Delivery, Message, Terminus
from support.stepped_broker import Peer, SteppedBroker

from penstock_broker.queue.queue import Queue


@pytest.fixture
def jobs(timed: SteppedBroker) -> Queue:
    return timed.make_queue("jobs")


def send(timed: SteppedBroker, *messages: Message) -> None:
    assert timed.connect().send("jobs", *messages) == ["accepted"] * len(messages)


def browsed(timed: SteppedBroker, *, max_message_size: int = 0) -> list[Message]:
    """What a new browser of the queue gets."""
    peer = timed.connect("browser")
    link = peer.session.receiver("browser")
    link.source.address, link.source.distribution_mode = "jobs", Terminus.DIST_MODE_COPY
    link.max_message_size = max_message_size
    link.open()
    link.flow(100)
    peer.pump()
    messages = [message for message, _ in peer.got]
    peer.close()
    return messages


def fail(consumer: Peer, state: int = Delivery.MODIFIED) -> None:
    """Take one message, and give it back."""
    link = consumer.receive("jobs", 1, name="consumer")
    consumer.take(state, failed=True)
    link.close()
    consumer.pump()


@pytest.mark.usefixtures("jobs")
def test_a_browser_sees_how_often_a_message_failed(timed: SteppedBroker) -> None:
    """3.2.1 (delivery-count). The copies come in their order, whether their headers are rewritten or not."""
    send(timed, *(Message(body=body) for body in ("m1", "m2", "m3")))
    holder, consumer = timed.connect("holder"), timed.connect("consumer")
    holder.receive("jobs", 1)
    fail(consumer)
    fail(consumer)
    holder.take(Delivery.RELEASED)
    assert [(each.body, each.delivery_count) for each in browsed(timed)] == [("m1", 0), ("m2", 2), ("m3", 0)]


@pytest.mark.usefixtures("jobs")
def test_a_browser_sees_the_time_that_a_message_has_left(timed: SteppedBroker) -> None:
    send(timed, Message(body="m1", ttl=10), Message(body="m2"))
    timed.pass_ms(4_000)
    assert [(each.body, each.ttl) for each in browsed(timed)] == [("m1", 6), ("m2", 0)]


@pytest.mark.usefixtures("jobs")
def test_a_browser_is_not_told_that_nobody_has_had_what_came_back(timed: SteppedBroker) -> None:
    """3.2.1 (first-acquirer)"""
    send(timed, Message(body="m1", first_acquirer=True), Message(body="m2", first_acquirer=True))
    assert [each.first_acquirer for each in browsed(timed)] == [True, True]
    fail(timed.connect("consumer"), Delivery.RELEASED)
    assert [(each.first_acquirer, each.delivery_count) for each in browsed(timed)] == [(False, 0), (True, 0)]


def test_a_copy_that_its_header_makes_too_long_is_left_out(timed: SteppedBroker, jobs: Queue) -> None:
    send(timed, Message(body="m1"))
    longest = jobs.depth_bytes
    assert [each.body for each in browsed(timed, max_message_size=longest)] == ["m1"]
    fail(timed.connect("consumer"))
    assert browsed(timed, max_message_size=longest) == []
    assert [each.body for each in browsed(timed, max_message_size=longest + 24)] == ["m1"]
