"""Rights that an Exchange or a Subscription gives, from a view to a decision."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.resources import NOW, broker, exchange, subscription

from penstock_api import release_terms
from penstock_api.management import EntityType
from penstock_operator.plans.decisions import (
    BrokerReply,
    BrokerView,
    ChildState,
    Decision,
    DeclareEntity,
    DeleteEntity,
    Reach,
    RemoveFinalizer,
    Report,
)
from penstock_operator.plans.exchange import ExchangeView, plan_exchange
from penstock_operator.plans.subscription import SubscriptionView, plan_subscription

BILLING = {"name": "billing", "namespace": "billing", "uid": "u1", "finalizers": ["penstock.dev/topology"]}
KNOWN = frozenset(release_terms.vocabulary())
APP: list[Any] = [{"serviceAccounts": ["app"]}]
DELEGATING: dict[str, Any] = {"permissions": [], "delegatedPermissions": {}, "allowedNamespaces": ["billing"]}
OF_SUBSCRIPTION = "psub:durable:global:billing"


def of_broker(**spec: Any) -> BrokerView:
    return BrokerView(reach=Reach.CONNECTED, broker=broker(**spec), understands=KNOWN)


def subscribed(
    of: BrokerView, reply: BrokerReply | None = None, metadata: dict[str, Any] | None = None, **spec: Any
) -> SubscriptionView:
    refers = {
        "brokerRef": {"name": "main", "namespace": "shop"},
        "exchangeRef": {"name": "orders", "namespace": "shop"},
    }
    made = subscription(metadata={**BILLING, **(metadata or {})}, **refers, **spec)
    to = exchange(allowedNamespaces=["billing"])
    return SubscriptionView(resource=made, broker=of, exchange=to, winner=made, cluster_id="c1", now=NOW, reply=reply)


def published(of: BrokerView, reply: BrokerReply | None = None, **spec: Any) -> ExchangeView:
    made = exchange(metadata={**BILLING, "name": "orders"}, brokerRef={"name": "main", "namespace": "shop"}, **spec)
    return ExchangeView(
        resource=made,
        broker=of,
        alternate=None,
        winner=made,
        cluster_id="c1",
        cluster_domain="cluster.local",
        now=NOW,
        reply=reply,
    )


def permitted(decision: Decision) -> list[tuple[str, str, str]]:
    assert isinstance(decision, Report)
    shown = {"Ready", "Permitted", "Stalled"}
    return [(it.type, it.status.value, str(it.reason)) for it in decision.conditions if it.type in shown]


def test_what_the_broker_delegates_is_declared() -> None:
    decision = plan_subscription(subscribed(of_broker(**DELEGATING), consumers=APP))
    assert isinstance(decision, DeclareEntity)
    assert decision.body.to_wire()["consumers"] == ["system:serviceaccount:billing:app"]
    done = BrokerReply(status=200, body={"outcome": "Updated"})
    assert permitted(plan_subscription(subscribed(of_broker(**DELEGATING), done, consumers=APP))) == [
        ("Ready", "True", "Ready"),
        ("Permitted", "True", "Granted"),
    ]


@pytest.mark.parametrize("plain", [{"permissions": []}, {}])
def test_what_the_broker_does_not_delegate_is_not_declared_and_said(plain: dict[str, Any]) -> None:
    of = of_broker(allowedNamespaces=["billing"], **plain)
    decision = plan_subscription(subscribed(of, consumers=APP))
    assert isinstance(decision, DeclareEntity)
    assert "consumers" not in decision.body.to_wire()
    done = BrokerReply(status=200, body={"outcome": "Updated"})
    assert permitted(plan_subscription(subscribed(of, done, consumers=APP))) == [
        ("Ready", "False", "NotDelegated"),
        ("Permitted", "False", "NotDelegated"),
        ("Stalled", "True", "NotDelegated"),
    ]


def test_an_exchange_says_who_publishes() -> None:
    spec: dict[str, Any] = {"publishers": APP}
    decision = plan_exchange(replace(published(of_broker(**DELEGATING), **spec), service=ChildState.APPLIED))
    assert isinstance(decision, DeclareEntity)
    assert decision.body.to_wire()["publishers"] == ["system:serviceaccount:billing:app"]


NOT_ALLOWED = of_broker(permissions=[], delegatedPermissions={})


@pytest.mark.parametrize("spec", [{}, {"consumers": APP}])
def test_a_namespace_that_may_not_use_the_broker_any_more_loses_its_rights(spec: dict[str, Any]) -> None:
    ending = plan_subscription(subscribed(NOT_ALLOWED, **spec))
    assert ending == DeleteEntity(
        entity=EntityType.SUBSCRIPTION,
        name=OF_SUBSCRIPTION,
        if_unused=False,
        if_empty=False,
        owner_uid="u1",
        rights_only=True,
    )
    for status in (204, 409):
        report = plan_subscription(subscribed(NOT_ALLOWED, BrokerReply(status=status), **spec))
        assert permitted(report) == [
            ("Ready", "False", "NamespaceNotAllowed"),
            ("Stalled", "True", "NamespaceNotAllowed"),
        ]


def test_so_does_an_exchange_of_such_a_namespace() -> None:
    ending = plan_exchange(published(NOT_ALLOWED))
    assert isinstance(ending, DeleteEntity)
    assert (ending.entity, ending.name, ending.owner_uid, ending.rights_only) == (
        EntityType.EXCHANGE,
        "orders",
        "u1",
        True,
    )


def test_a_broker_that_is_not_there_or_knows_no_rights_is_not_asked() -> None:
    gone = replace(NOT_ALLOWED, reach=Reach.UNREACHABLE)
    old = replace(NOT_ALLOWED, understands=KNOWN - {"subscription.consumers"})
    for of in (gone, old, replace(NOT_ALLOWED, understands=None)):
        assert isinstance(plan_subscription(subscribed(of)), Report)


def test_what_is_retained_keeps_no_rights() -> None:
    leaving = {"deletionTimestamp": (NOW - timedelta(seconds=5)).isoformat()}
    first = plan_subscription(subscribed(of_broker(**DELEGATING), metadata=leaving, deletionPolicy="Retain"))
    assert isinstance(first, DeleteEntity)
    assert first.rights_only
    done = BrokerReply(status=204)
    then = plan_subscription(subscribed(of_broker(**DELEGATING), done, metadata=leaving, deletionPolicy="Retain"))
    assert then == RemoveFinalizer("its deletionPolicy is Retain")
