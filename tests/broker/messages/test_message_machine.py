"""Whatever becomes of a message over its life, it is in exactly one place: in its queue or with a consumer, settled,
dead-lettered, or in the queue of what expired. It does not wait while a consumer has credit that may have it, and the
totals of each queue add up. Any steps that Hypothesis finds, restarts among them.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from proton import Delivery, Message, Receiver, symbol
from support.examples import examples
from support.stepped_broker import Peer, SteppedBroker
from support.tight_memory import tighten

from penstock_amqp.endpoint.events import DATA, EXPIRES
from penstock_api.management import DeliveryPolicy as Policy
from penstock_broker.messages import move
from penstock_broker.queue.queue import Queue

QUEUES = ("jobs", "dead", "late")
OUTCOMES = st.sampled_from(
    [
        (Delivery.ACCEPTED, False, False),
        (Delivery.REJECTED, False, False),
        (Delivery.RELEASED, False, False),
        (Delivery.MODIFIED, True, False),
        (Delivery.MODIFIED, True, True),
    ]
)


class Life(RuleBasedStateMachine):
    """One queue with destinations, a producer, a consumer, a clock and a power switch."""

    @initialize()
    def begin(self) -> None:
        self.timed = SteppedBroker()
        self.settled: list[str] = []
        self.sent: list[str] = []
        self.consumer: Peer | None = None
        self.link: Receiver | None = None
        self.refused: set[str] = set()
        """What the consumer called undeliverable here."""
        self.timed.make_queue("late")
        self.timed.make_queue("jobs", Policy(max_deliveries=2, dead_letter="dead", expiry="late"))

    def teardown(self) -> None:
        if hasattr(self, "timed"):
            self.timed.close()

    @rule(
        ttl_ms=st.sampled_from([0, 0, 20, 100]),
        delay_ms=st.sampled_from([0, 0, 10, 60, 200]),
        priority=st.sampled_from([4, 4, 9]),
        count=st.integers(1, 3),
    )
    def send(self, ttl_ms: int, delay_ms: int, priority: int, count: int) -> None:
        messages: list[Message] = []
        for _ in range(count):
            self.sent.append(f"m{len(self.sent)}")
            message = Message(body=self.sent[-1], durable=True, ttl=ttl_ms / 1000, priority=priority)
            if delay_ms:
                message.annotations = {symbol("x-opt-delivery-time"): self.timed.now_ms + delay_ms}
            messages.append(message)
        peer = self.timed.connect()
        assert peer.send("jobs", *messages) == ["accepted"] * count
        peer.drop()

    @rule()
    def consume(self) -> None:
        if self.consumer is None:
            self.consumer = self.timed.connect()
            self.link = self.consumer.receive("jobs", credit=3)
            self.refused.clear()

    @rule(credit=st.sampled_from([1, 10]))
    def grant(self, credit: int) -> None:
        if self.consumer is not None and self.link is not None:
            self.link.flow(credit)
            self.consumer.pump()

    @rule(outcome=OUTCOMES)
    def settle(self, outcome: tuple[int, bool, bool]) -> None:
        peer = self.consumer
        if peer is None or not peer.bodies():
            return
        state, failed, undeliverable = outcome
        body = str(peer.take(state, failed=failed, undeliverable=undeliverable).body)
        if state == Delivery.ACCEPTED:
            self.settled.append(body)
        if undeliverable:
            self.refused.add(body)

    @rule()
    def lose_the_consumer(self) -> None:
        if self.consumer is not None:
            self.consumer.drop()
            self.consumer = None

    @rule(milliseconds=st.sampled_from([1, 15, 70, 250, 1100]))
    def wait(self, milliseconds: int) -> None:
        self.timed.pass_ms(milliseconds)

    @rule()
    def press_memory(self) -> None:
        """From now on, until a restart, at most two messages or so of each queue are in memory."""
        tighten(self.timed.broker)
        self.timed.turn()

    @rule(kept_bytes=st.sampled_from([0, 1 << 30]))
    def restart(self, kept_bytes: int) -> None:
        """With all bodies in memory, or with none that the queue can leave in the log."""
        self.timed.turn()
        self.timed.restart(kept_bytes=kept_bytes)
        self.consumer = None

    @rule()
    def make_the_graves(self) -> None:
        """Until then dead letters are stranded."""
        if "dead" not in self.timed.broker.topology.queues:
            self.timed.make_queue("dead")

    @rule()
    def redrive(self) -> None:
        for name in ("dead", "late"):
            node = self.timed.broker.topology.queues.get(name)
            waiting = {entry[0]: entry for _, entry in node.queue.everything()} if node else {}
            entries = node.queue.take_out(waiting, waiting.keys()) if node else []
            for entry in entries:
                assert node is not None
                origin = move.origin_of(self.timed.broker, entry)
                assert isinstance(origin, Queue)
                assert move.redrive(self.timed.broker, node.queue, entry, origin) is None
        self.timed.turn()

    @invariant()
    def nothing_waits_for_a_consumer_with_credit(self) -> None:
        if not hasattr(self, "timed") or self.consumer is None or self.link is None:
            return
        self.consumer.pump()
        now_us = self.timed.now_ms * 1000
        waiting = {
            body_of(entry[DATA])
            for state, entry in self.timed.queue("jobs").everything()
            if state == "Ready" and not 0 < entry[EXPIRES] <= now_us
        }
        assert self.link.credit == 0 or waiting <= self.refused

    @invariant()
    def the_totals_of_each_queue_add_up(self) -> None:
        """docs/reference/management.md, "What came and left"."""
        for node in self.timed.broker.topology.queues.values() if hasattr(self, "timed") else ():
            totals = node.queue.totals
            left = totals.acked + totals.expired + totals.dead_lettered + totals.moved + totals.purged + totals.dropped
            assert node.queue.depth == totals.enqueued - left

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        if not hasattr(self, "timed"):
            return
        places = list(self.settled)
        for name in QUEUES:
            node = self.timed.broker.topology.queues.get(name)
            if node is None:
                continue
            queue = node.queue
            held = [
                entry
                for each in self.timed.broker.clients.connections.values()
                for _, entry, _ in each.endpoint.unsettled.all_held()
            ]
            waiting = [entry for _, entry in queue.everything()] + list(queue.expiry.expired)
            if name == "jobs":
                assert queue.in_flight == len(held)
                waiting += held
            assert queue.depth == len(waiting)
            assert queue.depth_bytes == sum(len(entry[DATA]) for entry in waiting)
            places += [body_of(entry[DATA]) for entry in waiting]
        assert sorted(places) == sorted(self.sent)


def body_of(data: bytes) -> str:
    message = Message()
    message.decode(data)
    return str(message.body)


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=examples(80), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
