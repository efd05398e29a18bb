"""Messages through a real broker process: publish, share, settle, redeliver, drain, browse."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import pytest
from proton import Delivery, Message, Terminus
from proton.reactor import AtMostOnce
from proton.utils import BlockingReceiver, LinkDetached, SendException
from support.broker_process import BrokerProcess
from support.proton_client import Browsing, NoLocalFilter, SelectedBy, Subscribed, connected, is_empty, publish, take
from support.raw_client import RawClient

from penstock_amqp.frames.performatives import Attach, Begin, Flow, Source, Target


def hold(receiver: BlockingReceiver, count: int) -> list[object]:
    """Receive without settling."""
    return [receiver.receive(timeout=60).body for _ in range(count)]


def test_a_volatile_consumer_gets_what_is_published_while_it_is_there(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        sender = connection.create_sender("amq.topic")
        publish(sender, ["before"], subject="a.b")
        receiver = connection.create_receiver("amq.topic/a.*", credit=10)
        publish(sender, ["one", "two"], subject="a.b")
        publish(sender, ["other"], subject="x.b")
        assert take(receiver, 2) == [("one", 0), ("two", 0)]
        assert is_empty(receiver)


def test_two_links_of_one_subscription_share_its_messages_evenly(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as one, connected(broker_process.url) as two:
        first = one.create_receiver("amq.topic/a", name="sub|global", options=Subscribed(), credit=100)
        second = two.create_receiver("amq.topic/a", name="sub|global2", options=Subscribed(), credit=100)
        publish(one.create_sender("amq.topic/a"), list(range(60)))
        bodies = sorted(int(str(body)) for body, _ in take(first, 30) + take(second, 30))
        assert bodies == list(range(60))


def test_released_comes_back_uncounted_and_modified_counted(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        receiver = connection.create_receiver("q", credit=1)
        publish(connection.create_sender("q"), ["x"])
        assert receiver.receive(timeout=60).delivery_count == 0
        receiver.release(delivered=False)
        assert receiver.receive(timeout=60).delivery_count == 0
        assert receiver.fetcher is not None
        receiver.fetcher.unsettled[0].local.failed = True
        receiver.settle(Delivery.MODIFIED)
        assert receiver.receive(timeout=60).delivery_count == 1
        receiver.accept()
        assert is_empty(receiver)


def test_rejected_is_gone(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        receiver = connection.create_receiver("q", credit=1)
        publish(connection.create_sender("q"), ["bad", "good"])
        assert receiver.receive(timeout=60).body == "bad"
        receiver.reject()
        assert take(receiver, 1) == [("good", 0)]


def test_what_a_lost_client_held_comes_back_in_order_with_delivery_count(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as other:
        sender = other.create_sender("q")
        with connected(broker_process.url) as connection:
            receiver = connection.create_receiver("q", credit=3)
            publish(sender, ["a", "b", "c"])
            assert hold(receiver, 3) == ["a", "b", "c"]
        publish(sender, ["d"])
        again = other.create_receiver("q", name="again", credit=10)
        assert take(again, 4) == [("a", 1), ("b", 1), ("c", 1), ("d", 0)]


def test_durable_messages_survive_kill_9_and_undurable_ones_do_not(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        receiver = connection.create_receiver("amq.topic/a", name="sub|global", options=Subscribed(), credit=2)
        sender = connection.create_sender("amq.topic/a")
        publish(sender, ["seen", "settled"])
        assert hold(receiver, 2) == ["seen", "settled"]
        receiver.settle(Delivery.ACCEPTED)  # settles the oldest: "seen"
        publish(sender, ["kept"])
        publish(sender, ["gone"], durable=False)
        broker_process.kill()
        connection.timeout = 0.1  # nobody answers its close
        broker_process.start()
    with connected(broker_process.url) as connection:
        receiver = connection.create_receiver("amq.topic/a", name="sub|global", options=Subscribed(), credit=10)
        bodies = dict(drained(receiver))
        assert "gone" not in bodies
        assert bodies["kept"] in (0, 1)
        assert bodies["settled"] == 1


def drained(receiver: BlockingReceiver) -> list[tuple[object, int]]:
    """Everything that is there."""
    taken: list[tuple[object, int]] = []
    while not is_empty(receiver):
        taken += take(receiver, 1)
    return taken


def test_a_selector_keeps_others_out(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        receiver = connection.create_receiver(
            "amq.topic/a", options=SelectedBy("color = 'red' AND size > 3"), credit=10
        )
        sender = connection.create_sender("amq.topic/a")
        publish(sender, ["small"], properties={"color": "red", "size": 1})
        publish(sender, ["blue"], properties={"color": "blue", "size": 9})
        publish(sender, ["match"], properties={"color": "red", "size": 9})
        assert take(receiver, 1) == [("match", 0)]
        assert is_empty(receiver)


def test_a_bad_selector_is_refused_with_its_position(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        with pytest.raises(LinkDetached) as refused:
            connection.create_receiver("amq.topic/a", options=SelectedBy("color ="), credit=1)
        assert refused.value.condition == "amqp:invalid-field"
        assert "character 8" in str(refused.value)


def test_no_local_leaves_out_the_own_connection(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as mine, connected(broker_process.url) as other:
        receiver = mine.create_receiver("amq.topic/a", options=NoLocalFilter(), credit=10)
        publish(mine.create_sender("amq.topic/a"), ["own"])
        publish(other.create_sender("amq.topic/a"), ["other"])
        assert take(receiver, 1) == [("other", 0)]


def test_a_browser_sees_and_leaves_everything(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        publish(connection.create_sender("q"), ["a", "b"])
        browser = connection.create_receiver("q", name="browser", options=Browsing(), credit=10)
        assert browser.link.remote_source.distribution_mode == Terminus.DIST_MODE_COPY
        assert take(browser, 2) == [("a", 0), ("b", 0)]
        assert take(connection.create_receiver("q", credit=10), 2) == [("a", 0), ("b", 0)]


def test_a_message_whose_time_is_over_is_not_delivered(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        sender = connection.create_sender("q")
        publish(sender, ["short"], ttl=0.001)
        publish(sender, ["long"], ttl=60)
        receiver = connection.create_receiver("q", credit=10)
        message = receiver.receive(timeout=60)
        receiver.accept()
        assert message.body == "long"
        assert 0 < message.ttl <= 60


def test_an_anonymous_producer_names_the_place_in_each_message(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        receiver = connection.create_receiver("q", credit=10)
        sender = connection.create_sender(None)
        publish(sender, ["relayed"], address="q")
        assert take(receiver, 1) == [("relayed", 0)]
        with pytest.raises(SendException):
            sender.send(Message(body="nowhere"))


def test_a_message_of_many_frames_goes_through(broker_process: BrokerProcess) -> None:
    body = "x" * 1_500_000
    with connected(broker_process.url) as connection:
        receiver = connection.create_receiver("q", credit=1)
        publish(connection.create_sender("q"), [body])
        assert take(receiver, 1) == [(body, 0)]


def test_a_message_beyond_the_limit_closes_the_link(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        sender = connection.create_sender("q")
        with pytest.raises(LinkDetached) as refused:
            sender.send(Message(body="x" * 2_500_000))
        assert refused.value.condition == "amqp:link:message-size-exceeded"
        publish(connection.create_sender("q", name="again"), ["small"])


def test_messages_sent_settled_arrive(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        receiver = connection.create_receiver("q", credit=10, options=AtMostOnce())
        sender = connection.create_sender("q", options=AtMostOnce())
        sender.send(Message(body="quick"))
        assert receiver.receive(timeout=60).body == "quick"


def test_a_peer_with_a_small_session_window_gets_everything_in_its_own_time(broker_process: BrokerProcess) -> None:
    """400 messages of 2 KiB through a window of 10 frames: more than the engine may hold back."""
    with connected(broker_process.url) as connection:
        publish(connection.create_sender("q"), [f"{number} {'x' * 2000}" for number in range(400)], durable=False)
    with RawClient(broker_process.port, "narrow") as client:
        client.send(Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10))
        client.expect(Begin)
        client.send(Attach(name="l", handle=0, role=True, source=Source(address="q"), target=Target()))
        client.expect(Attach)
        client.send(
            Flow(next_incoming_id=0, incoming_window=10, next_outgoing_id=0, outgoing_window=10, handle=0,
                 delivery_count=0, link_credit=1000)
        )  # fmt: skip
        for number in range(400):
            _, payload = client.expect_transfer()
            assert f"{number} xxx".encode() in payload
            if number % 10 == 9:
                opened = Flow(next_incoming_id=number + 1, incoming_window=10, next_outgoing_id=0, outgoing_window=10)
                client.send(opened)
