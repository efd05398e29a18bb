"""Links to a queue that an address names: decision 11 (docs/decisions) and docs/reference/addresses.md."""

from __future__ import annotations

import pytest
from core.factories import identity

from penstock_core.address import QueueAddress, SubscriptionQueue
from penstock_core.queue_links import Browse, Consume, decide_publish, decide_queue_attach
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import DistributionMode

QUEUE = QueueAddress("jobs")
OF_SUBSCRIPTION = SubscriptionQueue(identity("orders"))


@pytest.mark.parametrize(
    ("mode", "answer"),
    [
        (None, Consume("jobs")),
        (DistributionMode.MOVE, Consume("jobs")),
        (DistributionMode.COPY, Browse("jobs")),
    ],
)
def test_decision_11_copy_on_a_queue_browses(mode: DistributionMode | None, answer: object) -> None:
    assert decide_queue_attach(QUEUE, mode, may_manage=False) == answer


@pytest.mark.parametrize("mode", [None, *DistributionMode])
def test_the_queue_of_a_subscription_is_only_browsed(mode: DistributionMode | None) -> None:
    assert decide_queue_attach(OF_SUBSCRIPTION, mode, may_manage=True) == Browse("psub:durable:global:orders")
    refused = decide_queue_attach(OF_SUBSCRIPTION, mode, may_manage=False)
    assert isinstance(refused, Refuse)
    assert refused.reason is Reason.NOT_PERMITTED


def test_nobody_publishes_past_the_exchange() -> None:
    assert decide_publish(QUEUE) == QUEUE
    refused = decide_publish(OF_SUBSCRIPTION)
    assert isinstance(refused, Refuse)
    assert refused.reason is Reason.NOT_ALLOWED
