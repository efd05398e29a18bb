"""Commits that the log has no room for, or that are too much for one record: rolled back as a whole, and told why.

The broker runs within this process, on a simulated disk with segments of 16 KiB.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Delivery
from support.broker_site import BrokerSite, waiting_in
from support.proton_transactions import ProtonTransactionClient

from penstock_api.management import DeliveryPolicy
from penstock_core.attach import Create
from penstock_core.binding import Binding
from penstock_core.identity import Identity, Scope
from penstock_core.terms import Exclusivity, Lifetime

QUEUES = ("a", "b")
SEGMENT = 16_384


class Bench:
    """A broker, one client, and what stands in the queues."""

    def __init__(self) -> None:
        self.site = BrokerSite()
        for queue in QUEUES:
            self.site.broker.topology.make_queue(queue, durable=True, now_us=0)
        self.site.loop.turn(may_wait=False)
        self.site.syncer.complete()
        self.sent = 0
        self.connect()

    def connect(self) -> None:
        self.client = ProtonTransactionClient(self.site.connect(), QUEUES)
        self.pump()

    def pump(self) -> None:
        """Turn and sync until nobody has anything to say."""
        quiet = 0
        while quiet < 3:
            self.site.syncer.complete()
            moved = self.client.flush() + self.site.has_work
            self.site.loop.turn(may_wait=False)
            moved += self.client.receive() + bool(self.site.broker.work.held)  # until there is room, or none to gain
            quiet = 0 if moved else quiet + 1

    def declare(self) -> bytes:
        asked = self.client.declare()
        self.pump()
        return self.client.name_in(asked)

    def post(self, queue: str, txn_id: bytes | None, count: int = 1) -> list[str]:
        """Send messages; their bodies."""
        bodies: list[str] = []
        for _ in range(count):
            self.sent += 1
            bodies.append(f"m{self.sent}")
            delivery = self.client.post(queue, bodies[-1], txn_id)
            self.pump()
            assert delivery.remote_state
        return bodies

    def commit(self, txn_id: bytes) -> str:
        """ "accepted", or what the rejection says: condition and cause."""
        answer = self.client.discharge(txn_id, fail=False)
        self.pump()
        if answer.remote_state == Delivery.ACCEPTED:
            return "accepted"
        assert answer.remote_state == Delivery.REJECTED
        condition = answer.remote.condition
        assert condition is not None
        info: Any = condition.info  # typed as any value of AMQP
        return f"{condition.name} {info['penstock:cause']}"

    def content(self) -> dict[str, list[str]]:
        """What waits, by queue."""
        return {queue: waiting_in(self.site.broker.topology.queues[queue].queue) for queue in QUEUES}

    def kill(self) -> None:
        """kill -9, and start again."""
        self.site.end_process()
        self.client.cut()
        self.site.files.kill()
        self.site.start()
        self.connect()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.client.cut()
    made.site.close()


def test_a_commit_too_large_for_one_record_is_rolled_back_and_told(bench: Bench) -> None:
    old = bench.post("a", None, 3)
    bench.client.attach("a")
    bench.pump()
    txn_id = bench.declare()
    bench.client.accept(old[0], txn_id, settled=True)
    bench.post("b", txn_id, 200)
    assert bench.commit(txn_id) == "amqp:transaction:rollback LimitExceeded"
    bench.client.detach("a")
    bench.pump()
    for _ in range(2):
        assert bench.content() == {"a": old, "b": []}
        assert bench.site.broker.topology.queues["b"].queue.totals.enqueued == 0
        bench.kill()
    txn_id = bench.declare()
    smaller = bench.post("b", txn_id, 50)
    assert bench.commit(txn_id) == "accepted"
    bench.kill()
    assert bench.content() == {"a": old, "b": smaller}


def subscribe_widely(bench: Bench) -> list[str]:
    """120 subscriptions; the addresses of twenty keys of amq.topic, each of which reaches another hundred of them."""
    for index in range(120):
        keys = frozenset(str(first) for first in range(20) if first <= index < first + 100)
        bench.site.broker.topology.create(
            Create(
                identity=Identity(Scope(None), f"s{index}", durable=True),
                exclusivity=Exclusivity.SHARED,
                lifetime=Lifetime.PERMANENT,
                binding=Binding("amq.topic", keys),
                owner=None,
                user="",
                steals=False,
            ),
            now_us=0,
        )
    return [f"amq.topic/{first}" for first in range(20)]


def test_a_commit_whose_messages_go_to_too_many_sets_of_queues_is_rolled_back_and_told(bench: Bench) -> None:
    """Each set of 100 queues has to be defined in the segment with the commit's record; the log goes on without it."""
    routing_keys = subscribe_widely(bench)
    bench.client.cut()
    bench.client = ProtonTransactionClient(bench.site.connect(), (*QUEUES, *routing_keys))
    bench.pump()
    txn_id = bench.declare()
    for key in routing_keys:
        bench.post(key, txn_id)
    assert bench.commit(txn_id) == "amqp:transaction:rollback LimitExceeded"
    assert bench.site.log.failed is None
    txn_id = bench.declare()
    kept = [*bench.post(routing_keys[0], txn_id), *bench.post(routing_keys[1], txn_id)]
    assert bench.commit(txn_id) == "accepted"
    bench.kill()
    queues = {each.identity.name: waiting_in(each.queue) for each in bench.site.broker.topology.subscriptions.values()}
    assert queues == {f"s{index}": kept[index >= 100 : 1 if index < 1 else 2] for index in range(101)} | {
        f"s{index}": [] for index in range(101, 120)
    }


