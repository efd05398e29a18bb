"""Objects of each state that our resources can have, as the plans report them, and what GitOps tools have to make of
them, typed by hand.
"""

from __future__ import annotations

import copy
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.resources import NOW, broker, broker_state, exchange, manifest_of, subscription

from penstock_api.resources import parse
from penstock_api.resources.base import PENDING_STATUS
from penstock_operator.children.stateful_set import PinnedPods
from penstock_operator.plans import broker_report
from penstock_operator.plans import exchange as exchange_plan
from penstock_operator.plans import subscription as subscription_plan
from penstock_operator.plans.broker_view import BrokerReportView
from penstock_operator.plans.conditions import ConditionReason
from penstock_operator.plans.decisions import BrokerReply, BrokerView, ChildState, Reach, Report
from penstock_operator.plans.exchange import ExchangeView
from penstock_operator.plans.lag_service import LagService
from penstock_operator.plans.subscription import SubscriptionView
from penstock_operator.reconcile import status

__all__ = ["EVERY", "SCRIPT", "Seen", "argo_health"]

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "gitops.md").read_text()
(BLOCK,) = re.findall(r"resource\.customizations\.health\.penstock\.dev_Subscription: \|\n(.*?)```", PAGE, re.DOTALL)
SCRIPT = textwrap.dedent(BLOCK)

OURS: dict[str, Any] = {"finalizers": ["penstock.dev/topology"]}
DELETING = {**OURS, "deletionTimestamp": "2026-03-01T11:59:55Z"}
PAUSED = {**OURS, "annotations": {"penstock.dev/paused": "true"}}
DECLARED = BrokerReply(status=200, body={"outcome": "Created", "expiryPolicy": "Never"})


def argo_health(manifest: Any, returned: Mapping[str, str]) -> tuple[str, str]:
    """Health and message of an object for Argo CD, from what the script has returned.

    Source: Argo CD 3.6, "Resource Health", "Terminating resources". Earlier releases do not run the script for an
    object that is being deleted.
    """
    metadata = manifest["metadata"]
    if "deletionTimestamp" not in metadata:
        return returned["status"], returned.get("message", "")
    if "deletionMessage" in returned:
        return returned["status"], returned["deletionMessage"]
    finalizers = metadata.get("finalizers", [])
    blocked = f"; blocked by finalizers: {', '.join(finalizers)}" if finalizers else ""
    return "Progressing", f"Pending deletion{blocked}"


def reported(kind: str, report: object, metadata: dict[str, Any], before: Any = None) -> Any:
    """The object after the report was written to its status."""
    assert isinstance(report, Report)
    manifest = manifest_of(kind, {}, before, metadata)
    resource = parse(manifest)
    manifest["status"] = status.wanted(resource, report, NOW)
    return manifest


def subscribed(
    reach: Reach = Reach.CONNECTED,
    reply: BrokerReply | None = DECLARED,
    metadata: dict[str, Any] = OURS,
    before: Any = None,
) -> Any:
    made = subscription(before, metadata=metadata)
    view = SubscriptionView(
        resource=made,
        broker=BrokerView(reach=reach, broker=broker(), problem="It does not answer."),
        exchange=exchange(),
        winner=made,
        cluster_id="c1",
        now=NOW,
        reply=reply,
    )
    return reported("Subscription", subscription_plan.plan_subscription(view), metadata, before)


def exchanged(reach: Reach = Reach.CONNECTED, child: ChildState = ChildState.APPLIED) -> Any:
    made = exchange(metadata=OURS)
    view = ExchangeView(
        resource=made,
        broker=BrokerView(reach=reach, broker=broker(), problem="It does not answer."),
        alternate=None,
        winner=made,
        cluster_id="c1",
        cluster_domain="cluster.local",
        now=NOW,
        service=child,
        reply=DECLARED,
    )
    return reported("Exchange", exchange_plan.plan_exchange(view), OURS)


STATE = broker_state()
POD: Any = {"metadata": {"name": "main-0"}, "status": {"containerStatuses": [{"name": "broker", "ready": True}]}}


def brokered(replicas: int = 1, pod: Any = POD, **changes: Any) -> Any:
    view = BrokerReportView(
        broker=broker(replicas=replicas),
        pinned=PinnedPods("i", "i", 1),
        default_image="i",
        reach=Reach.CONNECTED,
        state=STATE,
        pod=pod,
        lag_service=LagService(off=(ConditionReason.DISABLED, "the test has no lag job")),
        exchanges=0,
        subscriptions=0,
        now=NOW,
    )
    return reported("Broker", broker_report.report_broker(replace(view, **changes)), {})


