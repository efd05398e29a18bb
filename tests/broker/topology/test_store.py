"""What exists, after it changed and after it ended: who gets messages, what is kept, and what a restart finds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Message
from support.stepped_broker import Peer, SteppedBroker

from penstock_api.management import (
    EntityType,
    ExchangeDeclaration,
    ManagementDocument,
    QueueDeclaration,
    SubscriptionDeclaration,
)
from penstock_broker.management import declare
from penstock_broker.management.replies import to_value
from penstock_broker.topology.records import Subscription
from penstock_core.binding import Binding
from penstock_core.terms import ExchangeType, Persistence

UNROUTED = "amqp:not-found"
"""With this error a message is rejected that matches nothing."""


@pytest.fixture
def broker() -> Iterator[SteppedBroker]:
    """Exchanges that reject what matches nothing, and a lasting subscription of one."""
    made = SteppedBroker()
    declared(made, EntityType.EXCHANGE, "orders", ExchangeDeclaration(exchange_type="Topic", unroutable="Reject"))
    declared(made, EntityType.EXCHANGE, "keys", ExchangeDeclaration(exchange_type="Direct", unroutable="Reject"))
    body = {"subscription_name": "jobs", "exchange": "orders", "binding_keys": ["new.*"]}
    declared(made, EntityType.SUBSCRIPTION, None, SubscriptionDeclaration.model_validate(body))
    yield made
    made.close()


def declared(broker: SteppedBroker, kind: EntityType, name: str | None, body: ManagementDocument) -> None:
    answer = declare.declare(broker.broker, kind, name, to_value(body), update=False)
    assert answer.status in (200, 201), answer
    broker.turn()


def jobs(broker: SteppedBroker) -> Subscription:
    (found,) = broker.broker.topology.subscriptions.values()
    return found


def sent(peer: Peer, address: str, *, durable: bool = True) -> str:
    """Of one connection, whose links remember where messages went before."""
    (outcome,) = peer.send(address, Message(body="x", durable=durable))
    return outcome


def test_an_ended_subscription_gets_nothing_more(broker: SteppedBroker) -> None:
    """Else its queue, which nobody can reach, would take messages until memory is full."""
    ended, topology, peer = jobs(broker), broker.broker.topology, broker.connect()
    assert sent(peer, "orders/new.one") == "accepted"
    topology.end(ended)
    broker.turn()
    assert sent(peer, "orders/new.one") == UNROUTED
    assert (ended.queue.depth, topology.is_current(ended.queue)) == (0, False)
    broker.restart()
    assert not broker.broker.topology.subscriptions


def test_a_binding_that_changed_in_place_holds_alone_and_after_a_restart(broker: SteppedBroker) -> None:
    peer = broker.connect()
    assert sent(peer, "orders/new.one") == "accepted"
    broker.broker.topology.rebind_in_place(jobs(broker), Binding("keys", frozenset({"old"})))
    broker.turn()
    for _ in range(2):
        assert [sent(peer, address) for address in ("orders/new.one", "keys/old")] == [UNROUTED, "accepted"]
        assert jobs(broker).exchange_type is ExchangeType.DIRECT
        peer.drop()
        broker.restart()
        peer = broker.connect()
    assert jobs(broker).queue.depth == 3


def test_a_new_life_has_none_of_the_messages_of_the_old_one(broker: SteppedBroker) -> None:
    before, peer = jobs(broker).queue, broker.connect()
    assert [sent(peer, "orders/new.one") for _ in range(2)] == ["accepted", "accepted"]
    broker.broker.topology.drop_and_rebind(
        jobs(broker), Binding("keys", frozenset({"old"})), broker.broker.clock.now_us
    )
    broker.turn()
    assert [sent(peer, address) for address in ("orders/new.one", "keys/old")] == [UNROUTED, "accepted"]
    peer.drop()
    after = jobs(broker).queue
    assert (before.depth, after.depth, after.incarnation > before.incarnation) == (0, 1, True)
    assert jobs(broker).exchange_type is ExchangeType.DIRECT
    broker.restart()
    assert jobs(broker).queue.depth == 1


def test_what_an_exchange_keeps_holds_at_once_for_the_subscriptions_that_are_there(broker: SteppedBroker) -> None:
    """Decision 036: the subscription's own word, else the exchange's; `AsSent` where nobody says one."""
    topology, peer = broker.broker.topology, broker.connect()
    assert sent(peer, "orders/new.one", durable=False) == "accepted"
    exchange = topology.exchanges["orders"]
    exchange.persistence = Persistence.ALWAYS
    topology.put_exchange(exchange)
    broker.turn()
    assert sent(peer, "orders/new.two", durable=False) == "accepted"
    peer.drop()
    broker.restart()
    assert jobs(broker).queue.depth == 1


def test_a_subscription_gets_messages_again_once_its_exchange_is_back(broker: SteppedBroker) -> None:
    broker.broker.topology.delete_exchange("orders")
    broker.turn()
    declared(broker, EntityType.EXCHANGE, "orders", ExchangeDeclaration(exchange_type="Topic", unroutable="Reject"))
    assert sent(broker.connect(), "orders/new.one") == "accepted"
    assert jobs(broker).queue.depth == 1


def test_a_deleted_queue_is_not_found_by_its_life_any_more(broker: SteppedBroker) -> None:
    declared(broker, EntityType.QUEUE, "q", QueueDeclaration())
    topology = broker.broker.topology
    queue = broker.queue("q")
    assert topology.is_current(queue)
    assert topology.delete_queue("q").queue is queue
    broker.turn()
    assert (topology.is_current(queue), queue.incarnation in topology.by_incarnation) == (False, False)
    broker.restart()
    assert not broker.broker.topology.has_queue("q")
