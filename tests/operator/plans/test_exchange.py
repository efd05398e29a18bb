"""The plan for an Exchange: from a view to a decision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.resources import NOW, broker, exchange

from penstock_api.management import EntityType
from penstock_api.resources import Broker, Exchange
from penstock_operator.plans.decisions import (
    AddFinalizer,
    ApplyChild,
    BrokerReply,
    BrokerView,
    ChildState,
    DeclareEntity,
    Reach,
    Report,
    Retry,
)
from penstock_operator.plans.exchange import ExchangeView, plan_exchange

OURS = {"finalizers": ["penstock.dev/topology"]}
OWNER = {
    "apiVersion": "penstock.dev/v1alpha1",
    "kind": "Exchange",
    "name": "orders",
    "uid": "uid-orders",
    "controller": True,
    "blockOwnerDeletion": True,
}
REST = exchange(metadata={"name": "rest"})
IN_SPY = exchange(metadata={"name": "rest", "namespace": "spy"})
LABELS = {
    "app.kubernetes.io/name": "penstock-broker",
    "app.kubernetes.io/instance": "main",
    "app.kubernetes.io/managed-by": "penstock-operator",
    "penstock.dev/broker": "main",
}


def view(
    made: Exchange | None = None,
    *,
    of: Broker | None = None,
    reach: Reach = Reach.CONNECTED,
    service: ChildState = ChildState.APPLIED,
    reply: BrokerReply | None = None,
) -> ExchangeView:
    made = made or exchange(metadata=OURS)
    return ExchangeView(
        resource=made,
        broker=BrokerView(reach=reach, broker=of or broker(), problem="It does not answer."),
        alternate=None,
        winner=made,
        cluster_id="c1",
        cluster_domain="cluster.local",
        now=NOW,
        service=service,
        reply=reply,
    )


def told(decision: object) -> list[tuple[str, str, str]]:
    assert isinstance(decision, Report)
    return [(condition.type, condition.status.value, str(condition.reason)) for condition in decision.conditions]


def test_a_broker_that_this_operator_does_not_understand_needs_another_operator() -> None:
    assert told(plan_exchange(view(reach=Reach.NOT_UNDERSTOOD))) == [
        ("Ready", "Unknown", "OperatorTooOld"),
        ("Accepted", "True", "Accepted"),
        ("Declared", "Unknown", "OperatorTooOld"),
        ("Stalled", "True", "OperatorTooOld"),
    ]


def test_finalizer_then_service_then_declaration() -> None:
    assert plan_exchange(view(exchange())) == AddFinalizer()
    assert isinstance(plan_exchange(view(service=ChildState.UNKNOWN)), ApplyChild)
    decision = plan_exchange(view())
    assert isinstance(decision, DeclareEntity)
    assert (decision.entity, decision.name) == (EntityType.EXCHANGE, "orders")


def test_the_broker_says_what_its_exchanges_may_take_over() -> None:
    annotations = {"penstock.dev/adoption": "OtherCluster"}
    decision = plan_exchange(view(of=broker(metadata={"annotations": annotations})))
    assert isinstance(decision, DeclareEntity)
    assert decision.body.to_wire()["adoption"] == "OtherCluster"


def test_its_service_selects_the_broker_s_pods() -> None:
    assert plan_exchange(view(service=ChildState.UNKNOWN)) == ApplyChild(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "orders-x", "namespace": "shop", "labels": LABELS, "ownerReferences": [OWNER]},
            "spec": {
                "selector": {"app.kubernetes.io/name": "penstock-broker", "app.kubernetes.io/instance": "main"},
                "ports": [{"name": "amqps", "port": 5671, "targetPort": 5671, "protocol": "TCP"}],
                "publishNotReadyAddresses": True,
            },
        }
    )


def test_in_another_namespace_its_service_is_an_alias() -> None:
    made = exchange(metadata=OURS, brokerRef={"name": "main", "namespace": "infra"})
    of = broker(metadata={"namespace": "infra"}, allowedNamespaces=["shop"], listeners={"amqp": True})
    decision = plan_exchange(view(made, of=of, service=ChildState.UNKNOWN))
    assert isinstance(decision, ApplyChild)
    assert decision.manifest["spec"] == {
        "type": "ExternalName",
        "externalName": "main-amqp.infra.svc.cluster.local",
        "ports": [
            {"name": "amqps", "port": 5671, "targetPort": 5671, "protocol": "TCP"},
            {"name": "amqp", "port": 5672, "targetPort": 5672, "protocol": "TCP"},
        ],
    }


def test_declared_is_ready() -> None:
    decision = plan_exchange(view(reply=BrokerReply(status=201, body={"outcome": "Created", "boundSubscriptions": 4})))
    assert told(decision) == [
        ("Ready", "True", "Ready"),
        ("Accepted", "True", "Accepted"),
        ("Declared", "True", "Declared"),
    ]
    assert isinstance(decision, Report)
    assert decision.details == {
        "exchangeName": "orders",
        "address": "amqps://orders-x.shop.svc:5671/orders",
        "boundSubscriptions": 4,
    }


@pytest.mark.parametrize(
    ("reach", "there", "bound"),
    [
        (Reach.ABSENT, False, None),
        (Reach.DELETING, True, None),
        (Reach.UNREADABLE, False, 4),
        (Reach.UNREACHABLE, True, 4),
        (Reach.STOPPED, True, 4),
    ],
)
def test_how_many_are_bound_is_not_told_of_a_broker_that_is_deleted(
    reach: Reach, there: bool, bound: int | None
) -> None:
    made = view(exchange(metadata=OURS, status={"boundSubscriptions": 4}))
    of = BrokerView(reach=reach, broker=broker() if there else None, problem="It is gone.", is_out=True)
    decision = plan_exchange(replace(made, broker=of))
    assert isinstance(decision, Report)
    assert decision.details.get("boundSubscriptions") == bound


def test_the_address_is_plain_only_without_tls() -> None:
    of = broker(listeners={"amqps": False, "amqp": True})
    decision = plan_exchange(view(of=of, reply=BrokerReply(status=201)))
    assert isinstance(decision, Report)
    assert decision.details["address"] == "amqp://orders-x.shop.svc:5672/orders"


def test_the_address_is_that_of_a_listener_that_is_on() -> None:
    """A Broker for web pages alone has no port 5672."""
    of = broker(listeners={"amqps": False, "webSocket": True})
    decision = plan_exchange(view(of=of, reply=BrokerReply(status=201)))
    assert isinstance(decision, Report)
    assert decision.details["address"] == "amqpwss://orders-x.shop.svc:5443/orders"


def test_a_foreign_service_of_its_name_is_not_touched() -> None:
    decision = plan_exchange(view(service=ChildState.TAKEN))
    assert told(decision) == [
        ("Ready", "False", "NameTaken"),
        ("Accepted", "False", "NameTaken"),
        ("Stalled", "True", "NameTaken"),
    ]


def test_the_service_of_a_predecessor_is_waited_for() -> None:
    decision = plan_exchange(view(service=ChildState.PREDECESSOR))
    assert told(decision) == [("Ready", "False", "PredecessorLeaving"), ("Accepted", "False", "PredecessorLeaving")]
    assert isinstance(decision, Report)
    assert decision.retry is Retry.BACKOFF


def test_a_refusal_is_tried_again() -> None:
    decision = plan_exchange(view(reply=BrokerReply(status=503, reason="StorageFull", description="Full.")))
    assert told(decision)[0] == ("Ready", "False", "StorageFull")
    assert isinstance(decision, Report)
    assert decision.retry is Retry.BACKOFF


def test_the_alternate_has_to_be_there_and_on_the_same_broker() -> None:
    made = exchange(metadata=OURS, unroutable="Alternate", alternateExchangeRef={"name": "rest"})
    assert told(plan_exchange(view(made)))[0] == ("Ready", "False", "ExchangeNotFound")
    elsewhere = exchange(metadata={"name": "rest"}, brokerRef={"name": "other"})
    assert told(plan_exchange(replace(view(made), alternate=elsewhere)))[0] == (
        "Ready",
        "False",
        "ExchangeOnOtherBroker",
    )
    here = exchange(metadata={"name": "rest"}, exchangeName="the rest")
    decision = plan_exchange(replace(view(made), alternate=here))
    assert isinstance(decision, DeclareEntity)
    assert decision.body.to_wire()["alternateExchange"] == "the rest"


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"is_alternate_unreadable": True}, ("Ready", "False", "ReferenceUnreadable")),
        ({"alternate": REST, "alternate_winner": IN_SPY}, ("Ready", "False", "NamespaceNotAllowed")),
        ({"alternate": REST, "is_alternate_held_elsewhere": True}, ("Ready", "False", "NamespaceNotAllowed")),
        ({"alternate": REST, "alternate_winner": REST}, None),
        ({"alternate": REST, "alternate_winner": exchange(metadata={"name": "older"})}, None),
    ],
    ids=[
        "unreadable",
        "another-namespace-has-it",
        "nobody-seen-has-it",
        "it-is-its-own",
        "one-of-the-namespace-has-it",
    ],
)
def test_the_alternate_has_to_be_readable_and_of_this_namespace(
    known: dict[str, Any], expected: tuple[str, str, str] | None
) -> None:
    made = exchange(metadata=OURS, unroutable="Alternate", alternateExchangeRef={"name": "rest"})
    decision = plan_exchange(replace(view(made), **known))
    assert isinstance(decision, DeclareEntity) if expected is None else told(decision)[0] == expected


def test_a_broker_that_does_not_know_what_is_asked_is_not_asked_for_it() -> None:
    old = BrokerView(reach=Reach.CONNECTED, broker=broker(), version="0.1.0", understands=frozenset({"exchange.owner"}))
    decision = plan_exchange(replace(view(), broker=old))
    assert told(decision)[0] == ("Ready", "False", "BrokerTooOld")
    assert ("Declared", "False", "BrokerTooOld") in told(decision)


def test_a_refusal_that_time_does_not_mend_is_not_asked_for_in_a_loop() -> None:
    reply = BrokerReply(status=400, reason="InvalidRequest", description="retention: no such key.")
    decision = plan_exchange(view(reply=reply))
    assert isinstance(decision, Report)
    assert decision.retry is Retry.RESYNC


@pytest.mark.parametrize(
    ("reach", "expected"),
    [
        (Reach.STOPPED, ("Ready", "False", "BrokerStopped")),
        (Reach.NOT_ASKED, ("Ready", "Unknown", "BrokerNotAsked")),
        (Reach.UNREACHABLE, ("Ready", "Unknown", "BrokerUnreachable")),
    ],
)
def test_without_the_broker_it_is_not_declared(reach: Reach, expected: tuple[str, str, str]) -> None:
    assert told(plan_exchange(view(reach=reach)))[0] == expected


def test_a_broker_that_is_being_deleted_gets_nothing_any_more() -> None:
    decision = plan_exchange(view(reach=Reach.DELETING))
    assert told(decision) == [("Ready", "False", "BrokerDeleting"), ("Accepted", "False", "BrokerDeleting")]


def test_a_duplicate_waits_for_the_older_one() -> None:
    older = exchange(metadata={"name": "first", "uid": "uid-first", "namespace": "secret"})
    decision = plan_exchange(replace(view(), winner=older))
    assert told(decision)[0] == ("Ready", "False", "DuplicateExchange")
    assert isinstance(decision, Report)
    assert "secret" not in decision.conditions[0].message


def test_a_deleted_one_waits_for_its_subscriptions() -> None:
    made = exchange(metadata={**OURS, "deletionTimestamp": NOW.isoformat()})
    decision = plan_exchange(view(made, reply=BrokerReply(status=409, reason="BindingsExist")))
    assert ("DeletionBlocked", "True", "BindingsExist") in told(decision)
