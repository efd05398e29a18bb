"""The plan for a Queue: from a view to a decision. Each outcome has its conditions, typed by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.resources import NOW, broker, queue

from penstock_api import release_terms
from penstock_api.management import EntityType
from penstock_api.resources import Broker, Queue
from penstock_operator.children.scale_secret import ScaleAccess
from penstock_operator.plans.decisions import (
    AddFinalizer,
    ApplyChild,
    BrokerReply,
    BrokerView,
    ChildState,
    DeclareEntity,
    DeleteEntity,
    KeepStatus,
    Reach,
    RemoveFinalizer,
    Report,
    Retry,
)
from penstock_operator.plans.queue import QueueView, plan_queue

OURS = {"finalizers": ["penstock.dev/topology"]}
CREATED = BrokerReply(status=201, body={"outcome": "Created", "name": "invoices", "revision": 4})
DETAILS = {"queueName": "invoices", "address": "amqps://main-amqp.shop.svc:5671/invoices"}
AWAY = {"namespace": "team", "uid": "t", **OURS}


def view(
    made: Queue | None = None,
    *,
    of: Broker | None = None,
    reach: Reach = Reach.CONNECTED,
    reply: BrokerReply | None = None,
    winner: Queue | None = None,
) -> QueueView:
    made = made or queue(metadata=OURS)
    return QueueView(
        resource=made,
        broker=BrokerView(reach=reach, broker=of or broker(), problem="It does not answer."),
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
    assert plan_queue(view(queue())) == AddFinalizer()


def test_it_is_declared_by_its_name_with_its_owner() -> None:
    decision = plan_queue(view(queue(metadata=OURS, queueName="shop.invoices", limits={"maxMessages": 5})))
    assert isinstance(decision, DeclareEntity)
    assert (decision.entity, decision.name) == (EntityType.QUEUE, "shop.invoices")
    owner = {"clusterId": "c1", "kind": "Queue", "namespace": "shop", "name": "invoices", "uid": "uid-invoices"}
    limits = {"maxMessages": 5, "overflow": "Reject"}
    assert decision.body.to_wire() == {"persistence": "Always", "limits": limits, "owner": owner}


@pytest.mark.parametrize(("outcome", "reason"), [("Created", "Declared"), ("Adopted", "Adopted")])
def test_what_the_broker_has_is_ready(outcome: str, reason: str) -> None:
    decision = plan_queue(view(reply=BrokerReply(status=200, body={"outcome": outcome})))
    assert told(decision) == [
        ("Ready", "True", "Ready"),
        ("Accepted", "True", "Accepted"),
        ("Declared", "True", reason),
    ]
    assert isinstance(decision, Report)
    assert (decision.details, decision.retry) == (DETAILS, Retry.RESYNC)


@pytest.mark.parametrize(
    ("reply", "reason", "stalled", "retry"),
    [
        (BrokerReply(status=409, reason="Managed"), "Managed", True, Retry.RESYNC),
        (BrokerReply(status=409, reason="DuplicateSubscription"), "DuplicateSubscription", True, Retry.RESYNC),
        (BrokerReply(status=409, reason="Immutable"), "Immutable", True, Retry.RESYNC),
        (BrokerReply(status=503, reason="StorageFull"), "StorageFull", False, Retry.BACKOFF),
        (BrokerReply(status=400, reason="InvalidRequest"), "BrokerTooOld", True, Retry.RESYNC),
    ],
)
def test_a_refusal_is_a_condition(reply: BrokerReply, reason: str, stalled: bool, retry: Retry) -> None:
    decision = plan_queue(view(reply=reply))
    last = [("Stalled", "True", reason)] if stalled else []
    assert told(decision) == [
        ("Ready", "False", reason),
        ("Accepted", "True", "Accepted"),
        ("Declared", "False", reason),
        *last,
    ]
    assert isinstance(decision, Report)
    assert decision.retry is retry


def test_a_broker_that_knows_no_marks_of_queues_is_not_asked() -> None:
    before = frozenset(release_terms.vocabulary()) - {"queue.owner"}
    old = view()
    decision = plan_queue(replace(old, broker=replace(old.broker, understands=before, version="0.1.0")))
    assert told(decision)[-1] == ("Stalled", "True", "BrokerTooOld")
    assert isinstance(decision, Report)
    assert "`queue.owner`" in decision.conditions[0].message


def test_a_younger_twin_is_told_who_has_the_name() -> None:
    winner = queue(metadata={"name": "bills", "uid": "older"}, queueName="invoices")
    decision = plan_queue(view(winner=winner))
    assert told(decision) == [
        ("Ready", "False", "DuplicateQueue"),
        ("Accepted", "False", "DuplicateQueue"),
        ("Stalled", "True", "DuplicateQueue"),
    ]
    assert isinstance(decision, Report)
    assert decision.conditions[0].message == (
        "Queue bills is older and already declares 'invoices' on Broker main. Choose another `queueName`, or delete "
        "one of the two."
    )


def test_a_namespace_that_the_broker_does_not_allow_sees_no_address() -> None:
    made = queue(metadata=AWAY, brokerRef={"name": "main", "namespace": "shop"})
    refused = plan_queue(view(made))
    assert told(refused)[1:] == [
        ("Accepted", "False", "NamespaceNotAllowed"),
        ("Stalled", "True", "NamespaceNotAllowed"),
    ]
    assert isinstance(refused, Report)
    assert refused.details == {"queueName": "invoices"}
    assert isinstance(plan_queue(view(made, of=broker(allowedNamespaces=["team"]))), DeclareEntity)


@pytest.mark.parametrize(
    ("reach", "status", "reason"),
    [
        (Reach.STOPPED, "False", "BrokerStopped"),
        (Reach.NOT_ASKED, "Unknown", "BrokerNotAsked"),
        (Reach.UNREACHABLE, "Unknown", "BrokerUnreachable"),
        (Reach.NOT_UNDERSTOOD, "Unknown", "OperatorTooOld"),
    ],
)
def test_while_the_broker_is_away_a_new_one_says_so(reach: Reach, status: str, reason: str) -> None:
    assert told(plan_queue(view(reach=reach)))[2] == ("Declared", status, reason)


def test_a_broker_that_is_being_deleted_gets_nothing_any_more() -> None:
    decision = plan_queue(view(reach=Reach.DELETING))
    assert told(decision) == [("Ready", "False", "BrokerDeleting"), ("Accepted", "False", "BrokerDeleting")]


def test_a_short_outage_does_not_change_what_is_said() -> None:
    """The conditions stay until the outage has lasted for two minutes."""
    at = "2026-03-01T11:00:00Z"
    declared = {"type": "Declared", "status": "True", "reason": "Declared", "lastTransitionTime": at}
    shown = {"observedGeneration": 3, "conditions": [{**declared, "observedGeneration": 3}]}
    away = view(queue(status=shown, metadata=OURS), reach=Reach.UNREACHABLE)
    assert plan_queue(away) == KeepStatus()
    over = replace(away, broker=replace(away.broker, is_out=True))
    assert told(plan_queue(over))[0] == ("Ready", "Unknown", "BrokerUnreachable")


WAITS_FOR_THE_PAUSE = [
    ("Ready", "Unknown", "PausedByAnnotation"),
    ("Accepted", "Unknown", "PausedByAnnotation"),
    ("ReconciliationPaused", "True", "PausedByAnnotation"),
]


def test_one_that_was_made_paused_is_not_declared_and_not_ready() -> None:
    paused = {**OURS, "annotations": {"penstock.dev/paused": "true"}}
    assert told(plan_queue(view(queue(metadata=paused)))) == WAITS_FOR_THE_PAUSE


def test_one_that_was_changed_while_it_is_paused_stays_not_ready() -> None:
    """The first report of the change has observed its generation."""
    at = "2026-03-01T11:00:00Z"
    said = {"type": "Accepted", "status": "Unknown", "reason": "PausedByAnnotation", "lastTransitionTime": at}
    stalled = {"type": "Stalled", "status": "True", "reason": "DuplicateQueue", "lastTransitionTime": at}
    paused = {**OURS, "annotations": {"penstock.dev/paused": "true"}}
    shown = {"observedGeneration": 3, "conditions": [said, stalled]}
    assert told(plan_queue(view(queue(status=shown, metadata=paused)))) == WAITS_FOR_THE_PAUSE


def deleted(**spec: Any) -> Queue:
    moment = (NOW - timedelta(seconds=1)).isoformat()
    return queue(metadata={**OURS, "deletionTimestamp": moment}, **spec)


@pytest.mark.parametrize(("policy", "if_empty"), [("Delete", False), ("DeleteWhenEmpty", True)])
def test_the_broker_is_asked_to_delete_it_if_nobody_consumes(policy: str, if_empty: bool) -> None:
    assert plan_queue(view(deleted(deletionPolicy=policy))) == DeleteEntity(
        entity=EntityType.QUEUE, name="invoices", if_unused=True, if_empty=if_empty, owner_uid="uid-invoices"
    )


def test_a_deletion_waits_for_consumers_and_says_what_is_lost_without_waiting() -> None:
    busy = BrokerReply(status=409, reason="ConsumersActive", body={"containers": ["till-1"]})
    decision = plan_queue(view(deleted(), reply=busy))
    assert told(decision) == [("Ready", "False", "ConsumersActive"), ("DeletionBlocked", "True", "ConsumersActive")]
    assert isinstance(decision, Report)
    assert "till-1" in decision.conditions[0].message
    assert "lose the messages" in decision.conditions[0].message
    assert decision.details == DETAILS


def test_what_is_kept_is_not_asked_for() -> None:
    assert isinstance(plan_queue(view(deleted(deletionPolicy="Retain"))), RemoveFinalizer)
    assert isinstance(plan_queue(view(deleted(), reach=Reach.ABSENT)), RemoveFinalizer)


def scaled(state: ChildState) -> object:
    made = queue(metadata={**OURS, "annotations": {"penstock.dev/scale-token": "true"}})
    return plan_queue(replace(view(made, reply=CREATED), scale=ScaleAccess(b"a-key", b"the CA"), scale_secret=state))


def test_one_that_asks_for_a_token_gets_a_secret_of_its_own_name() -> None:
    decision = scaled(ChildState.UNKNOWN)
    assert isinstance(decision, ApplyChild)
    metadata: Any = decision.manifest["metadata"]
    assert (metadata["name"], metadata["ownerReferences"][0]["kind"]) == ("invoices-queue-scale", "Queue")
    assert told(scaled(ChildState.APPLIED))[-1] == ("ScaleToken", "True", "Written")
    taken = scaled(ChildState.TAKEN)
    assert told(taken)[0] == ("Ready", "True", "Ready")
    assert told(taken)[-1] == ("ScaleToken", "False", "NameTaken")
