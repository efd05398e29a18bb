"""Transactions of a whole broker against a naive model, through any steps that Hypothesis finds, crashes among them.

What stands in the queues after a crash has to be what stood there after some commit (or single message), and not before
the last one that was answered: so none is ever there in part. More examples: PENSTOCK_MACHINE_EXAMPLES.
"""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from proton import Delivery
from support.broker_site import BrokerSite, waiting_in
from support.examples import IS_LONG_FORM, examples
from support.proton_transactions import ProtonTransactionClient

from penstock_broker.messages.store import FEWEST_TOGETHER

EXAMPLES = examples(60)
QUEUES = ("a", "b")
PICK = st.integers(0, 9)
WHICH = st.integers(0, 2)
"""An open transaction, or none if there are fewer."""
TOGETHER = st.sampled_from(QUEUES).map(lambda queue: [queue] * (FEWEST_TOGETHER + 1))
"""So many that the commit stores them together."""
SELDOM = st.integers(0, 3).map(lambda drawn: drawn == 3)


@dataclass
class Open:
    """A transaction that was declared."""

    txn_id: bytes
    posted: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    settled: list[str] = field(default_factory=list[str])
    unsettled: list[str] = field(default_factory=list[str])


class Transactions(RuleBasedStateMachine):
    """One client, two durable queues."""

    def __init__(self) -> None:
        super().__init__()
        self.site = BrokerSite()
        for queue in QUEUES:
            self.site.broker.topology.make_queue(queue, durable=True, now_us=0)
        self.site.loop.turn(may_wait=False)
        self.site.syncer.complete()
        self.content: dict[str, list[str]] = {queue: [] for queue in QUEUES}
        self.history: list[dict[str, tuple[str, ...]]] = [self.image()]
        self.answered = 0
        self.waiting: list[tuple[Delivery, int]] = []
        """Commits and messages not answered yet, and how much of the history there is once they are."""
        self.open: list[Open] = []
        self.returned: dict[str, int] = {}
        """How often each message was returned by a rollback since the broker's start."""
        self.seen: set[str] = set()
        self.marked: set[str] = set()
        """Deliveries whose state named a transaction before: proton's Python can't take that back, only end them."""
        self.numbers = 0
        self.client = self.connect()

    def teardown(self) -> None:
        self.client.cut()
        self.site.close()

    def image(self) -> dict[str, tuple[str, ...]]:
        return {queue: tuple(bodies) for queue, bodies in self.content.items()}

    def connect(self) -> ProtonTransactionClient:
        self.marked.clear()
        self.client = ProtonTransactionClient(self.site.connect(), QUEUES)
        self.pump()
        for queue in QUEUES:
            self.client.attach(queue)
        self.pump()
        return self.client

    def body(self) -> str:
        self.numbers += 1
        return f"m{self.numbers}"

    # -- turning ----------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Turn until nobody has anything to say, then look."""
        quiet = 0
        while quiet < 2:
            moved = self.client.flush() + self.site.has_work
            self.site.loop.turn(may_wait=False)
            moved += self.client.receive()
            quiet = 0 if moved else quiet + 1
        for delivery, position in self.waiting:
            if delivery.remote_state:
                assert delivery.remote_state == Delivery.ACCEPTED
                self.answered = max(self.answered, position)
        self.waiting = [each for each in self.waiting if not each[0].remote_state]
        self.agree()

    def agree(self) -> None:
        came, self.client.came = self.client.came, []
        for queue in QUEUES:
            order = [self.content[queue].index(body) for address, body, _ in came if address == queue]
            assert order == sorted(order)
        for _, body, count in came:
            assert count >= self.returned.get(body, 0)
            assert body in self.seen or count == 0
            self.seen.add(body)
        settled = [body for each in self.open for body in each.settled]
        for queue in QUEUES:
            waits = waiting_in(self.site.broker.topology.queues[queue].queue)
            held = [body for body in (*self.client.held, *settled) if body in self.content[queue]]
            assert sorted(waits + held) == sorted(self.content[queue])
            assert not waits or not self.client.consumes(queue)

    def changed(self, answer: Delivery | None) -> None:
        """The content may have changed, and then `answer` will say that it lasts."""
        if self.image() == self.history[-1]:
            return  # nothing was written: its answer says nothing of what came before
        self.history.append(self.image())
        if answer is not None:
            self.waiting.append((answer, len(self.history) - 1))

    # -- steps ------------------------------------------------------------------------------------------------------

    @rule()
    def declare(self) -> None:
        asked = self.client.declare()
        self.pump()
        self.open.append(Open(self.client.name_in(asked)))

    @rule(
        what=PICK,
        posts=st.lists(st.sampled_from(QUEUES), min_size=1, max_size=3) | TOGETHER,
        accepts=st.lists(st.booleans(), max_size=2),
        then=st.sampled_from(
            ["", "leave", "commit", "roll back", "commit, crash", "commit, crash", "leave, roll back"]
        ),
        seed=st.integers(0, 999),
    )
    def work(self, what: int, posts: list[str], accepts: list[bool], then: str, seed: int) -> None:
        """Much in one transaction, and what may follow."""
        if not self.open:
            self.declare()
        which = len(self.open) - 1
        for queue in posts:
            self.post(which, queue)
        for settled in accepts:
            if self.client.held:
                self.accept(which, what, settled)
        if "leave" in then:
            self.move_receiver(posts[0], True)
        if "commit" in then:
            self.commit(which)
        if "roll back" in then:
            self.roll_back(which)
        if "crash" in then:
            self.crash("some", seed, True)

    @rule(which=WHICH, queue=st.sampled_from(QUEUES))
    def post(self, which: int, queue: str) -> None:
        if not self.client.may_send(queue):
            return  # so many wait for their accept, which waits for a sync
        body, body_of = self.body(), self.open[which] if which < len(self.open) else None
        if body_of is not None:
            body_of.posted.append((queue, body))
            self.client.post(queue, body, body_of.txn_id)
        else:
            self.content[queue].append(body)
            self.changed(self.client.post(queue, body, None))
        self.pump()

    @precondition(lambda self: self.client.held)
    @rule(which=WHICH, what=PICK, settled=st.sampled_from([True, True, False]))
    def accept(self, which: int, what: int, settled: bool) -> None:
        pending = {body for each in self.open for body in each.unsettled}
        bodies = [body for body in self.client.held if body not in pending]
        if not bodies:
            return
        body = bodies[what % len(bodies)]
        if which < len(self.open) and body not in self.marked:
            if not settled:
                self.marked.add(body)
            transaction = self.open[which]
            (transaction.settled if settled else transaction.unsettled).append(body)
            self.client.accept(body, transaction.txn_id, settled=settled)
        else:
            self.client.accept(body, None, settled=True)
            self.take_out(body)
            self.changed(None)
        self.pump()

    def take_out(self, body: str) -> None:
        for bodies in self.content.values():
            if body in bodies:
                bodies.remove(body)

    @precondition(lambda self: self.open)
    @rule(which=PICK)
    def commit(self, which: int) -> None:
        transaction = self.open.pop(which % len(self.open))
        for body in (*transaction.settled, *transaction.unsettled):
            self.take_out(body)
        for queue, body in transaction.posted:
            self.content[queue].append(body)
        self.changed(self.client.discharge(transaction.txn_id, fail=False))
        self.pump()

    @precondition(lambda self: self.open)
    @rule(which=PICK)
    def roll_back(self, which: int) -> None:
        transaction = self.open.pop(which % len(self.open))
        self.rolled_back([transaction])
        answer = self.client.discharge(transaction.txn_id, fail=True)
        self.pump()
        assert answer.remote_state == Delivery.ACCEPTED

    def rolled_back(self, transactions: list[Open]) -> None:
        for body in [body for each in transactions for body in each.settled]:
            self.returned[body] = self.returned.get(body, 0) + 1

    @rule()
    def sync(self) -> None:
        self.site.syncer.complete()
        self.pump()

    @rule(queue=st.sampled_from(QUEUES), really=SELDOM)
    def move_receiver(self, queue: str, really: bool) -> None:
        """Take the receiver away, or put one there again."""
        if not really:
            return
        if not self.client.consumes(queue):
            self.client.attach(queue)
        else:
            self.client.detach(queue)
            for transaction in self.open:
                mine = [body for body in transaction.unsettled if body in self.content[queue]]
                transaction.unsettled = [body for body in transaction.unsettled if body not in mine]
                transaction.settled += mine
            for body in [body for body in self.client.held if body in self.content[queue]]:
                del self.client.held[body]
        self.pump()

    @rule(really=SELDOM)
    def lose_connection(self, really: bool) -> None:
        if not really:
            return
        self.rolled_back(self.open)
        self.open.clear()
        self.waiting.clear()
        self.client.cut()
        self.connect()

    @rule(how=st.sampled_from(["killed", "none", "some", "torn"]), seed=st.integers(0, 999), really=SELDOM)
    def crash(self, how: str, seed: int, really: bool) -> None:
        if not really:
            return
        at_least = len(self.history) - 1 if how == "killed" else self.answered
        self.site.end_process()
        self.client.cut()
        if how == "killed":
            self.site.files.kill()
        else:
            chance = random.Random(seed)
            self.site.files.crash(lambda length: _left(how, length, chance), 0)
        self.site.start()
        queues = self.site.broker.topology.queues
        found = {queue: tuple(waiting_in(queues[queue].queue)) for queue in QUEUES}
        assert found in self.history[at_least:], (how, at_least, found, self.history)
        self.content = {queue: list(bodies) for queue, bodies in found.items()}
        self.history, self.answered = [found], 0
        self.open.clear()
        self.waiting.clear()
        self.returned.clear()
        self.seen = {body for bodies in found.values() for body in bodies}
        self.connect()


def _left(how: str, length: int, chance: random.Random) -> int:
    """How many of the first bytes of an unsynced write stay."""
    match how:
        case "none":
            return 0
        case "some":
            return length * chance.randint(0, 1)
        case _:
            return chance.randint(0, length)


Transactions.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=50,
    deadline=None,
    derandomize=not IS_LONG_FORM,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestTransactions = Transactions.TestCase
