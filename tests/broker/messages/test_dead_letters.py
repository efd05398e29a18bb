"""Dead letters: who becomes one, what it says, and that none is lost on the way. Real clients, time by hand."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import pytest
from proton import Condition, Delivery, Message, Terminus, symbol
from support.proton_client import put_symbols
from support.stepped_broker import Peer, SteppedBroker

from penstock_amqp.endpoint.events import NUMBER
from penstock_amqp.types.values import Value
from penstock_api.management import DeliveryPolicy as Policy
from penstock_api.management import EntityType, QueueLimits
from penstock_broker.management.declare import declare
from penstock_broker.management.delete import delete
from penstock_broker.management.logged_operations import Caller
from penstock_broker.messages import dead_letters
from penstock_broker.messages.dead_letters import RETRY_MS
from penstock_broker.queue.queue import Queue, Stranded
from penstock_broker.state.broker import Broker

CALLER = Caller("ann", "here", "amqp")
LIMITED = Policy(max_deliveries=2, dead_letter="dead")


@pytest.fixture
def jobs(timed: SteppedBroker) -> Queue:
    timed.make_queue("dead")
    return timed.make_queue("jobs", LIMITED)


def send(peer: Peer, *bodies: str, **fields: object) -> None:
    messages = [Message(body=body, durable=True, **fields) for body in bodies]
    assert peer.send("jobs", *messages) == ["accepted"] * len(bodies)


def told(message: Message) -> dict[str, object]:
    assert message.annotations is not None
    return {str(key): value for key, value in message.annotations.items()}


def buried(timed: SteppedBroker, queue: str = "dead") -> list[Message]:
    """What waits there, taken out."""
    peer = timed.connect()
    peer.receive(queue)
    peer.pump()
    return [peer.take() for _ in list(peer.got)]


def test_a_rejected_message_is_buried_at_once_and_says_why(timed: SteppedBroker, jobs: Queue) -> None:
    peer = timed.connect()
    send(peer, "m1", annotations={symbol("x-opt-mine"): 1, symbol("x-opt-delivery-delay"): 0}, first_acquirer=True)
    peer.receive("jobs")
    sent, delivery = peer.got[0]
    assert sent.first_acquirer
    delivery.local.condition = Condition("shop:broken", "no price")
    peer.take(Delivery.REJECTED)
    assert (jobs.depth, jobs.depth_bytes, jobs.totals.dead_lettered, jobs.totals.dropped) == (0, 0, 1, 0)
    (message,) = buried(timed)
    assert (message.body, message.durable, message.delivery_count) == ("m1", True, 0)
    assert not message.first_acquirer  # the link that rejected it had it
    assert told(message) == {
        "x-opt-mine": 1,
        "x-opt-ORIG-QUEUE": "jobs",
        "x-opt-ORIG-ADDRESS": "jobs",
        "x-opt-death-reason": "rejected",
        "x-opt-death-time": 1_000_000,
        "x-opt-death-delivery-count": 0,
        "x-opt-death-condition": "shop:broken",
        "x-opt-death-description": "no price",
    }


def test_the_limit_counts_failures_only(timed: SteppedBroker, jobs: Queue) -> None:
    peer = timed.connect()
    send(peer, "m1")
    peer.receive("jobs")
    for _ in range(5):
        peer.take(Delivery.RELEASED)
    for _ in range(5):
        peer.take(Delivery.MODIFIED)
    peer.take(Delivery.MODIFIED, failed=True)
    assert (jobs.depth, timed.queue("dead").depth) == (1, 0)
    peer.take(Delivery.MODIFIED, failed=True)
    assert (jobs.depth, jobs.in_flight, jobs.totals.dead_lettered) == (0, 0, 1)
    (message,) = buried(timed)
    assert told(message)["x-opt-death-reason"] == "delivery_limit"
    assert told(message)["x-opt-death-delivery-count"] == 2


def test_lost_links_condemn_the_oldest_alone(timed: SteppedBroker, jobs: Queue) -> None:
    send(timed.connect(), "m1", "m2", "m3")
    for _ in range(2):
        peer = timed.connect()
        peer.receive("jobs")
        assert peer.bodies() == ["m1", "m2", "m3"]
        peer.drop()
    assert [message.body for message in buried(timed)] == ["m1"]
    peer = timed.connect()
    peer.receive("jobs")
    assert [(message.body, message.delivery_count) for message, _ in peer.got] == [("m2", 1), ("m3", 1)]


def test_deliveries_that_a_restart_forgot_do_not_count(timed: SteppedBroker, jobs: Queue) -> None:
    send(timed.connect(), "m1")
    for _ in range(5):
        peer = timed.connect()
        peer.receive("jobs")
        assert peer.bodies() == ["m1"]
        timed.restart()
    assert (timed.queue("jobs").depth, timed.queue("dead").depth) == (1, 0)


def test_failures_are_remembered_over_a_restart(timed: SteppedBroker, jobs: Queue) -> None:
    for expected in (0, 1):
        peer = timed.connect()
        if not expected:
            send(peer, "m1")
        peer.receive("jobs")
        peer.take(Delivery.MODIFIED, failed=True)
        timed.restart()
        assert timed.queue("dead").depth == expected
    assert timed.queue("jobs").depth == 0


def test_a_message_in_flight_ends_with_its_queue_and_is_no_dead_letter(timed: SteppedBroker, jobs: Queue) -> None:
    """Decision 032: an attempt counts where a client was lost, and here it was not."""
    send(timed.connect(), "m1")
    peer = timed.connect()
    peer.receive("jobs")
    peer.take(Delivery.MODIFIED, failed=True)
    peer.pump()
    assert (len(peer.got), jobs.in_flight) == (1, 1)
    answer = delete(timed.broker, CALLER, EntityType.QUEUE, "jobs", {"ifUnused": False})
    timed.turn()
    assert answer.status == 204
    assert (timed.queue("dead").depth, jobs.totals.dead_lettered) == (0, 0)


def test_a_message_in_flight_ends_with_its_subscription_and_is_no_dead_letter(timed: SteppedBroker) -> None:
    dead = timed.make_queue("dead")
    wanted: dict[Value, Value] = {
        "subscriptionName": "sub",
        "exchange": "amq.topic",
        "delivery": {"maxDeliveries": 1, "deadLetter": "dead"},
    }
    assert declare(timed.broker, EntityType.SUBSCRIPTION, None, wanted, update=False).status == 201
    peer = timed.connect()
    link = peer.session.receiver("sub|1")
    link.source.address = "amq.topic"
    link.source.durability = Terminus.DELIVERIES
    link.source.expiry_policy = Terminus.EXPIRE_NEVER
    put_symbols(link.source.capabilities, ["topic", "shared", "global"])
    link.open()
    link.flow(10)
    peer.pump()
    assert peer.send("amq.topic", Message(body="m1", durable=True)) == ["accepted"]
    assert len(peer.got) == 1
    (subscription,) = timed.broker.topology.subscriptions.values()
    answer = delete(timed.broker, CALLER, EntityType.SUBSCRIPTION, subscription.name, {"ifUnused": False})
    timed.turn()
    assert (answer.status, dead.depth) == (204, 0)


def test_without_a_destination_there_is_no_limit_and_what_is_rejected_is_dropped(
    timed: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    queue = timed.make_queue("jobs", Policy(max_deliveries=1))
    peer = timed.connect()
    send(peer, "m1", "m2")
    peer.receive("jobs")
    for _ in range(3):
        peer.take(Delivery.MODIFIED, failed=True)
    assert queue.depth == 2
    peer.take(Delivery.REJECTED)
    peer.take(Delivery.REJECTED)
    assert (queue.depth, queue.totals.dropped) == (0, 2)
    assert caplog.text.count("rejects messages; they are dropped") == 1


def test_its_time_to_live_does_not_kill_a_dead_letter(timed: SteppedBroker, jobs: Queue) -> None:
    peer = timed.connect()
    send(peer, "m1", ttl=5, expiry_time=1_005, id="m", correlation_id="c")
    peer.receive("jobs")
    peer.take(Delivery.REJECTED)
    timed.pass_ms(60_000)
    timed.restart()
    (message,) = buried(timed)
    assert (message.ttl, message.expiry_time, message.id, message.correlation_id) == (0, 0, "m", "c")


def test_where_the_destination_is_missing_nothing_is_lost(
    timed: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = timed.make_queue("jobs", LIMITED)
    peer = timed.connect()
    send(peer, "m1", "m2")
    peer.receive("jobs")
    peer.take(Delivery.REJECTED)
    assert (jobs.depth, len(jobs.stranded), jobs.totals.dead_lettered, peer.bodies()) == (2, 1, 0, ["m2"])
    peer.take(Delivery.REJECTED)
    timed.pass_ms(RETRY_MS)
    assert (jobs.depth, len(jobs.stranded), jobs.depth_bytes > 0) == (2, 2, True)
    assert caplog.text.count("are kept") == 1
    timed.make_queue("dead")
    timed.pass_ms(RETRY_MS)
    assert (jobs.depth, jobs.depth_bytes, jobs.totals.dead_lettered) == (0, 0, 2)
    assert [message.body for message in buried(timed)] == ["m1", "m2"]


@pytest.mark.parametrize("heads", [1, 12])
def test_messages_that_can_never_go_hold_up_no_others(timed: SteppedBroker, heads: int) -> None:
    timed.make_queue("dead", limits=QueueLimits(max_bytes=4000, overflow="Reject"))
    jobs = timed.make_queue("jobs", Policy(max_deliveries=2, dead_letter="dead"))
    producer = timed.connect()
    assert producer.send("dead", Message(body="f" * 3900, durable=True)) == ["accepted"]
    large = [Message(body="b" * 5000, durable=True) for _ in range(heads)]
    producer.send("jobs", *large, Message(body="small", durable=True), Message(body="small too", durable=True))
    consumer = timed.connect()
    consumer.receive("jobs")
    for _ in range(heads + 2):
        consumer.take(Delivery.REJECTED)
    assert len(jobs.stranded) == heads + 2
    consumer.receive("dead")
    consumer.take()
    for _ in range(6):
        timed.pass_ms(RETRY_MS)
    assert [len(jobs.stranded), *consumer.bodies()] == [heads, "small", "small too"]


def test_an_error_with_one_queue_leaves_no_stranded_message_behind(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = timed.connect()
    for name in ("jobs", "more"):
        timed.make_queue(name, LIMITED)
        peer.send(name, Message(body=name, durable=True))
        peer.receive(name)
        peer.take(Delivery.REJECTED)
    timed.make_queue("dead")
    write = dead_letters._annotated  # pyright: ignore[reportPrivateUsage]

    def fail(broker: Broker, queue: Queue, letter: Stranded) -> bytes:
        monkeypatch.setattr(dead_letters, "_annotated", write)
        raise RuntimeError("injected")

    monkeypatch.setattr(dead_letters, "_annotated", fail)
    timed.pass_ms(RETRY_MS)
    assert timed.queue("dead").depth == 1
    timed.pass_ms(RETRY_MS)
    assert sorted(str(message.body) for message in buried(timed)) == ["jobs", "more"]
    assert not timed.broker.stranded


def test_many_queues_that_waited_for_one_destination_send_on_in_slices(timed: SteppedBroker) -> None:
    """Each look at the clock takes a second, so a turn tries one message at most."""
    peer = timed.connect()
    for number in range(5):
        timed.make_queue(f"jobs {number}", LIMITED)
        peer.send(f"jobs {number}", *(Message(body=f"{number} {each}", durable=True) for each in range(3)))
        peer.receive(f"jobs {number}")
        for _ in range(3):
            peer.take(Delivery.REJECTED)
    dead = timed.make_queue("dead")
    timed.step_seconds = 1.0
    timed.now_ms += RETRY_MS
    depths: list[int] = []
    while dead.depth < 15:
        timed.turn()
        depths.append(dead.depth)
    assert list(dict.fromkeys([0, *depths])) == list(range(16))
    timed.step_seconds = 0.0
    timed.turn()
    assert not timed.broker.stranded
    assert [message.body for message in buried(timed)] == [f"{each} {number}" for each in range(5) for number in "012"]
    peer.send("jobs 0", Message(body="late", durable=True))
    timed.broker.topology.delete_queue("dead")
    peer.take(Delivery.REJECTED)
    assert len(timed.broker.stranded) == 1
    dead = timed.make_queue("dead")
    timed.pass_ms(RETRY_MS)
    assert dead.depth == 1, "and what is stranded later is tried again as before"


def test_what_leaves_while_stranded_messages_are_tried_again_is_not_missed(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs", LIMITED)
    peer = timed.connect()
    send(peer, "m1", "m2", "m3")
    peer.receive("jobs")
    for _ in range(3):
        peer.take(Delivery.REJECTED)
    dead = timed.make_queue("dead")
    timed.step_seconds = 1.0
    timed.now_ms += RETRY_MS
    while not dead.depth:
        timed.turn()
    assert (dead.depth, len(jobs.stranded)) == (1, 2)
    second = next(iter(jobs.stranded.values())).entry
    assert jobs.take_out({second[NUMBER]: second}, {second[NUMBER]}) == [second]
    timed.step_seconds = 0.0
    timed.turn()
    assert (dead.depth, len(jobs.stranded)) == (2, 0)
    assert [message.body for message in buried(timed)] == ["m1", "m3"]


def test_where_the_destination_is_full_messages_wait_for_room(timed: SteppedBroker) -> None:
    timed.make_queue("dead", limits=QueueLimits(max_messages=1, overflow="Reject"))
    jobs = timed.make_queue("jobs", LIMITED)
    peer = timed.connect()
    send(peer, "m1", "m2")
    peer.receive("jobs")
    peer.take(Delivery.REJECTED)
    peer.take(Delivery.REJECTED)
    assert (jobs.depth, jobs.totals.dead_lettered) == (1, 1)
    assert [message.body for message in buried(timed)] == ["m1"]
    timed.pass_ms(RETRY_MS)
    assert [message.body for message in buried(timed)] == ["m2"]


def test_what_is_stranded_at_a_restart_waits_in_its_queue_again(timed: SteppedBroker) -> None:
    timed.make_queue("jobs", LIMITED)
    peer = timed.connect()
    send(peer, "m1")
    peer.receive("jobs")
    peer.take(Delivery.REJECTED)
    timed.restart()
    peer = timed.connect()
    peer.receive("jobs")
    assert peer.bodies() == ["m1"]


def test_a_policy_that_names_no_destination_any_more_lets_go(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs", LIMITED)
    peer = timed.connect()
    send(peer, "m1", "m2")
    peer.receive("jobs", credit=2)
    peer.take(Delivery.REJECTED)
    peer.take(Delivery.MODIFIED, failed=True)
    assert peer.bodies() == []
    jobs.policy.dead_letter = None
    timed.pass_ms(RETRY_MS)
    assert (jobs.totals.dropped, jobs.depth) == (1, 1)


def test_what_is_let_go_expires_in_its_time(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs", LIMITED)
    peer = timed.connect()
    send(peer, "m1", ttl=5)
    peer.receive("jobs", credit=2)
    peer.take(Delivery.MODIFIED, failed=True)
    peer.take(Delivery.MODIFIED, failed=True)
    peer.drop()
    timed.pass_ms(5_000)
    assert (len(jobs.stranded), jobs.totals.expired) == (1, 0)
    jobs.policy.dead_letter = None
    timed.pass_ms(RETRY_MS)
    timed.pass_ms(0)
    assert (jobs.depth, jobs.totals.expired) == (0, 1)


def test_what_is_stranded_ends_with_its_queue(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs", LIMITED)
    peer = timed.connect()
    send(peer, "m1")
    peer.receive("jobs")
    peer.take(Delivery.REJECTED)
    jobs.end()
    timed.pass_ms(RETRY_MS)
    assert (jobs.depth, jobs.depth_bytes) == (0, 0)


def test_a_modified_message_says_more_when_it_comes_again(timed: SteppedBroker, jobs: Queue) -> None:
    peer = timed.connect()
    send(peer, "m1", annotations={symbol("x-opt-a"): 1})
    peer.receive("jobs")
    _, delivery = peer.got[0]
    delivery.local.annotations = {symbol("x-opt-a"): 2, symbol("x-opt-b"): "why"}
    peer.take(Delivery.MODIFIED, failed=True)
    peer.pump()
    message = peer.take()
    assert told(message) == {"x-opt-a": 2, "x-opt-b": "why"}
    assert (jobs.depth, jobs.depth_bytes) == (0, 0)


def annotated(peer: Peer, **annotations: str) -> None:
    """Give the oldest delivery back with annotations."""
    _, delivery = peer.got[0]
    delivery.local.annotations = {symbol(key): value for key, value in annotations.items()}
    peer.take(Delivery.MODIFIED)


@pytest.mark.parametrize("annotations", [{symbol("a"): "1"}, None])
def test_what_a_consumer_wrote_on_a_message_survives_a_restart(
    timed: SteppedBroker, jobs: Queue, annotations: dict[symbol, str] | None
) -> None:
    peer = timed.connect()
    send(peer, "m1", annotations=annotations)
    peer.receive("jobs", credit=2)
    for number in range(2):
        annotated(peer, **{f"b{number}": "x" * 40, "c": str(number)})
    size = jobs.depth_bytes
    timed.restart()
    timed.restart()
    assert timed.queue("jobs").depth_bytes == size
    peer = timed.connect()
    peer.receive("jobs")
    first = {"a": "1"} if annotations else {}
    assert told(peer.take()) == {**first, "b0": "x" * 40, "b1": "x" * 40, "c": "1"}
    assert timed.queue("jobs").depth_bytes == 0
    timed.restart()
    assert timed.queue("jobs").depth == 0


def test_annotations_too_long_to_be_kept_are_there_until_the_restart(timed: SteppedBroker, jobs: Queue) -> None:
    peer = timed.connect()
    send(peer, "m1")
    peer.receive("jobs")
    annotated(peer, long="x" * 40_000)  # more than a quarter of the log's segment
    assert set(told(peer.got[0][0])) == {"long"}
    timed.restart()
    peer = timed.connect()
    peer.receive("jobs")
    assert peer.take().annotations is None


def test_undeliverable_here_goes_to_another_link(timed: SteppedBroker, jobs: Queue) -> None:
    first, second = timed.connect(), timed.connect()
    send(first, "m1")
    first.receive("jobs", name="first")
    first.take(Delivery.MODIFIED, undeliverable=True)
    assert (first.bodies(), jobs.depth) == ([], 1)
    second.receive("jobs", name="second")
    assert second.bodies() == ["m1"]


def test_dead_letters_of_a_subscription_name_it(timed: SteppedBroker) -> None:
    timed.make_queue("dead")
    peer = timed.connect()
    link = peer.receive("amq.topic/orders", name="billing")
    (subscription,) = timed.broker.topology.subscriptions.values()
    subscription.queue.policy.dead_letter = "dead"
    assert peer.send("amq.topic/orders", Message(body="m1")) == ["accepted"]
    peer.take(Delivery.REJECTED)
    assert link.name == "billing"
    (message,) = buried(timed)
    said = told(message)
    assert (said["x-opt-ORIG-ADDRESS"], said["x-opt-ORIG-QUEUE"]) == ("amq.topic", subscription.name)
    assert said["x-opt-ORIG-SUBSCRIPTION"] == subscription.identity.name


@pytest.mark.parametrize("how", ["detach", "close the link", "end the session", "close the connection", "stop"])
def test_who_goes_in_order_loses_nothing(timed: SteppedBroker, jobs: Queue, how: str) -> None:
    send(timed.connect(), "m1", "m2")
    for _ in range(3):
        peer = timed.connect()
        link = peer.receive("jobs")
        assert peer.bodies() == ["m1", "m2"]
        match how:
            case "detach":
                link.detach()
            case "close the link":
                link.close()
            case "end the session":
                peer.session.close()
            case "close the connection":
                peer.connection.close()
            case _:
                timed.broker.is_stopping = True
                peer.drop()
                timed.turn()
                timed.broker.is_stopping = False
                continue
        peer.pump()
    assert (timed.queue("jobs").depth, timed.queue("jobs").redelivery.attempts, timed.queue("dead").depth) == (2, {}, 0)
