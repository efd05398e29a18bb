"""Queues that send their dead letters to each other: in a circle, through their exchange to themselves, to one that is
full, that drops, or that is deleted. Whatever happens, what came in is there or has left in exactly one way, and the
totals say in which. Any steps that Hypothesis finds, restarts and paging among them.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from proton import Delivery, Message, symbol
from support.examples import examples
from support.proton_client import SelectedBy, Subscribed
from support.stepped_broker import Peer, SteppedBroker
from support.tight_memory import tighten

from penstock_amqp.endpoint.events import DATA, Entry
from penstock_api.management import DeliveryPolicy as Policy
from penstock_api.management import (
    EntityType,
    ExchangeDeclaration,
    ManagementDocument,
    QueueDeclaration,
    QueueLimits,
    SubscriptionDeclaration,
)
from penstock_broker.attach import close
from penstock_broker.management import declare
from penstock_broker.management.replies import to_value
from penstock_broker.messages.dead_letters import RETRY_MS
from penstock_broker.queue.queue import Queue
from penstock_broker.state.links import Consumer
from penstock_core.reason import Reason, Refuse

CHAINS = {
    "circle": Policy(max_deliveries=1, dead_letter="round", expiry="round"),
    "round": Policy(max_deliveries=2, dead_letter="circle", expiry="circle", max_ttl_ms=150),
    "loop": Policy(max_deliveries=1, dead_letter="orders", expiry="orders", max_ttl_ms=100),
    "small": Policy(dead_letter="full", expiry="drops"),
    "full": Policy(max_deliveries=1, dead_letter="newest", expiry="gone"),
    "newest": Policy(max_deliveries=1, dead_letter="drops"),
    "drops": Policy(max_deliveries=1, dead_letter="gone", expiry="circle"),
    "gone": Policy(),
}
LIMITS = {
    "loop": QueueLimits(max_messages=3, overflow="Reject"),
    "small": QueueLimits(max_messages=4, overflow="Reject"),
    "full": QueueLimits(max_messages=2, overflow="Reject"),
    "newest": QueueLimits(max_messages=2, overflow="DropNewest"),
    "drops": QueueLimits(max_bytes=700, overflow="DropOldest"),
}
OUTCOMES = st.sampled_from(
    [
        (Delivery.ACCEPTED, False, False),
        (Delivery.REJECTED, False, False),
        (Delivery.REJECTED, False, False),
        (Delivery.REJECTED, False, False),
        (Delivery.MODIFIED, True, False),
        (Delivery.RELEASED, False, False),
        (Delivery.MODIFIED, True, False),
        (Delivery.MODIFIED, True, True),
    ]
)
STORIES = [["circle", "round"], ["loop"], ["small", "full", "newest"], ["newest", "drops", "gone"], ["drops", "circle"]]
"""Queues that a run of steps is about; the others only get what these send them."""
PLACES = st.integers(0, 5)


class Chains(RuleBasedStateMachine):
    """The queues, producers, at most one consumer of each, an administrator, a clock and a power switch."""

    @initialize(story=st.sampled_from(STORIES), are_consumed=st.sampled_from([True, True, True, False]))
    def begin(self, story: list[str], are_consumed: bool) -> None:
        self.story = story
        self.timed = SteppedBroker()
        self.sent: list[str] = []
        self.over: list[str] = []
        """Accepted by consumers, or deleted with their queue."""
        self.vanished = 0
        """Dropped, by the totals of lives of queues that are over."""
        self.consumers: dict[str, Peer] = {}
        self.count = 0
        self.declare(EntityType.EXCHANGE, "orders", ExchangeDeclaration(exchange_type="Fanout"))
        self.make_loop(LIMITS["loop"])
        for name in CHAINS:
            if name not in ("loop", "gone"):
                self.make(name)
        if are_consumed:
            for place in range(len(story)):
                self.consume(place, 20, None)

    def teardown(self) -> None:
        if hasattr(self, "timed"):
            self.timed.close()

    def make(self, name: str) -> None:
        self.timed.make_queue(name, CHAINS[name], LIMITS.get(name))

    def make_loop(self, limits: QueueLimits) -> None:
        """The subscription whose dead letters come back to it."""
        body = SubscriptionDeclaration(
            subscription_name="loop", exchange="orders", limits=limits, delivery=CHAINS["loop"]
        )
        self.declare(EntityType.SUBSCRIPTION, None, body)

    def declare(self, kind: EntityType, name: str | None, body: ManagementDocument) -> None:
        answer = declare.declare(self.timed.broker, kind, name, to_value(body), update=False)
        assert answer.status in (200, 201), answer
        self.timed.turn()

    def queues(self) -> dict[str, Queue]:
        topology = self.timed.broker.topology
        found = {name: node.queue for name, node in topology.queues.items()}
        return found | {each.identity.name: each.queue for each in topology.subscriptions.values()}

    @rule(
        place=PLACES,
        ttl_ms=st.sampled_from([0, 0, 20, 100]),
        delay_ms=st.sampled_from([0, 0, 10, 60, 200]),
        priority=st.sampled_from([4, 4, 9]),
        group=st.sampled_from([None, None, "g", "h"]),
        colour=st.sampled_from(["red", "blue"]),
        count=st.integers(1, 4),
    )
    def send(
        self, place: int, ttl_ms: int, delay_ms: int, priority: int, group: str | None, colour: str, count: int
    ) -> None:
        name = self.name(place)
        if name not in self.queues():
            return
        peer = self.timed.connect()
        for _ in range(count):
            self.count += 1
            body = f"m{self.count}"
            properties = {"colour": colour}
            message = Message(body=body, durable=True, ttl=ttl_ms / 1000, priority=priority, properties=properties)
            if group is not None:
                message.group_id = group
            if delay_ms:
                message.annotations = {symbol("x-opt-delivery-delay"): delay_ms}
            (outcome,) = peer.send("orders" if name == "loop" else name, message)
            if outcome == "accepted":
                self.sent.append(body)
            else:
                assert outcome == "amqp:resource-limit-exceeded"
        peer.drop()

    @rule(place=PLACES, credit=st.sampled_from([1, 3, 20]), selector=st.sampled_from([None, "colour = 'red'"]))
    def consume(self, place: int, credit: int, selector: str | None) -> None:
        name = self.name(place)
        if name in self.consumers or name not in self.queues():
            return
        peer = self.timed.connect()
        link = peer.session.receiver(name)
        link.source.address = name
        if name == "loop":
            link.source.address = "orders"
            Subscribed().apply(link)
        elif selector is not None:
            SelectedBy(selector).apply(link)
        link.open()
        link.flow(credit)
        peer.pump()
        self.consumers[name] = peer

    @rule(places=st.lists(PLACES, min_size=1, max_size=3), outcome=OUTCOMES)
    def settle_alike(self, places: list[int], outcome: tuple[int, bool, bool]) -> None:
        for place in places:
            self.settle(place, [outcome])

    @rule(place=PLACES, outcomes=st.lists(OUTCOMES, min_size=1, max_size=4))
    def settle(self, place: int, outcomes: list[tuple[int, bool, bool]]) -> None:
        for state, failed, undeliverable in outcomes:
            busy = [peer for peer in self.consumers.values() if peer.bodies()]
            if not busy:
                return
            body = busy[place % len(busy)].take(state, failed=failed, undeliverable=undeliverable).body
            if state == Delivery.ACCEPTED:
                self.over.append(str(body))

    @rule(milliseconds=st.sampled_from([1, 15, 70, 160, RETRY_MS]))
    def wait(self, milliseconds: int) -> None:
        self.timed.pass_ms(milliseconds)

    @rule(what=st.sampled_from(["lose", "limit", "make", "delete", "page", "restart", "recover"]), number=PLACES)
    def meddle(self, what: str, number: int) -> None:
        match what:
            case "lose":
                self.drop_consumer(self.name(number))
            case "limit":
                self.limit(self.name(number), number + 1)
            case "make":
                self.make_the_last()
            case "delete":
                self.delete(["gone", "drops", "round"][number % 3])
            case "page":
                tighten(self.timed.broker)
                self.timed.turn()
            case _:
                self.restart(0 if what == "recover" else 1 << 30)

    def limit(self, name: str, most: int) -> None:
        """Declare the queue again with another limit."""
        if name not in LIMITS:
            return
        limits = LIMITS[name].model_copy(update={"max_messages": most})
        if name == "loop":
            self.make_loop(limits)
        else:
            self.declare(EntityType.QUEUE, name, QueueDeclaration(delivery=CHAINS[name], limits=limits))

    def make_the_last(self) -> None:
        """Until then what goes there is stranded."""
        if "gone" not in self.queues():
            self.make("gone")

    def delete(self, name: str) -> None:
        """What it holds goes with it, but for what fails now because a link is lost."""
        node = self.timed.broker.topology.queues.get(name)
        if node is None:
            return
        held = self.bodies_in(node.queue)
        close.end_queue(self.timed.broker, node, Refuse(Reason.NODE_DELETED, "The test deletes it."))
        self.timed.turn()
        elsewhere = [body for queue in self.queues().values() for body in self.bodies_in(queue)]
        self.over += [body for body in held if body not in elsewhere]
        self.vanished += dropped_by(node.queue)
        self.drop_consumer(name)
        if name != "gone":
            self.make(name)

    def restart(self, kept_bytes: int) -> None:
        """With all bodies in memory, or with none that a queue can leave in the log."""
        self.timed.turn()
        self.vanished += sum(map(dropped_by, self.queues().values()))
        self.timed.restart(kept_bytes=kept_bytes)
        self.consumers.clear()

    def name(self, place: int) -> str:
        return self.story[place % len(self.story)]

    def drop_consumer(self, name: str) -> None:
        peer = self.consumers.pop(name, None)
        if peer is not None:
            peer.drop()

    def held_by(self, queue: Queue) -> list[Entry]:
        """What the queue has, wherever it is."""
        held = [
            entry
            for each in self.timed.broker.clients.connections.values()
            for link, entry, _ in each.endpoint.unsettled.all_held()
            if isinstance(link.context, Consumer) and link.context.queue is queue
        ]
        assert queue.in_flight == len(held)
        return held + [entry for _, entry in queue.everything()] + list(queue.expiry.expired)

    def bodies_in(self, queue: Queue) -> list[str]:
        return [body_of(entry[DATA]) for entry in self.held_by(queue)]

    @invariant()
    def the_totals_of_each_queue_add_up(self) -> None:
        """docs/reference/management.md, "What came and left"."""
        for queue in self.queues().values() if hasattr(self, "timed") else ():
            totals = queue.totals
            left = totals.acked + totals.expired + totals.dead_lettered + totals.moved + totals.purged + totals.dropped
            assert queue.depth == totals.enqueued - left

    @invariant()
    def what_came_in_is_there_or_has_left_in_one_way(self) -> None:
        if not hasattr(self, "timed"):
            return
        places = list(self.over)
        vanished = self.vanished
        for queue in self.queues().values():
            entries = self.held_by(queue)
            assert queue.depth == len(entries)
            assert queue.depth_bytes == sum(len(entry[DATA]) for entry in entries)
            places += [body_of(entry[DATA]) for entry in entries]
            vanished += dropped_by(queue)
        assert len(places) == len(set(places)), "a message is in two places"
        assert set(places) <= set(self.sent)
        assert len(self.sent) == len(places) + vanished


def dropped_by(queue: Queue) -> int:
    """What the queue has destroyed since its life, or the process, began."""
    return queue.totals.dropped + (queue.totals.expired if queue.policy.expiry_address is None else 0)


def body_of(data: bytes) -> str:
    message = Message()
    message.decode(data)
    return str(message.body)


TestChains = Chains.TestCase
TestChains.settings = settings(
    max_examples=examples(100), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
