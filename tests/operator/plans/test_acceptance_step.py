"""The steps that all kinds share before anything is declared, and their order: of two reasons the earlier decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.resources import NOW, broker, exchange, queue, subscription

from penstock_operator import names
from penstock_operator.plans.decisions import (
    AddFinalizer,
    BrokerView,
    Decision,
    DeleteEntity,
    Reach,
    RemoveFinalizer,
    Report,
)
from penstock_operator.plans.exchange import ExchangeView, plan_exchange
from penstock_operator.plans.queue import QueueView, plan_queue
from penstock_operator.plans.subscription import SubscriptionView, plan_subscription

OURS = {"finalizers": [names.FINALIZER]}
PAUSED = {"annotations": {names.PAUSED: "true"}}
LEAVING = {"deletionTimestamp": NOW}
Plan = Callable[..., Decision]


def exchanges(of: BrokerView, metadata: dict[str, Any], older: str) -> Decision:
    made = exchange(metadata=metadata, unroutable="Alternate", alternateExchangeRef={"name": "spare"})
    winner = exchange(metadata={"uid": older}) if older else made
    view = ExchangeView(
        resource=made,
        broker=of,
        alternate=None,
        winner=winner,
        cluster_id="c1",
        cluster_domain="cluster.local",
        now=NOW,
    )
    return plan_exchange(view)


def subscriptions(of: BrokerView, metadata: dict[str, Any], older: str) -> Decision:
    made = subscription(metadata=metadata)
    winner = subscription(metadata={"uid": older}) if older else made
    return plan_subscription(
        SubscriptionView(resource=made, broker=of, exchange=None, winner=winner, cluster_id="c1", now=NOW)
    )


def queues(of: BrokerView, metadata: dict[str, Any], older: str) -> Decision:
    made = queue(metadata=metadata)
    winner = queue(metadata={"uid": older}) if older else made
    return plan_queue(QueueView(resource=made, broker=of, winner=winner, cluster_id="c1", now=NOW))


KINDS = pytest.mark.parametrize("plan", [exchanges, subscriptions, queues])
THERE, ABSENT = BrokerView(reach=Reach.CONNECTED, broker=broker()), BrokerView(reach=Reach.ABSENT)


def reason(decision: Decision) -> str:
    assert isinstance(decision, Report)
    return str(decision.conditions[0].reason)


@KINDS
def test_a_deletion_comes_before_a_pause(plan: Plan) -> None:
    assert isinstance(plan(THERE, {**OURS, **PAUSED, **LEAVING}, ""), DeleteEntity)


@KINDS
def test_what_never_had_the_finalizer_leaves_nothing_behind(plan: Plan) -> None:
    decision = plan(THERE, {**PAUSED, **LEAVING}, "")
    assert isinstance(decision, RemoveFinalizer)
    assert not decision.is_removal_pending


@KINDS
def test_of_two_that_declare_the_same_the_younger_one_deletes_nothing(plan: Plan) -> None:
    decision = plan(THERE, {**OURS, **LEAVING}, "older")
    assert decision == RemoveFinalizer("another resource has declared the same entity")


@KINDS
def test_a_pause_comes_before_all_obstacles(plan: Plan) -> None:
    assert reason(plan(ABSENT, PAUSED, "older")) == "PausedByAnnotation"


@KINDS
def test_the_broker_comes_before_the_other_references(plan: Plan) -> None:
    assert reason(plan(ABSENT, {}, "older")) == "BrokerNotFound"


@pytest.mark.parametrize("plan", [exchanges, subscriptions])
def test_references_come_before_a_duplicate(plan: Plan) -> None:
    assert reason(plan(THERE, {}, "older")) == "ExchangeNotFound"


def test_a_duplicate_gets_no_finalizer() -> None:
    assert reason(queues(THERE, {}, "older")) == "DuplicateQueue"
    assert queues(THERE, {}, "") == AddFinalizer()
