"""A broker in which a message to an exchange needs several turns to be in all of its queues."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest
from support.stepped_broker import SteppedBroker

from penstock_api.management import EntityType, SubscriptionDeclaration
from penstock_broker.management import declare
from penstock_broker.management.replies import to_value
from penstock_broker.messages import store

__all__ = ["QUEUES", "wide_exchange"]

QUEUES = 7


@contextmanager
def wide_exchange(monkeypatch: pytest.MonkeyPatch) -> Generator[SteppedBroker]:
    """Of `amq.fanout` with so many subscriptions, of which a turn serves three."""
    monkeypatch.setattr(store, "MOST_QUEUES_PER_TURN", 3)
    broker = SteppedBroker()
    for number in range(QUEUES):
        body = to_value(SubscriptionDeclaration(subscription_name=f"s{number}", exchange="amq.fanout"))
        assert declare.declare(broker.broker, EntityType.SUBSCRIPTION, None, body, update=False).status == 201
    broker.turn()
    yield broker
    broker.close()