def unseen(kind: str) -> Any:
    return manifest_of(kind, {}, copy.deepcopy(PENDING_STATUS), {})


def edited(manifest: Any) -> Any:
    """A Subscription whose spec was changed, before the operator has reconciled it."""
    manifest["metadata"]["generation"] += 1
    return manifest


def deleted(manifest: Any) -> Any:
    """A Subscription that somebody has deleted, before the operator has said what the deletion waits for."""
    manifest["metadata"]["deletionTimestamp"] = DELETING["deletionTimestamp"]
    return manifest


@dataclass(frozen=True, slots=True)
class Seen:
    """What the tools conclude from an object."""

    kstatus: str
    argo: str
    says: str = ""


BUSY = BrokerReply(status=409, reason="ConsumersActive", body={"containers": ["pod-1"]})
WRONG = BrokerReply(status=400, condition="amqp:invalid-field", reason="InvalidSelector", description="At 3: no.")
FULL = BrokerReply(status=503, condition="amqp:resource-limit-exceeded", reason="StorageFull", description="Full.")
EVERY: dict[str, tuple[Any, Seen]] = {
    "a-subscription-nobody-has-seen": (unseen("Subscription"), Seen("InProgress", "Progressing", "Waiting for")),
    "an-exchange-nobody-has-seen": (unseen("Exchange"), Seen("InProgress", "Progressing", "Waiting for")),
    "a-broker-nobody-has-seen": (unseen("Broker"), Seen("InProgress", "Progressing", "Waiting for")),
    "declared": (subscribed(), Seen("Current", "Healthy", "Declared on the broker.")),
    "declared-and-edited-since": (edited(subscribed()), Seen("InProgress", "Progressing", "Waiting for the operator")),
    "the-broker-was-not-asked-yet": (
        subscribed(Reach.NOT_ASKED),
        Seen("InProgress", "Progressing", "has not asked Broker main yet"),
    ),
    "the-broker-is-away": (
        subscribed(Reach.UNREACHABLE),
        Seen("InProgress", "Progressing", "Broker main does not answer"),
    ),
    "the-broker-is-stopped": (subscribed(Reach.STOPPED), Seen("InProgress", "Progressing", "scaled to zero")),
    "the-broker-is-too-new": (subscribed(Reach.NOT_UNDERSTOOD), Seen("Failed", "Degraded", "It does not answer.")),
    "refused-for-good": (subscribed(reply=WRONG), Seen("Failed", "Degraded", "At 3: no.")),
    "refused-for-now": (subscribed(reply=FULL), Seen("InProgress", "Progressing", "Full.")),
    "its-deletion-waits": (
        subscribed(reply=BUSY, metadata=DELETING),
        Seen("Terminating", "Progressing", "consumers in pod-1"),
    ),
    "its-deletion-has-begun": (deleted(subscribed()), Seen("Terminating", "Progressing", "Pending deletion")),
    "deleted-though-stalled": (
        deleted(subscribed(reply=WRONG)),
        Seen("Terminating", "Progressing", "Pending deletion"),
    ),
    "paused-when-it-was-ready": (
        subscribed(metadata=PAUSED, before=subscribed()["status"]),
        Seen("Current", "Suspended", "penstock.dev/paused"),
    ),
    "an-exchange-declared": (exchanged(), Seen("Current", "Healthy", "Declared on the broker.")),
    "an-exchange-whose-service-is-anothers": (
        exchanged(child=ChildState.TAKEN),
        Seen("Failed", "Degraded", "of another owner"),
    ),
    "an-exchange-after-another": (
        exchanged(child=ChildState.PREDECESSOR),
        Seen("InProgress", "Progressing", "was deleted"),
    ),
    "a-broker-that-serves": (brokered(), Seen("Current", "Healthy", "serves its clients")),
    "a-broker-scaled-to-zero": (brokered(0, None), Seen("Current", "Healthy", "Scaled to zero")),
    "a-broker-that-starts": (brokered(pod=None), Seen("InProgress", "Progressing", "not there yet")),
    "a-broker-that-is-away": (
        brokered(reach=Reach.UNREACHABLE, problem="No route."),
        Seen("InProgress", "Progressing", "No route."),
    ),
    "a-broker-with-a-taken-name": (brokered(taken_names=("Service main-amqp",)), Seen("Failed", "Degraded", "already")),
    "a-broker-too-old-for-its-spec": (
        brokered(unknown_settings=("settings.x",)),
        Seen("Failed", "Degraded", "`settings.x`"),
    ),
    "a-full-volume-is-no-failed-rollout": (
        brokered(state=STATE.model_copy(update={"durable_work": "Full"})),
        Seen("Current", "Healthy", "serves"),
    ),
}
