"""Time to live and delayed delivery, with a clock that moves by hand, real clients and restarts."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import pytest
from proton import Delivery, Message, symbol
from support.stepped_broker import Peer, SteppedBroker

from penstock_amqp.types.plain_values import to_wire
from penstock_api.management import DeliveryPolicy as Policy
from penstock_api.management import EntityType, QueueDeclaration, QueueLimits
from penstock_broker.management import declare
from penstock_broker.management.entity_states import queue_state
from penstock_broker.messages.dispatch import VISIT_MESSAGES
from penstock_broker.messages.expiry import LOOKED_AT, PASSED, SLICE, keep_time
from penstock_broker.queue.queue import Queue

START = 1_000_000  # the clock of a new TimedBroker, milliseconds


def message(body: str, **fields: object) -> Message:
    return Message(body=body, durable=True, **fields)


def delayed(body: str, at_ms: int, **fields: object) -> Message:
    return message(body, annotations={symbol("x-opt-delivery-time"): at_ms}, **fields)


def send(peer: Peer, *messages: Message, address: str = "jobs") -> None:
    assert peer.send(address, *messages) == ["accepted"] * len(messages)


# -- time to live ---------------------------------------------------------------------------------------------------


def test_what_expired_leaves_without_a_consumer(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs")
    send(timed.connect(), message("a", ttl=0.05), message("b"), message("c", ttl=0.02), message("d", ttl=0.05))
    timed.pass_ms(19)
    assert (jobs.depth, jobs.totals.expired) == (4, 0)
    timed.pass_ms(1)
    assert (jobs.depth, jobs.totals.expired) == (3, 1)
    timed.pass_ms(30)
    assert (jobs.depth, jobs.totals.expired) == (1, 3)
    timed.pass_ms(1000)
    peer = timed.connect()
    peer.receive("jobs")
    assert peer.bodies() == ["b"]
    peer.take()
    assert (jobs.depth_bytes, jobs.expiry.next_due) == (0, 0)


def test_management_tells_when_those_expire_that_are_handed_out_first_and_last(timed: SteppedBroker) -> None:
    """Those in between are not looked at. A message that is in flight does not expire."""
    node = timed.broker.topology.queues[timed.make_queue("jobs").name]

    def told() -> tuple[object, object]:
        state = queue_state(node, {})
        return state["firstExpiresMs"], state["lastExpiresMs"]

    peer = timed.connect()
    assert told() == (None, None)
    send(peer, message("a", ttl=50), message("b", ttl=9), message("c", ttl=60))
    assert told() == (START + 50_000, START + 60_000)
    send(peer, message("d"))
    assert told() == (START + 50_000, None)
    peer.receive("jobs", credit=1)
    assert peer.bodies() == ["a"]
    assert told() == (START + 9_000, None)
    send(peer, message("e", ttl=70, priority=9))
    assert told() == (None, None)  # it overtakes the others


def jms(body: str, ttl: float) -> Message:
    """As Qpid JMS sends it."""
    return message(body, ttl=ttl, priority=4, expiry_time=START / 1000 + ttl)


@pytest.mark.parametrize("early_ms", [0, 100])
def test_they_are_told_while_a_jms_client_gives_back_what_expired_in_its_buffer(
    timed: SteppedBroker, early_ms: int
) -> None:
    """Qpid JMS ends it with modified, delivery-failed and undeliverable-here. Its clock may be ahead: then the message
    waits for somebody else until it has expired here, and with the next message nothing is left of that.
    """
    jobs = timed.make_queue("jobs")
    node = timed.broker.topology.queues[jobs.name]
    peer = timed.connect()
    send(peer, jms("a", ttl=10), jms("b", ttl=60), jms("c", ttl=70), jms("d", ttl=80))
    peer.receive("jobs", credit=2)
    timed.pass_ms(10_000 - early_ms)
    peer.take(Delivery.MODIFIED, failed=True, undeliverable=True)
    timed.pass_ms(early_ms + 1)  # a pass looks again after a pause
    assert jobs.backlog.is_plain is (early_ms == 0)
    send(peer, jms("e", ttl=90))
    state = queue_state(node, {})
    assert (peer.bodies(), state["ready"], state["expired"]) == (["b"], 3, 1)
    assert (state["firstExpiresMs"], state["lastExpiresMs"]) == (START + 70_000, START + 90_000)


def test_what_has_not_expired_is_not_sent_again_to_who_called_it_undeliverable_here(timed: SteppedBroker) -> None:
    """And while it waits, nothing is told: it is first, but nobody is there who takes it."""
    node = timed.broker.topology.queues[timed.make_queue("jobs").name]
    peer = timed.connect()
    send(peer, jms("a", ttl=10), jms("b", ttl=60))
    peer.receive("jobs", credit=3)
    timed.pass_ms(9_999)
    peer.take(Delivery.MODIFIED, failed=True, undeliverable=True)
    state = queue_state(node, {})
    assert (peer.bodies(), state["ready"], state["firstExpiresMs"]) == (["b"], 1, None)
    timed.pass_ms(1)
    assert queue_state(node, {})["expired"] == 1


def is_passing(queue: Queue) -> bool:
    return queue.expiry.passing is not None


def test_a_long_backlog_is_looked_through_in_slices(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs")
    now, count = timed.broker.clock.now_us, 3 * PASSED + 10
    lives = [now - 1 if number % 3 == 0 else now + 3_600_000_000 + number for number in range(1, count + 1)]
    jobs.ready.extend((number, b"", now, expires, 0) for number, expires in enumerate(lives, 1))
    jobs.expiry.next_due = now - 1
    keep_time(timed.broker, jobs)
    assert is_passing(jobs)
    assert (jobs.depth, jobs.totals.expired, len(jobs.expiry.expired)) == (count - SLICE, SLICE, PASSED // 3 - SLICE)
    while is_passing(jobs) or jobs.expiry.expired:
        timed.turn()
    assert (jobs.totals.expired, jobs.depth) == (count // 3, count - count // 3)
    assert jobs.expiry.next_due == now + 3_600_000_000 + 1
    assert [entry[0] for entry in jobs] == [number for number in range(1, count + 1) if number % 3]


def test_a_slice_ends_when_it_has_taken_its_time(timed: SteppedBroker) -> None:
    """Each look at the clock takes a second: one part of the backlog is looked at, and one message leaves, per turn."""
    jobs = timed.make_queue("jobs")
    now, count = timed.broker.clock.now_us, 2 * LOOKED_AT + 10
    jobs.ready.extend((number, b"", now, now - 1, 0) for number in range(1, count + 1))
    jobs.expiry.next_due = now - 1
    timed.step_seconds = 1.0
    so_far: list[tuple[int, int]] = []
    for _ in range(3):
        keep_time(timed.broker, jobs)
        so_far.append((jobs.totals.expired, len(jobs.expiry.expired)))
    assert so_far == [(1, LOOKED_AT - 1), (2, 2 * LOOKED_AT - 2), (3, count - 3)]
    timed.step_seconds = 0.0
    keep_time(timed.broker, jobs)
    assert (jobs.totals.expired, len(jobs.expiry.expired)) == (3 + SLICE, count - 3 - SLICE)


def test_a_pass_finds_no_more_than_can_leave(timed: SteppedBroker) -> None:
    """One message leaves per turn, as if each went to a slow destination. What was found has its body in memory, where
    most of a backlog is in the log alone.
    """
    jobs = timed.make_queue("jobs")
    now, count = timed.broker.clock.now_us, 8 * LOOKED_AT
    jobs.ready.extend((number, b"", now, now - 1, 0) for number in range(1, count + 1))
    jobs.expiry.next_due = now - 1
    timed.step_seconds = 1.0
    found: list[int] = []
    for _ in range(20):
        keep_time(timed.broker, jobs)
        found.append(len(jobs.expiry.expired))
    assert max(found) == 3 * LOOKED_AT - 3
    timed.step_seconds = 0.0
    while jobs.depth:
        timed.turn()
    assert (jobs.totals.expired, is_passing(jobs)) == (count, False)


def test_a_pass_of_long_messages_finds_few(timed: SteppedBroker) -> None:
    """They have to be read: a mebibyte, two messages here, and then the next, until more than four are there."""
    jobs = timed.make_queue("jobs")
    now, body = timed.broker.clock.now_us, bytes(512 * 1024)
    jobs.ready.extend((number, body, now, now - 1, 0) for number in range(1, 41))
    jobs.depth_bytes = 40 * len(body)
    jobs.expiry.next_due = now - 1
    keep_time(timed.broker, jobs)
    assert jobs.totals.expired == 10
    while jobs.depth:
        timed.turn()
    assert (jobs.totals.expired, jobs.depth_bytes) == (40, 0)


@pytest.mark.parametrize("consumers", [1, 2])
def test_a_visit_drops_no_more_than_it_would_send(timed: SteppedBroker, consumers: int) -> None:
    """However many have expired before the first that has not, and however little credit there is."""
    jobs = timed.make_queue("jobs")
    peer, now = timed.connect(), timed.broker.clock.now_us
    send(peer, message("alive"))
    jobs.ready.extendleft((0, b"", now, now - 1, 0) for _ in range(10 * VISIT_MESSAGES))
    jobs.expiry.may_expire = True
    for number in range(consumers):
        link = peer.session.receiver(f"r{number}")
        link.source.address = "jobs"
        link.open()
        link.flow(1)
    timed.step_seconds = 1.0  # so a turn has one visit
    peer.flush()
    dropped: list[int] = []
    while jobs.waiting:
        before = jobs.totals.expired
        timed.turn()
        dropped.append(jobs.totals.expired - before)
    assert max(dropped) == VISIT_MESSAGES
    assert (peer.bodies(), jobs.totals.expired) == (["alive"], 10 * VISIT_MESSAGES)


def test_delayed_messages_become_available_in_slices_that_end_in_time(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs")
    now = timed.broker.clock.now_us
    for number in range(1, SLICE + 101):
        jobs.hold_back((number, b"", now, 0, 0))
    timed.step_seconds = 1.0
    keep_time(timed.broker, jobs)
    assert (len(jobs.ready), len(jobs.delayed)) == (1, SLICE + 99)
    timed.step_seconds = 0.0
    keep_time(timed.broker, jobs)
    assert (len(jobs.ready), len(jobs.delayed)) == (SLICE + 1, 99)
    assert [entry[0] for entry in jobs] == list(range(1, SLICE + 2))


def test_delayed_messages_that_expire_leave_in_slices_that_end_in_time(timed: SteppedBroker) -> None:
    """To send one on takes ten times as long as to make it available."""
    timed.make_queue("late")
    jobs = timed.make_queue("jobs", Policy(expiry="late"))
    send(timed.connect(), *(delayed(str(number), START + 60_000, ttl=1) for number in range(10)))
    timed.step_seconds = 1.0  # so a turn has one timer, too
    timed.now_ms += 1000
    while len(jobs.delayed) == 10:
        timed.turn()
    assert (len(jobs.delayed), jobs.totals.expired, timed.queue("late").depth) == (9, 1, 1)
    timed.step_seconds = 0.0
    timed.pass_ms(0)
    assert (len(jobs.delayed), timed.queue("late").depth) == (0, 10)


def test_what_comes_during_a_pass_expires_in_its_time(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs")
    now, count = timed.broker.clock.now_us, 2 * PASSED
    first = timed.broker.log.next_messages(count)
    jobs.ready.extend((first + each, b"", now, now + 3_600_000_000, 0) for each in range(count))
    jobs.expiry.next_due = now - 1
    keep_time(timed.broker, jobs)
    assert is_passing(jobs)
    send(timed.connect(), message("late", ttl=0.05))
    while is_passing(jobs):
        timed.turn()
    assert jobs.expiry.next_due <= timed.broker.clock.now_us + 50_000
    timed.pass_ms(60)
    assert (jobs.totals.expired, jobs.depth) == (1, count)


@pytest.mark.parametrize(
    ("ttl_ms", "expiry_ms", "lives_ms"),
    [(50, 0, 50), (0, START + 30, 30), (50, START + 30, 30), (20, START + 30, 20), (0, START - 1, 0)],
)
@pytest.mark.parametrize("address", ["jobs", "amq.direct/k"])
def test_the_earlier_of_ttl_and_absolute_expiry_wins(
    timed: SteppedBroker, address: str, ttl_ms: int, expiry_ms: int, lives_ms: int
) -> None:
    peer = timed.connect()
    if address == "jobs":
        queue = timed.make_queue("jobs")
    else:
        peer.receive(address, credit=0)
        (subscription,) = timed.broker.topology.subscriptions.values()
        queue = subscription.queue
    sent = message("a", ttl=ttl_ms / 1000)
    sent.expiry_time = expiry_ms / 1000
    sent.creation_time = START / 1000
    send(peer, sent, address=address)
    timed.pass_ms(max(lives_ms - 1, 0))
    assert queue.totals.expired == (0 if lives_ms else 1)
    timed.pass_ms(1)
    assert (queue.depth, queue.totals.expired) == (0, 1)


def test_what_is_left_of_its_time_travels_with_a_message(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    peer = timed.connect()
    send(peer, message("a", ttl=50))
    timed.pass_ms(20_000)
    peer.receive("jobs")
    assert peer.take().ttl == 30


def test_what_lives_longer_than_a_header_can_say_is_delivered(timed: SteppedBroker) -> None:
    """As JMS clients send a time to live of more than 49.7 days: by the absolute expiry alone."""
    timed.make_queue("jobs")
    jobs = timed.make_queue("bounded", Policy(max_ttl_ms=2**32 + 1))
    peer = timed.connect()
    never = 253_402_300_799  # the end of the year 9999, seconds
    send(peer, message("a", expiry_time=never))
    send(peer, message("b"), address="bounded")
    peer.receive("jobs")
    peer.receive("bounded")
    told = [peer.take() for _ in list(peer.got)]
    assert [(each.body, each.ttl, each.expiry_time) for each in told] == [("a", 0, never), ("b", 0, 0)]
    assert jobs.depth == 0


def test_a_clock_that_was_set_back_does_not_make_a_time_too_long(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    peer = timed.connect()
    send(peer, message("a", ttl=(2**32 - 1) / 1000))
    timed.skew_ms = -60_000
    peer.receive("jobs")
    assert peer.take().body == "a"


def test_a_queue_bounds_the_time_to_live(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs", Policy(max_ttl_ms=40))
    send(timed.connect(), message("a"), message("b", ttl=0.02), message("c", ttl=50))
    timed.pass_ms(20)
    assert jobs.totals.expired == 1
    timed.restart()
    jobs = timed.queue("jobs")
    timed.pass_ms(20)
    assert (jobs.depth, jobs.totals.expired) == (0, 2)


def set_max_ttl(timed: SteppedBroker, name: str, milliseconds: int | None) -> None:
    """Declare the queue again, as `$management` does."""
    declaration = to_wire(QueueDeclaration(delivery=Policy(max_ttl_ms=milliseconds)).to_wire())
    declare.declare(timed.broker, EntityType.QUEUE, name, declaration, update=True)
    timed.pass_ms(0)


@pytest.mark.parametrize("then", ["waits", "comes back", "after a restart"])
def test_another_bound_holds_for_what_came_before(timed: SteppedBroker, then: str) -> None:
    timed.make_queue("jobs", Policy(max_ttl_ms=1000))
    peer = timed.connect()
    send(peer, message("a"), message("b", ttl=0.3), message("c", ttl=50))
    timed.pass_ms(100)
    if then == "comes back":
        peer.receive("jobs")
        assert peer.bodies() == ["a", "b", "c"]
    set_max_ttl(timed, "jobs", 200)
    if then == "comes back":
        peer.drop()
        peer = timed.connect()
    if then == "after a restart":
        timed.restart()
        peer = timed.connect()
    jobs = timed.queue("jobs")
    timed.pass_ms(99)
    assert (jobs.depth, jobs.totals.expired) == (3, 0)
    timed.pass_ms(1)
    assert (jobs.depth, jobs.totals.expired) == (0, 3)


def test_a_bound_that_is_lifted_lets_messages_have_their_own_time(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs", Policy(max_ttl_ms=100))
    peer = timed.connect()
    send(peer, message("a"), message("b", ttl=0.3), delayed("c", START + 50, ttl=2))
    timed.pass_ms(90)
    set_max_ttl(timed, "jobs", None)
    timed.pass_ms(209)
    assert (jobs.depth, jobs.totals.expired) == (3 - 1, 1)
    timed.pass_ms(1)
    assert (jobs.depth, jobs.totals.expired) == (1, 2)
    timed.pass_ms(60_000)
    peer.receive("jobs")
    assert peer.bodies() == ["a"]
    assert peer.take().ttl == 0


def test_a_changed_bound_is_what_a_message_says_is_left(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    peer = timed.connect()
    send(peer, message("a"))
    timed.pass_ms(10_000)
    set_max_ttl(timed, "jobs", 60_000)
    peer.receive("jobs")
    assert peer.take().ttl == 50


def test_a_restart_keeps_the_deadline(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    absolute = message("b")
    absolute.expiry_time = START / 1000 + 20
    send(timed.connect(), message("a", ttl=10), absolute)
    timed.pass_ms(9_000)
    timed.restart()
    assert timed.queue("jobs").depth == 2
    timed.pass_ms(1_000)
    assert timed.queue("jobs").depth == 1
    timed.restart()
    timed.pass_ms(10_000)
    assert timed.queue("jobs").depth == 0


def test_what_comes_back_after_its_time_leaves_too(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs")
    peer = timed.connect()
    send(timed.connect(), message("a", ttl=1))
    peer.receive("jobs")
    timed.pass_ms(2_000)
    assert (jobs.in_flight, jobs.totals.expired) == (1, 0)
    peer.drop()
    timed.pass_ms(0)
    assert (jobs.depth, jobs.totals.expired) == (0, 1)


def test_what_expired_goes_to_its_destination(timed: SteppedBroker) -> None:
    timed.make_queue("late")
    jobs = timed.make_queue("jobs", Policy(expiry="late"))
    send(timed.connect(), message("a", ttl=1), delayed("b", START + 9_000, ttl=2))
    timed.pass_ms(1_000)
    timed.pass_ms(1_000)
    assert (jobs.depth, jobs.totals.expired, jobs.totals.dropped) == (0, 2, 0)
    peer = timed.connect()
    peer.receive("late")
    assert peer.bodies() == ["a", "b"]
    annotations = peer.take().annotations
    assert annotations is not None
    assert (annotations["x-opt-death-reason"], annotations["x-opt-ACTUAL-EXPIRY"]) == ("expired", START + 1_000)


def test_many_that_expire_at_once_leave_in_slices(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs")
    peer = timed.connect()
    for _ in range(3):
        send(peer, *[message("a", ttl=1) for _ in range(400)])
    timed.now_ms += 1_000
    timed.turn()
    assert (jobs.depth, jobs.waiting, jobs.kept_back) == (700, 450, 250)
    timed.pass_ms(0)
    assert (jobs.depth, jobs.depth_bytes, jobs.totals.expired) == (0, 0, 1200)


# -- delayed delivery -----------------------------------------------------------------------------------------------


def test_a_delayed_message_counts_but_nobody_gets_it_before_its_time(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs")
    peer = timed.connect()
    peer.receive("jobs")
    send(peer, delayed("late", START + 200), delayed("soon", START + 100), message("now"))
    assert peer.bodies() == ["now"]
    assert (jobs.depth, jobs.waiting, jobs.kept_back, jobs.oldest_available_us()) == (3, 0, 2, 0)
    timed.pass_ms(99)
    assert peer.bodies() == ["now"]
    timed.pass_ms(1)
    assert peer.bodies() == ["now", "soon"]
    timed.pass_ms(100)
    assert peer.bodies() == ["now", "soon", "late"]
    assert [each.delivery_count for each, _ in peer.got] == [0, 0, 0]


def test_equal_times_are_served_in_sending_order(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    peer = timed.connect()
    send(peer, *[delayed(body, START + 50) for body in "abcd"])
    timed.pass_ms(50)
    peer.receive("jobs")
    assert peer.bodies() == list("abcd")


def test_a_delay_counts_from_when_it_came(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    peer = timed.connect()
    peer.receive("jobs")
    send(peer, message("a", annotations={symbol("x-opt-delivery-delay"): 70}))
    timed.pass_ms(69)
    assert peer.bodies() == []
    timed.restart()
    timed.pass_ms(1)
    peer = timed.connect()
    peer.receive("jobs")
    assert [(each.body, each.delivery_count) for each, _ in peer.got] == [("a", 0)]


def test_a_time_that_has_passed_means_now(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    peer = timed.connect()
    peer.receive("jobs")
    send(peer, delayed("a", START), delayed("b", -5), message("c"))
    assert peer.bodies() == ["a", "b", "c"]


@pytest.mark.parametrize("max_ttl_ms", [1_000_000, None], ids=["raised", "removed"])
def test_a_delayed_message_waits_on_when_the_longest_time_to_live_becomes_longer(
    timed: SteppedBroker, max_ttl_ms: int | None
) -> None:
    jobs = timed.make_queue("jobs", Policy(max_ttl_ms=10_000))
    peer = timed.connect()
    send(peer, message("a", annotations={symbol("x-opt-delivery-delay"): 20_000}))
    body = to_wire(QueueDeclaration(delivery=Policy(max_ttl_ms=max_ttl_ms)))
    assert declare.declare(timed.broker, EntityType.QUEUE, "jobs", body, update=False).status == 200
    peer.receive("jobs")
    for _ in range(3):
        timed.pass_ms(5_000)
    assert (peer.bodies(), len(jobs.delayed), jobs.totals.expired) == ([], 1, 0)
    timed.pass_ms(5_000)
    assert peer.bodies() == ["a"]


def test_delayed_messages_are_routed_when_published(timed: SteppedBroker) -> None:
    """Other brokers lose a delayed message to a topic."""
    early, late, sender = timed.connect(), timed.connect(), timed.connect()
    early.receive("amq.topic/a", name="early")
    send(sender, delayed("m", START + 100), address="amq.topic/a")
    late.receive("amq.topic/a", name="late")
    timed.pass_ms(100)
    assert (early.bodies(), late.bodies()) == (["m"], [])


def test_delayed_messages_survive_restarts_with_what_is_due_meanwhile(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    sender = timed.connect()
    send(sender, message("before"), delayed("m1", START + 100), delayed("m2", START + 5_000), message("after"))
    timed.restart()
    jobs = timed.queue("jobs")
    assert (jobs.depth, jobs.waiting, jobs.kept_back) == (4, 2, 2)
    timed.now_ms += 300
    timed.restart()
    peer = timed.connect()
    peer.receive("jobs")
    assert peer.bodies() == ["before", "after", "m1"]
    timed.pass_ms(4_700)
    assert peer.bodies() == ["before", "after", "m1", "m2"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_delayed_message_keeps_its_place_over_a_restart(timed: SteppedBroker, restarts: bool) -> None:
    timed.make_queue("jobs")
    sender = timed.connect()
    send(sender, delayed("second", START + 101), delayed("first", START + 100), message("before"))
    timed.pass_ms(150)
    send(sender, message("behind"))
    if restarts:
        timed.restart()
    peer = timed.connect()
    peer.receive("jobs")
    assert peer.bodies() == ["before", "first", "second", "behind"]


def test_what_was_sent_to_others_does_not_mark_a_delayed_message_as_seen(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    peer = timed.connect()
    send(peer, delayed("m", START + 100), message("now"))
    peer.receive("jobs")
    assert peer.bodies() == ["now"]
    timed.restart()
    timed.pass_ms(100)
    peer = timed.connect()
    peer.receive("jobs")
    assert [(each.body, each.delivery_count) for each, _ in peer.got] == [("now", 1), ("m", 0)]


def test_time_to_live_counts_from_publishing(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs")
    send(timed.connect(), delayed("gone", START + 5_000, ttl=3), delayed("lives", START + 2_000, ttl=3))
    timed.pass_ms(2_000)
    assert (jobs.waiting, jobs.kept_back, jobs.totals.expired) == (1, 1, 0)
    timed.pass_ms(1_000)
    assert (jobs.depth, jobs.totals.expired) == (0, 2)


def test_a_clock_that_jumps_ahead_is_noticed(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    peer = timed.connect()
    peer.receive("jobs")
    send(peer, delayed("m", START + 3_600_000))
    # The time of day jumps by an hour, the timers' clock does not.
    clock = timed.loop._clock  # pyright: ignore[reportPrivateUsage]
    timed.skew_ms = 3_600_000
    assert clock.now_us() == (START + 3_600_000) * 1000
    assert peer.bodies() == []
    timed.pass_ms(5_000)
    assert peer.bodies() == ["m"]


@pytest.mark.parametrize("overflow", ["DropOldest", "DropNewest", "Reject"])
def test_delayed_messages_count_against_the_limit(timed: SteppedBroker, overflow: str) -> None:
    jobs = timed.make_queue("jobs", limits=QueueLimits.model_validate({"max_messages": 2, "overflow": overflow}))
    peer = timed.connect()
    outcomes = peer.send("jobs", delayed("a", START + 100), delayed("b", START + 50), delayed("c", START + 200))
    timed.pass_ms(200)
    peer.receive("jobs")
    match overflow:
        case "DropOldest":
            assert (peer.bodies(), jobs.totals.dropped) == (["a", "c"], 1)
        case "DropNewest":
            assert (peer.bodies(), jobs.totals.dropped) == (["b", "a"], 1)
        case _:
            assert outcomes == ["accepted", "accepted", "amqp:resource-limit-exceeded"]
            assert (peer.bodies(), jobs.totals.dropped) == (["b", "a"], 0)


def test_a_released_delayed_message_is_available_at_once(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    peer = timed.connect()
    send(peer, delayed("m", START + 10))
    peer.receive("jobs")
    timed.pass_ms(10)
    peer.pump()
    peer.take(Delivery.RELEASED)
    assert peer.bodies() == ["m"]


def test_delayed_delivery_is_offered(timed: SteppedBroker) -> None:
    offered = timed.connect().connection.remote_offered_capabilities
    assert offered is not None
    assert "DELAYED_DELIVERY" in [str(each) for each in offered]
