"""What was declared becomes the policy of the queue, and the broker's defaults fill what was not."""

from __future__ import annotations

import pytest

from penstock_api.management import DeliveryPolicy, QueueLimits
from penstock_broker.queue.queue import LOGGED, Queue
from penstock_broker.topology.queue_policies import QueueDefaults
from penstock_broker.topology.records import Exchange, PointToPointQueue, Subscription, new_router
from penstock_core.binding import Binding, Filter
from penstock_core.identity import GLOBAL, Identity
from penstock_core.terms import ExchangeType, Exclusivity, Lifetime, Overflow, Persistence

DEFAULTS = QueueDefaults(5_000, DeliveryPolicy(max_deliveries=3, dead_letter="dead"), Overflow.DROP_NEWEST)


def queue_node(limits: QueueLimits | None = None, delivery: DeliveryPolicy | None = None) -> PointToPointQueue:
    return PointToPointQueue(
        name="jobs",
        durable=True,
        queue=Queue("jobs", 1, is_logged=True, now_us=0),
        limits=limits or QueueLimits(),
        delivery=delivery,
    )


def subscription(selector: str | None = None, persistence: Persistence | None = None) -> Subscription:
    return Subscription(
        identity=Identity(GLOBAL, "billing", True),
        exclusivity=Exclusivity.SHARED,
        lifetime=Lifetime.PERMANENT,
        binding=Binding("orders", frozenset({"#"}), Filter(selector=selector)),
        exchange_type=ExchangeType.TOPIC,
        queue=Queue("billing", 1, is_logged=True, now_us=0),
        persistence=persistence,
    )


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param(QueueLimits(), (5_000, 0, Overflow.DROP_NEWEST), id="nothing"),
        pytest.param(QueueLimits(max_bytes=70), (70, 0, Overflow.DROP_OLDEST), id="bytes"),
        pytest.param(QueueLimits(max_messages=9, overflow="Reject"), (5_000, 9, Overflow.REJECT), id="messages"),
        pytest.param(QueueLimits(overflow="Reject"), (5_000, 0, Overflow.DROP_NEWEST), id="overflow without limit"),
    ],
)
def test_an_overflow_is_that_of_the_limit_that_was_declared(
    limits: QueueLimits, expected: tuple[int, int, Overflow]
) -> None:
    node = queue_node(limits)
    DEFAULTS.apply_to_queue(node)
    policy = node.queue.policy
    assert (policy.max_bytes, policy.max_messages, policy.overflow) == expected


def test_a_declared_delivery_policy_replaces_the_default_one_as_a_whole() -> None:
    declared, silent = queue_node(delivery=DeliveryPolicy(max_ttl_ms=7)), queue_node()
    for node in (declared, silent):
        DEFAULTS.apply_to_queue(node)
    policy = declared.queue.policy
    assert (policy.max_deliveries, policy.dead_letter, policy.max_ttl_us) == (0, None, 7_000)
    policy = silent.queue.policy
    assert (policy.max_deliveries, policy.dead_letter, policy.max_ttl_us) == (3, "dead", 0)


def test_the_queue_that_the_defaults_name_is_not_its_own_destination() -> None:
    """As for what is declared (docs/reference/management.md). Else a consumer would get what it rejected for ever."""
    node = queue_node()
    QueueDefaults(delivery=DeliveryPolicy(max_deliveries=3, dead_letter="jobs", expiry="late")).apply_to_queue(node)
    assert (node.queue.policy.dead_letter, node.queue.policy.expiry_address) == (None, "late")
    QueueDefaults(delivery=DeliveryPolicy(dead_letter="dead", expiry="jobs")).apply_to_queue(node)
    assert (node.queue.policy.dead_letter, node.queue.policy.expiry_address) == ("dead", None)


def test_messages_that_wait_get_another_time_to_live() -> None:
    empty, filled = queue_node(delivery=DeliveryPolicy(max_ttl_ms=7)), queue_node(delivery=DeliveryPolicy(max_ttl_ms=7))
    filled.queue.put([(1, b"m", 0, 0, LOGGED)])
    for node in (empty, filled):
        DEFAULTS.apply_to_queue(node)
    assert (empty.queue.expiry.is_retimed, filled.queue.expiry.is_retimed) == (False, True)


@pytest.mark.parametrize(
    ("of_exchange", "of_subscription", "expected"),
    [
        (None, None, False),
        (Persistence.ALWAYS, None, True),
        (Persistence.ALWAYS, Persistence.AS_SENT, False),
        (None, Persistence.ALWAYS, True),
    ],
)
def test_a_subscription_keeps_what_it_says_itself_or_else_its_exchange(
    of_exchange: Persistence | None, of_subscription: Persistence | None, expected: bool
) -> None:
    kind = ExchangeType.TOPIC
    exchange = Exchange(name="orders", type=kind, persistence=of_exchange, router=new_router(kind))
    made = subscription(persistence=of_subscription)
    DEFAULTS.apply_to_subscription(made, exchange)
    assert made.queue.policy.keeps_all is expected


def test_only_a_selector_or_no_local_has_messages_examined() -> None:
    plain, selective = subscription(), subscription("a = 1")
    for each in (plain, selective):
        DEFAULTS.apply_to_subscription(each, None)
    assert (plain.queue.admits is None, selective.queue.admits is None) == (True, False)