def test_dead_letters_of_a_commit_that_go_to_too_many_sets_of_queues_wait_in_their_queue(bench: Bench) -> None:
    """The log goes on, and they follow by themselves a second later."""
    topology, routing_keys = bench.site.broker.topology, subscribe_widely(bench)
    queues = [f"q{first}" for first in range(20)]
    for queue, key in zip(queues, routing_keys, strict=True):
        node = topology.make_queue(queue, durable=True, now_us=0)
        node.delivery = DeliveryPolicy(dead_letter=key)
        topology.put_queue(node)
    bench.client.cut()
    bench.client = ProtonTransactionClient(bench.site.connect(), (*QUEUES, *queues))
    bench.pump()
    bodies = [f"{queue} {'long ' * 80}" for queue in queues]  # they are written as bodies before the record
    for queue, body in zip(queues, bodies, strict=True):
        bench.client.post(queue, body, None)
        bench.client.attach(queue)
    bench.pump()
    txn_id = bench.declare()
    for body in bodies:
        bench.client.reject(body, txn_id)
    bench.pump()
    assert bench.commit(txn_id) == "accepted"
    assert bench.site.log.failed is None
    nodes = [topology.queues[queue].queue for queue in queues]
    left = sum(each.depth for each in nodes)
    assert 0 < left < 20
    assert sum(each.totals.dead_lettered for each in nodes) == 20 - left
    bench.site.now_ms += 1000
    bench.pump()
    assert [each.depth for each in nodes] == [0] * 20
    bench.kill()
    received = sum(each.queue.depth for each in bench.site.broker.topology.subscriptions.values())
    assert received == 20 * 100


@pytest.mark.parametrize("free", range(5))
def test_on_a_disk_that_fills_each_commit_is_whole_or_refused(bench: Bench, free: int) -> None:
    """And what was committed can be consumed then, in transactions too."""
    files = bench.site.files
    files.space = sum(len(files.copy().content(path)) for path in files.paths()) + free * SEGMENT + 5000
    committed: list[str] = []
    while True:
        txn_id = bench.declare()
        posted = bench.post("a", txn_id, 40)
        told = bench.commit(txn_id)
        if told != "accepted":
            break
        committed += posted
    assert told == "amqp:transaction:rollback StorageFull"
    assert bench.site.log.failed is None
    assert bench.content()["a"] == committed
    bench.kill()
    assert bench.content()["a"] == committed
    while committed:
        bench.client.attach("a")
        bench.pump()
        txn_id = bench.declare()
        for body in committed[:50]:
            bench.client.accept(body, txn_id, settled=True)
        assert bench.commit(txn_id) == "accepted"
        del committed[:50]
        bench.client.detach("a")
        bench.client.held.clear()
        bench.pump()
    assert bench.site.log.failed is None
    bench.kill()
    assert bench.content() == {"a": [], "b": []}
