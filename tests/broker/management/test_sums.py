"""What `$management` says of a subscription adds up after every step of any history: the depth is what came minus what
left, the repeated messages are those that failed, and credit is usable only while the broker has something to do.

Any steps that Hypothesis finds, restarts among them.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from itertools import count

from broker.management.audited_story import AuditedStory
from broker.management.known_states import KnownStates, all_documents
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from proton import Delivery, Described, Link, Message, Receiver, symbol, ulong
from support.examples import examples
from support.proton_client import Subscribed
from support.stepped_broker import Peer, SteppedBroker

from penstock_amqp.endpoint.events import FLAGS, NUMBER
from penstock_api.management import (
    DeliveryPolicy,
    EntityType,
    ExchangeDeclaration,
    ManagementDocument,
    Operation,
    QueueDeclaration,
    QueueLimits,
    SubscriptionDeclaration,
)
from penstock_api.message_operations import MessageSelection
from penstock_api.state_documents import SubscriptionState
from penstock_broker.management import declare, entity_states, queue_messages
from penstock_broker.management.in_flight import in_flight
from penstock_broker.management.logged_operations import Caller
from penstock_broker.management.replies import to_value
from penstock_broker.messages import restore
from penstock_broker.queue.queue import LOGGED, Queue
from penstock_broker.topology.records import Subscription
from penstock_core.binding import Binding

CALLER = Caller("ann", "here", "amqp")

NO_BINDING: entity_states.StateDocument = {
    "queueName": "jobs", "subscriptionName": "", "scope": "", "sharing": "", "expiryPolicy": "", "exchange": "",
    "bindingKeys": [],
}  # fmt: skip
"""What the state of a queue lacks to be that of a subscription."""
TOTALS = ("enqueued", "acked", "expired", "dead_lettered", "moved", "dropped", "delivered", "returned")
OUTCOMES = st.sampled_from(
    [
        (Delivery.ACCEPTED, False, False),
        (Delivery.ACCEPTED, False, False),
        (Delivery.REJECTED, False, False),
        (Delivery.REJECTED, False, False),
        (Delivery.RELEASED, False, False),
        (Delivery.MODIFIED, True, False),
        (Delivery.MODIFIED, True, False),
        (Delivery.MODIFIED, True, True),
    ]
)
LIMITS = st.sampled_from(
    [
        QueueLimits(),
        QueueLimits(),
        QueueLimits(max_messages=4, overflow="DropOldest"),
        QueueLimits(max_messages=4, overflow="DropNewest"),
        QueueLimits(max_messages=4, overflow="Reject"),
    ]
)
POLICIES = st.sampled_from(
    [
        DeliveryPolicy(),
        DeliveryPolicy(max_deliveries=4, dead_letter="graves/dead", expiry="graves/late"),
        DeliveryPolicy(dead_letter="graves/dead", max_ttl_ms=120),
        DeliveryPolicy(exclusive_consumer=True),
    ]
)
SELECTED = ("", "", "colour = 'red'", "colour = 'blue'")


class Sums(RuleBasedStateMachine):
    """One subscription or queue with limits and destinations, producers, consumers, a clock, an administrator, and a
    power switch. A consumer may have a selector only on a queue, which has the same counters as a subscription.

    The destinations are queues behind an exchange, which exist only once `make_the_graves` has bound them: before that,
    dead letters are stranded.
    """

    @initialize(limits=LIMITS, delivery=POLICIES, is_queue=st.booleans(), has_graves=st.booleans())
    def begin(self, limits: QueueLimits, delivery: DeliveryPolicy, is_queue: bool, has_graves: bool) -> None:
        self.timed = SteppedBroker()
        self.limits, self.delivery = limits, delivery
        self.is_queue, self.name = is_queue, "jobs" if is_queue else "psub:durable:global:jobs"
        self.consumers: list[tuple[Peer, Receiver]] = []
        self.numbers = count(1)
        self.lives: dict[str, tuple[int, int]] = {}
        self.before: dict[str, SubscriptionState] = {}
        self.lost = 0
        self.known = KnownStates()
        self.audited = AuditedStory()
        self._declare(EntityType.EXCHANGE, "orders", ExchangeDeclaration(exchange_type="Topic"))
        self._declare(EntityType.EXCHANGE, "graves", ExchangeDeclaration(exchange_type="Direct"))
        self._declare(EntityType.QUEUE, "elsewhere", QueueDeclaration(limits=QueueLimits(max_messages=3)))
        self._declare_jobs()
        if has_graves:
            self.make_the_graves()
        self._attach("", 3)

    def _declare(self, kind: EntityType, name: str | None, body: ManagementDocument) -> None:
        answer = declare.declare(self.timed.broker, kind, name, to_value(body), update=False)
        assert answer.status in (200, 201), answer
        self.timed.turn()

    def _declare_jobs(self) -> None:
        if self.is_queue:
            queue = QueueDeclaration(limits=self.limits, delivery=self.delivery)
            return self._declare(EntityType.QUEUE, "jobs", queue)
        body = SubscriptionDeclaration(
            subscription_name="jobs", exchange="orders", limits=self.limits, delivery=self.delivery
        )
        return self._declare(EntityType.SUBSCRIPTION, None, body)

    def teardown(self) -> None:
        if hasattr(self, "timed"):
            self.timed.close()

    @property
    def jobs(self) -> Queue:
        if self.is_queue:
            return self.timed.queue("jobs")
        return self._subscription.queue

    @property
    def _subscription(self) -> Subscription:
        return next(each for each in self.timed.broker.topology.subscriptions.values() if each.name == self.name)

    # -- messages ---------------------------------------------------------------------------------------------------

    @rule(
        ttl_ms=st.sampled_from([0, 0, 0, 20, 100]),
        delay_ms=st.sampled_from([0, 0, 0, 0, 0, 10, 200]),
        priority=st.sampled_from([4, 4, 9]),
        durable=st.sampled_from([True, True, False]),
        group=st.sampled_from(["", "", "g", "h"]),
        colour=st.sampled_from(["red", "blue"]),
        how_many=st.integers(1, 3),
    )
    def send(
        self, ttl_ms: int, delay_ms: int, priority: int, durable: bool, group: str, colour: str, how_many: int
    ) -> None:
        messages: list[Message] = []
        for _ in range(how_many):
            body = f"m{next(self.numbers)}"
            message = Message(
                body=body, id=body, durable=durable, ttl=ttl_ms / 1000, priority=priority, properties={"colour": colour}
            )
            if group:
                message.group_id = group
            if delay_ms:
                message.annotations = {symbol("x-opt-delivery-time"): self.timed.now_ms + delay_ms}
            messages.append(message)
        peer = self.timed.connect()
        peer.send("jobs" if self.is_queue else "orders", *messages)
        peer.drop()
        self._pump()

    @precondition(lambda self: len(self.consumers) < 3)
    @rule(
        selector=st.sampled_from(SELECTED),
        credit=st.sampled_from([0, 2, 3]),
        settled=st.sampled_from([False, False, False, True]),
    )
    def consume(self, selector: str, credit: int, settled: bool) -> None:
        self._attach(selector, credit, settled=settled)

    def _attach(self, selector: str, credit: int, *, settled: bool = False) -> None:
        peer = self.timed.connect()
        link = peer.session.receiver(f"jobs|{next(self.numbers)}")
        link.source.address = "jobs" if self.is_queue else "orders"
        if not self.is_queue:
            Subscribed().apply(link)
        elif selector:
            link.source.filter.put_dict({symbol("s"): Described(ulong(0x0000_468C_0000_0004), selector)})
        if settled:
            link.snd_settle_mode = Link.SND_SETTLED
        link.open()
        link.flow(credit)
        self.consumers.append((peer, link))
        self._pump()

    @precondition(lambda self: self.consumers)
    @rule(outcomes=st.lists(OUTCOMES, min_size=1, max_size=4), at=st.integers(0, 2))
    def settle(self, outcomes: list[tuple[int, bool, bool]], at: int) -> None:
        """Each settlement makes room for one message more."""
        for state, failed, undeliverable in outcomes:
            holding = [(peer, link) for peer, link in self.consumers if _holds(peer, link)]
            if holding:
                peer, link = holding[at % len(holding)]
                peer.take(state, failed=failed, undeliverable=undeliverable)
                link.flow(1)
                self._pump()

    @precondition(lambda self: self.consumers)
    @rule(
        how_many=st.integers(1, 3),
        outcome=OUTCOMES,
        ttl_ms=st.sampled_from([0, 0, 30]),
        late_ms=st.sampled_from([0, 0, 50]),
    )
    def flow(self, how_many: int, outcome: tuple[int, bool, bool], ttl_ms: int, late_ms: int) -> None:
        """Messages come and are dealt with, perhaps too late for some of them."""
        self.send(ttl_ms, 0, 4, True, "", "red", how_many)
        if late_ms:
            self.wait(late_ms)
        self.settle([outcome] * how_many, 0)

    @precondition(lambda self: self.consumers)
    @rule(how_often=st.integers(1, 4))
    def fail(self, how_often: int) -> None:
        """The deliveries fail, and the consumer asks for as many more, as one does that meets poison."""
        for _ in range(how_often):
            for peer, link in self.consumers:
                if _holds(peer, link):
                    peer.take(Delivery.MODIFIED, failed=True)
                    link.flow(1)
            self._pump()

    @precondition(lambda self: self.consumers)
    @rule(at=st.integers(0, 2))
    def lose_a_consumer(self, at: int) -> None:
        self.consumers.pop(at % len(self.consumers))[0].drop()
        self._pump()

    @precondition(lambda self: self.consumers)
    @rule()
    def give_credit(self) -> None:
        """Who could take the first message if it gave credit does so; if nobody could, the message stays."""
        first = self.jobs.backlog.first()
        could_take = self._states()[self.name].usable_consumers
        for _, link in self.consumers:
            link.flow(1)
        self._pump()
        if first is not None:
            waits = {entry[NUMBER] for _, entry in self.jobs.everything()}
            assert (first[0][NUMBER] in waits) is (could_take == 0)

    @rule(milliseconds=st.sampled_from([1, 15, 70, 250, 1100]))
    def wait(self, milliseconds: int) -> None:
        self.timed.pass_ms(milliseconds)
        self._pump()

    def _pump(self) -> None:
        for _ in range(2):
            for peer, _ in self.consumers:
                peer.pump()

    # -- administrators ---------------------------------------------------------------------------------------------

    @rule(limits=LIMITS, delivery=POLICIES)
    def declare_anew(self, limits: QueueLimits, delivery: DeliveryPolicy) -> None:
        self.limits, self.delivery = limits, delivery
        self._declare_jobs()
        self._pump()

    @rule()
    def make_the_graves(self) -> None:
        for name in ("dead", "late"):
            self._declare(
                EntityType.SUBSCRIPTION,
                None,
                SubscriptionDeclaration(subscription_name=name, exchange="graves", binding_keys=(name,)),
            )

    @rule(
        operation=st.sampled_from([Operation.PURGE, Operation.MOVE, Operation.REDRIVE]),
        source=st.sampled_from(["jobs", "jobs", "dead", "late"]),
        most=st.sampled_from([1, 2, None]),
        destination=st.sampled_from(["elsewhere", "graves/nobody"]),
    )
    def work_on_messages(self, operation: Operation, source: str, most: int | None, destination: str) -> None:
        """Nothing is bound to `graves/nobody`: a message that is moved there stays."""
        body = MessageSelection(count=most, destination=destination if operation is Operation.MOVE else None)
        kind, name = EntityType.SUBSCRIPTION, f"psub:durable:global:{source}"
        if source == "jobs" and self.is_queue:
            kind, name = EntityType.QUEUE, "jobs"
        task = queue_messages.handle(self.timed.broker, CALLER, operation, kind, name, to_value(body))
        if isinstance(task, queue_messages.MessagesTask):
            while task.step(0) is None:
                self.timed.turn()
        self.timed.turn()
        self._pump()

    @precondition(lambda self: not self.is_queue)
    @rule(is_stopped=st.booleans())
    def audit(self, is_stopped: bool) -> None:
        """Begin an audit, or end the one that is on; each message then has exactly one account."""
        if self.jobs.audit is None:
            self.audited.begin(self.timed, self.name)
        elif is_stopped:
            self.audited.stop(self.timed, self.name)
            self.audited.check()

    def _drop_and_rebind(self) -> None:
        """A new incarnation, as a rebind of a subscription that is not shared makes it. Nobody consumes meanwhile."""
        while self.consumers:
            self.consumers.pop()[0].drop()
        binding = Binding("orders", frozenset(("#",)))
        self.timed.broker.topology.drop_and_rebind(self._subscription, binding, self.timed.now_ms * 1000)
        self.timed.broker.routes.forget()
        self.timed.turn()
        self.lost = 0
        if self.audited.is_on:
            self.audited.fetch(self.timed, self.name)
            assert self.audited.state.ended_by == "QueueEnded"
            self.audited.check()

    @rule(kind=st.sampled_from(["nothing", "nothing", "nothing", "kill", "stop", "rebind"]))
    def begin_a_life(self, kind: str) -> None:
        if kind == "rebind" and not self.is_queue:
            self._drop_and_rebind()
        elif kind in ("kill", "stop"):
            self._restart(orderly=kind == "stop")
            self._attach("", 3)

    def _restart(self, *, orderly: bool) -> None:
        self.timed.turn()
        if orderly:
            while self.consumers:
                self.consumers.pop()[0].drop()
            queue = self.jobs
            waiting = [entry for _, entry in queue.everything()] + list(queue.expiry.expired)
            self.lost += sum(1 for entry in waiting if not entry[FLAGS] & LOGGED)
            restore.record_losses(self.timed.broker.topology)
            self.timed.turn()
        self.timed.restart()
        self.consumers.clear()
        self.audited = AuditedStory()

    # -- what holds -------------------------------------------------------------------------------------------------

    def _states(self) -> dict[str, SubscriptionState]:
        broker = self.timed.broker
        held = in_flight(broker.clients.connections.values())
        documents = [entity_states.subscription_state(each, held) for each in broker.topology.subscriptions.values()]
        if self.is_queue:
            documents.append(NO_BINDING | entity_states.queue_state(broker.topology.queues["jobs"], held))
        there = [{key: value for key, value in document.items() if value is not None} for document in documents]
        return {state.queue_name: state for state in map(SubscriptionState.read, there)}

    @invariant()
    def the_depth_is_what_came_minus_what_left(self) -> None:
        if not hasattr(self, "timed"):
            return
        for name, state in self._states().items():
            assert state.depth == state.ready + state.in_flight + state.scheduled
            assert state.depth == _balance(state)
            life = self.timed.broker.log.epoch, state.incarnation
            before = self.before[name] if self.lives.get(name) == life else None
            if before is not None:
                assert all(getattr(state, each) >= getattr(before, each) for each in TOTALS)
                assert state.lost_at_restart == before.lost_at_restart
            self.lives[name] = life
            self.before[name] = state

    @invariant()
    def the_changes_make_the_whole(self) -> None:
        """What a reader knows who asks only for what changed, over restarts too, is what a full read shows."""
        if not hasattr(self, "timed"):
            return
        self.known.follow(self.timed.broker)
        assert self.known.documents == all_documents(self.timed.broker)

    @invariant()
    def losses_are_those_of_orderly_stops(self) -> None:
        if hasattr(self, "timed"):
            assert self._states()[self.name].lost_at_restart == self.lost

    @invariant()
    def nothing_is_left_to_do(self) -> None:
        if hasattr(self, "timed"):
            state = self._states()[self.name]
            assert state.usable_credit == 0
            assert state.usable_consumers <= state.consumers

    @invariant()
    def the_repeated_messages_are_those_that_failed(self) -> None:
        if not hasattr(self, "timed"):
            return
        queue = self.jobs
        peers = self.timed.broker.clients.connections.values()
        held = [each for peer in peers for each in peer.endpoint.unsettled.all_held()]
        places = [(entry, "InFlight") for _, entry, _ in held]
        places += [(entry, "Ready" if state == "Ready" else "Scheduled") for state, entry in queue.everything()]
        worst = sorted(
            (-queue.redelivery.attempts.get(entry[NUMBER], 0), entry[NUMBER], entry, where) for entry, where in places
        )
        expected = [(_id(entry[1]), -failed, where) for failed, _, entry, where in worst if failed <= -2][:5]
        found = self._states()[self.name].repeated
        if not queue.expiry.expired:
            assert [(each.id, each.delivery_count, each.state) for each in found] == expected


def _holds(peer: Peer, link: Receiver) -> bool:
    return bool(peer.bodies()) and link.snd_settle_mode != Link.SND_SETTLED


def _balance(state: SubscriptionState) -> int:
    left = state.acked + state.expired + state.dead_lettered + state.moved + state.purged + state.dropped
    return state.enqueued - left


def _id(data: bytes) -> str:
    message = Message()
    message.decode(data[:])
    return str(message.id)


TestSums = Sums.TestCase
TestSums.settings = settings(
    max_examples=examples(80), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
