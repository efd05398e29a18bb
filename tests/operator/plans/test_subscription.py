"""The plan for a Subscription: from a view to a decision. Each outcome has its conditions, typed by hand."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.resources import NOW, broker, exchange, subscription

from penstock_api import release_terms
from penstock_api.management import EntityType
from penstock_api.observer_tokens import scale_token
from penstock_api.resources import Broker, Exchange, Subscription
from penstock_core.reason import Reason as BrokerReason
from penstock_operator.children import scale_secret
from penstock_operator.children.scale_secret import ScaleAccess
from penstock_operator.plans.decisions import (
    AddFinalizer,
    ApplyChild,
    BrokerReply,
    BrokerView,
    ChildState,
    DeclareEntity,
    DeleteEntity,
    Reach,
    RemoveFinalizer,
    Report,
    Retry,
)
from penstock_operator.plans.subscription import SubscriptionView, plan_subscription

OURS = {"finalizers": ["penstock.dev/topology"]}
DECLARED: dict[str, Any] = {
    "outcome": "Created",
    "exchange": "orders",
    "bindingKeys": ["#"],
    "expiryPolicy": "Never",
    "sharing": "Shared",
}
DETAILS = {
    "subscriptionName": "billing",
    "queueName": "psub:durable:global:billing",
    "address": "amqps://orders-x.shop.svc:5671/orders",
}


KNOWN = frozenset(release_terms.vocabulary())


def view(
    made: Subscription | None = None,
    *,
    of: Broker | None = None,
    to: Exchange | None = None,
    reach: Reach = Reach.CONNECTED,
    reply: BrokerReply | None = None,
    winner: Subscription | None = None,
) -> SubscriptionView:
    made = made or subscription(metadata=OURS)
    return SubscriptionView(
        resource=made,
        broker=BrokerView(reach=reach, broker=of or broker(), problem="It does not answer."),
        exchange=to or exchange(),
        winner=winner or made,
        cluster_id="c1",
        now=NOW,
        reply=reply,
    )


def told(decision: object) -> list[tuple[str, str, str]]:
    """The conditions of a report, without their messages."""
    assert isinstance(decision, Report)
    return [(condition.type, condition.status.value, str(condition.reason)) for condition in decision.conditions]


def test_the_finalizer_comes_before_the_declaration() -> None:
    assert plan_subscription(view(subscription())) == AddFinalizer()


ACCESS = ScaleAccess(key=b"a-key", ca=b"the CA")


def scaled(state: ChildState = ChildState.UNKNOWN, *, key: bool = True, success: bool = True) -> object:
    """The decision for a declared Subscription that asks for its token."""
    made = subscription(metadata={**OURS, "annotations": {"penstock.dev/scale-token": "true"}, "uid": "u"})
    reply = BrokerReply(status=201, body=DECLARED) if success else BrokerReply(status=503)
    return plan_subscription(
        replace(view(made, reply=reply), scale=ACCESS if key else None, scale_secret=state),
    )


def test_a_subscription_that_asks_for_it_gets_a_secret_with_its_token() -> None:
    decision = scaled()
    assert isinstance(decision, ApplyChild)
    metadata: Any = decision.manifest["metadata"]
    assert (metadata["namespace"], metadata["name"]) == ("shop", "billing-scale")
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "penstock.dev/v1alpha1",
            "kind": "Subscription",
            "name": "billing",
            "uid": "u",
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]
    data: Any = decision.manifest["data"]
    assert {key: base64.b64decode(value).decode() for key, value in data.items()} == {
        "token": scale_token(b"a-key", "shop", "psub:durable:global:billing"),
        "ca.crt": "the CA",
        "url": "https://main-observer.shop.svc:8080/v1/subscriptions/psub:durable:global:billing/scale",
    }


@pytest.mark.parametrize(
    ("state", "key", "says"),
    [
        (ChildState.APPLIED, True, ("ScaleToken", "True", "Written")),
        (ChildState.TAKEN, True, ("ScaleToken", "False", "NameTaken")),
        (ChildState.PREDECESSOR, True, ("ScaleToken", "False", "PredecessorLeaving")),
        (ChildState.UNKNOWN, False, ("ScaleToken", "Unknown", "Pending")),
    ],
)
def test_the_condition_says_whether_the_secret_is_there(
    state: ChildState, key: bool, says: tuple[str, str, str]
) -> None:
    decision = scaled(state, key=key)
    assert isinstance(decision, Report)
    found = told(decision)
    assert found[-1] == says
    assert found[0] == ("Ready", "True", "Ready")
    assert decision.retry is (Retry.RESYNC if state is ChildState.APPLIED else Retry.BACKOFF)


def test_no_token_before_the_broker_has_the_subscription_and_none_unasked() -> None:
    decision = scaled(success=False)
    assert isinstance(decision, Report)
    assert "ScaleToken" not in [kind for kind, _, _ in told(decision)]
    unasked = plan_subscription(replace(view(reply=BrokerReply(status=201, body=DECLARED)), scale=ACCESS))
    assert isinstance(unasked, Report)


def test_the_name_of_the_secret_is_never_too_long() -> None:
    long = subscription(metadata={"name": "a" * 247})
    longer = subscription(metadata={"name": "a" * 248})
    assert scale_secret.secret_name(long) == "a" * 247 + "-scale"
    assert scale_secret.secret_name(longer) == "a" * 236 + "-fdff3ab023-scale"
    assert len(scale_secret.secret_name(longer)) == 253


def test_then_it_is_declared() -> None:
    decision = plan_subscription(view())
    assert isinstance(decision, DeclareEntity)
    assert (decision.entity, decision.name) == (EntityType.SUBSCRIPTION, None)
    assert decision.body.to_wire()["exchange"] == "orders"


def test_an_exchange_is_declared_by_its_name_on_the_broker() -> None:
    decision = plan_subscription(view(to=exchange(exchangeName="Orders EU")))
    assert isinstance(decision, DeclareEntity)
    assert decision.body.to_wire()["exchange"] == "Orders EU"


@pytest.mark.parametrize(
    ("annotation", "adoption"),
    [("OtherCluster", "OtherCluster"), ("Orphans", "Orphans"), ("everything", None), (None, None)],
)
def test_the_broker_says_what_its_subscriptions_may_take_over(annotation: str | None, adoption: str | None) -> None:
    annotations = {} if annotation is None else {"penstock.dev/adoption": annotation}
    decision = plan_subscription(view(of=broker(metadata={"annotations": annotations})))
    assert isinstance(decision, DeclareEntity)
    assert decision.body.to_wire().get("adoption") == adoption


def test_declared_is_ready() -> None:
    decision = plan_subscription(view(reply=BrokerReply(status=201, body=DECLARED)))
    assert told(decision) == [
        ("Ready", "True", "Ready"),
        ("Accepted", "True", "Accepted"),
        ("Bound", "True", "Declared"),
        ("Matched", "True", "InSync"),
    ]
    assert isinstance(decision, Report)
    assert decision.details == {
        **DETAILS,
        "applied": {"exchange": "orders", "bindingKeys": ["#"], "expiryPolicy": "Never", "sharing": "Shared"},
    }
    assert decision.retry is Retry.RESYNC


def test_header_bindings_that_hold_are_shown() -> None:
    body = {**DECLARED, "bindingKeys": [], "headerBindings": [{"match": "All", "headers": {"region": "eu"}}]}
    decision = plan_subscription(view(reply=BrokerReply(status=200, body=body)))
    assert isinstance(decision, Report)
    assert decision.details["applied"] == {
        "exchange": "orders",
        "bindingKeys": [],
        "headerBindings": ["All: region = 'eu'"],
        "expiryPolicy": "Never",
        "sharing": "Shared",
    }


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [("Unchanged", "Declared"), ("Updated", "Declared"), ("Rebound", "Rebound"), ("Adopted", "Adopted")],
)
def test_the_outcome_is_the_reason_of_bound(outcome: str, reason: str) -> None:
    decision = plan_subscription(view(reply=BrokerReply(status=200, body={**DECLARED, "outcome": outcome})))
    assert ("Bound", "True", reason) in told(decision)
    assert ("Ready", "True", "Ready") in told(decision)


def test_a_blocked_rebind_is_bound_but_not_ready_and_is_tried_again() -> None:
    body = {**DECLARED, "outcome": "RebindBlocked", "blockedBy": "ConsumersActive"}
    decision = plan_subscription(view(reply=BrokerReply(status=200, body=body)))
    assert told(decision) == [
        ("Ready", "False", "RebindBlocked"),
        ("Accepted", "True", "Accepted"),
        ("Bound", "True", "Declared"),
        ("Matched", "False", "RebindBlocked"),
    ]
    assert isinstance(decision, Report)
    assert "ConsumersActive" in decision.conditions[0].message
    assert decision.retry is Retry.BACKOFF


def test_another_lifetime_than_asked_is_told_but_it_works() -> None:
    made = subscription(metadata=OURS, durability="NonDurable", expiryPolicy="SessionEnd")
    decision = plan_subscription(
        view(made, reply=BrokerReply(status=200, body={**DECLARED, "expiryPolicy": "LinkDetach"}))
    )
    assert told(decision) == [
        ("Ready", "True", "Ready"),
        ("Accepted", "True", "Accepted"),
        ("Bound", "True", "Declared"),
        ("Matched", "False", "SourceModified"),
    ]


@pytest.mark.parametrize("reason", list(BrokerReason), ids=lambda reason: reason.value)
def test_every_refusal_of_the_broker_is_the_reason_of_bound_and_ready(reason: BrokerReason) -> None:
    refused = BrokerReply(
        status=409, condition=reason.condition.value, reason=reason.value, description="Because. Do this."
    )
    broker_view = BrokerView(reach=Reach.CONNECTED, broker=broker(), understands=KNOWN)
    decision = plan_subscription(replace(view(reply=refused), broker=broker_view))
    assert told(decision)[0] == ("Ready", "False", reason.value)
    assert ("Bound", "False", reason.value) in told(decision)
    assert isinstance(decision, Report)
    assert decision.conditions[0].message == f"The broker refused with {reason.condition.value}: Because. Do this."


def test_a_broker_that_does_not_tell_what_it_knows_is_too_old_for_what_it_calls_invalid() -> None:
    reply = BrokerReply(
        status=400, condition="amqp:invalid-field", reason="InvalidRequest", description="x: no such field."
    )
    decision = plan_subscription(view(reply=reply))
    assert told(decision) == [
        ("Ready", "False", "BrokerTooOld"),
        ("Accepted", "True", "Accepted"),
        ("Bound", "False", "BrokerTooOld"),
        ("Stalled", "True", "BrokerTooOld"),
    ]
    assert isinstance(decision, Report)
    assert decision.conditions[0].message == (
        "The broker refused with amqp:invalid-field: x: no such field. The broker is of an earlier release (version "
        "unknown): upgrade it by `spec.image` of Broker main, or leave out what it refused; until then it keeps "
        "what it has."
    )


def test_a_broker_that_this_operator_does_not_understand_needs_another_operator() -> None:
    assert told(plan_subscription(view(reach=Reach.NOT_UNDERSTOOD))) == [
        ("Ready", "Unknown", "OperatorTooOld"),
        ("Accepted", "True", "Accepted"),
        ("Bound", "Unknown", "OperatorTooOld"),
        ("Stalled", "True", "OperatorTooOld"),
    ]


@pytest.mark.parametrize(
    ("reason", "stalled"),
    [
        ("ExclusivityMismatch", True),
        ("InvalidSelector", True),
        ("InvalidBindingKey", True),
        ("Managed", True),
        ("ExchangeNotFound", False),
        ("StorageFull", False),
        ("InternalError", False),
    ],
)
def test_stalled_only_if_a_person_must_act(reason: str, stalled: bool) -> None:
    decision = plan_subscription(view(reply=BrokerReply(status=400, reason=reason)))
    assert (("Stalled", "True", reason) in told(decision)) is stalled


@pytest.mark.parametrize("reason", [None, "", "not camel case", "Ü"])
def test_a_refusal_without_a_usable_reason_is_refused(reason: str | None) -> None:
    assert told(plan_subscription(view(reply=BrokerReply(status=500, reason=reason))))[0] == (
        "Ready",
        "False",
        "Refused",
    )


@pytest.mark.parametrize(
    ("reach", "condition"),
    [
        (Reach.NOT_ASKED, ("Bound", "Unknown", "BrokerNotAsked")),
        (Reach.UNREACHABLE, ("Bound", "Unknown", "BrokerUnreachable")),
        (Reach.STOPPED, ("Bound", "False", "BrokerStopped")),
    ],
)
def test_without_the_broker_it_is_not_bound(reach: Reach, condition: tuple[str, str, str]) -> None:
    decision = plan_subscription(view(reach=reach))
    assert condition in told(decision)
    assert told(decision)[0] == ("Ready", *condition[1:])
    assert not any(kind == "Stalled" for kind, _, _ in told(decision))


def test_a_broker_that_is_being_deleted_gets_nothing_any_more() -> None:
    decision = plan_subscription(view(reach=Reach.DELETING))
    assert told(decision) == [("Ready", "False", "BrokerDeleting"), ("Accepted", "False", "BrokerDeleting")]
    assert isinstance(decision, Report)
    assert decision.retry is Retry.RESYNC
    assert decision.conditions[0].message == (
        "Broker main is being deleted, so nothing is declared on it any more; what it has goes with it. This resource "
        "is declared when there is a Broker of this name again."
    )


def test_whether_a_broker_that_may_not_be_used_is_being_deleted_is_not_told() -> None:
    made = replace(away([], ["*"]), broker=BrokerView(reach=Reach.DELETING, broker=broker(metadata=INFRA_BROKER)))
    assert told(plan_subscription(made))[0] == ("Ready", "False", "NamespaceNotAllowed")


def test_a_missing_broker_in_the_same_namespace() -> None:
    absent = replace(view(), broker=BrokerView(reach=Reach.ABSENT))
    assert told(plan_subscription(absent)) == [
        ("Ready", "False", "BrokerNotFound"),
        ("Accepted", "False", "BrokerNotFound"),
    ]


def test_a_missing_exchange_in_the_same_namespace() -> None:
    missing = replace(view(), exchange=None)
    assert told(plan_subscription(missing)) == [
        ("Ready", "False", "ExchangeNotFound"),
        ("Accepted", "False", "ExchangeNotFound"),
    ]


def test_an_exchange_of_another_broker() -> None:
    decision = plan_subscription(view(to=exchange(brokerRef={"name": "other"})))
    assert told(decision)[0] == ("Ready", "False", "ExchangeOnOtherBroker")
    assert ("Stalled", "True", "ExchangeOnOtherBroker") in told(decision)


AWAY = subscription(
    metadata=OURS,
    brokerRef={"name": "main", "namespace": "infra"},
    exchangeRef={"name": "orders", "namespace": "infra"},
)
INFRA_BROKER = {"namespace": "infra"}


def away(allowed_by_broker: list[str], allowed_by_exchange: list[str]) -> SubscriptionView:
    of = broker(metadata={"namespace": "infra"}, allowedNamespaces=allowed_by_broker)
    to = exchange(metadata={"namespace": "infra"}, allowedNamespaces=allowed_by_exchange)
    return view(AWAY, of=of, to=to)


@pytest.mark.parametrize(
    ("by_broker", "by_exchange", "allowed"),
    [
        (["shop"], ["shop"], True),
        (["*"], ["shop"], True),
        (["*"], ["*"], True),
        (["shop"], [], False),
        ([], ["shop"], False),
        (["other"], ["*"], False),
        ([], [], False),
    ],
)
def test_another_namespace_needs_the_leave_of_both(by_broker: list[str], by_exchange: list[str], allowed: bool) -> None:
    decision = plan_subscription(away(by_broker, by_exchange))
    assert isinstance(decision, DeclareEntity) is allowed
    if not allowed:
        assert told(decision)[0] == ("Ready", "False", "NamespaceNotAllowed")


def test_what_is_not_there_and_what_is_not_allowed_read_the_same() -> None:
    forbidden = plan_subscription(away([], []))
    absent = plan_subscription(replace(away([], []), broker=BrokerView(reach=Reach.ABSENT)))
    assert isinstance(forbidden, Report)
    assert isinstance(absent, Report)
    assert forbidden.conditions == absent.conditions
    assert "address" not in forbidden.details


def test_the_older_of_two_wins_and_is_named_in_its_own_namespace() -> None:
    older = subscription(metadata={"name": "first", "uid": "uid-first"})
    decision = plan_subscription(view(winner=older))
    assert told(decision)[0] == ("Ready", "False", "DuplicateSubscription")
    assert isinstance(decision, Report)
    assert decision.conditions[0].message.startswith("Subscription first is older")


def test_the_older_of_two_is_not_named_across_namespaces() -> None:
    older = subscription(metadata={"name": "first", "uid": "uid-first", "namespace": "secret"})
    decision = plan_subscription(view(winner=older))
    assert isinstance(decision, Report)
    assert "secret" not in decision.conditions[0].message
    assert "first" not in decision.conditions[0].message


@pytest.mark.parametrize(
    ("seen", "ready"),
    [
        pytest.param(3, [("Ready", "True", "Ready"), ("Accepted", "True", "Accepted")], id="unchanged"),
        pytest.param(
            2,
            [("Ready", "Unknown", "PausedByAnnotation"), ("Accepted", "Unknown", "PausedByAnnotation")],
            id="its-spec-was-changed",
        ),
    ],
)
def test_paused_changes_nothing_on_the_broker_and_keeps_what_was_said(
    seen: int, ready: list[tuple[str, str, str]]
) -> None:
    before: dict[str, Any] = {
        "observedGeneration": seen,
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for kind, reason in (
                ("Ready", "Ready"),
                ("Accepted", "Accepted"),
                ("Bound", "Declared"),
                ("Lagging", "Stalled"),
                ("LagFresh", "Current"),
            )
        ],
    }
    paused = subscription(before, metadata={**OURS, "annotations": {"penstock.dev/paused": "true"}})
    expected = [*ready, ("Bound", "True", "Declared"), ("ReconciliationPaused", "True", "PausedByAnnotation")]
    assert told(plan_subscription(view(paused))) == expected
    # So does the next report, which finds the condition of the first one.
    since = "2026-01-01T00:00:00Z"
    said = [dict(zip(("type", "status", "reason"), one, strict=True), lastTransitionTime=since) for one in expected]
    again = subscription({"observedGeneration": 3, "conditions": said}, metadata=paused.metadata.model_dump())
    assert told(plan_subscription(view(again))) == expected


def test_a_deleted_one_without_our_finalizer_is_left_alone() -> None:
    made = subscription(metadata={"deletionTimestamp": NOW.isoformat(), "finalizers": ["other/one"]})
    assert isinstance(plan_subscription(view(made)), RemoveFinalizer)


def test_a_deleted_one_is_undeclared_by_its_queue_name() -> None:
    since = (NOW - timedelta(seconds=1)).isoformat()
    made = subscription(metadata={**OURS, "deletionTimestamp": since})
    assert plan_subscription(view(made)) == DeleteEntity(
        entity=EntityType.SUBSCRIPTION,
        name="psub:durable:global:billing",
        if_unused=True,
        if_empty=False,
        owner_uid="uid-billing",
    )


def test_a_broker_that_does_not_know_what_is_asked_is_not_asked_for_it() -> None:
    knows = frozenset(release_terms.vocabulary()) - {"subscription.delivery.maxTtlMs"}
    old = BrokerView(reach=Reach.CONNECTED, broker=broker(), version="0.1.0", understands=knows)
    made = subscription(metadata=OURS, delivery={"maxTtlSeconds": 60})
    decision = plan_subscription(replace(view(made), broker=old))
    assert told(decision) == [
        ("Ready", "False", "BrokerTooOld"),
        ("Accepted", "True", "Accepted"),
        ("Bound", "False", "BrokerTooOld"),
        ("Stalled", "True", "BrokerTooOld"),
    ]
    assert isinstance(decision, Report)
    assert decision.retry is Retry.RESYNC
    assert decision.conditions[0].message == (
        "The broker, version 0.1.0, does not know `subscription.delivery.maxTtlMs`. Upgrade it by `spec.image` of "
        "Broker main, or leave out what it does not know; until then it keeps what it has."
    )
    assert isinstance(plan_subscription(replace(view(), broker=old)), DeclareEntity), (
        "what uses nothing new is declared"
    )
    new = replace(old, understands=knows | {"subscription.delivery.maxTtlMs"})
    assert isinstance(plan_subscription(replace(view(made), broker=new)), DeclareEntity)
