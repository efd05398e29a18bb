"""What Argo CD, Flux and kubectl conclude from our resources: the script of docs/how-to/gitops.md in Lua 5.1, as Argo
CD runs it, and the rules of kstatus, applied to what the plans report. The expectations are typed by hand.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportMissingModuleSource=false, reportAttributeAccessIssue=false
# lupa has no types.

from __future__ import annotations

import copy
import re
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from lupa import lua51
from support.resources import NOW, broker, broker_state, exchange, manifest_of, subscription

from penstock_api.resources import parse
from penstock_api.resources.base import PENDING_STATUS
from penstock_operator.children.stateful_set import PinnedPods
from penstock_operator.plans import broker_report, conditions
from penstock_operator.plans import exchange as exchange_plan
from penstock_operator.plans import subscription as subscription_plan
from penstock_operator.plans.broker_view import BrokerReportView
from penstock_operator.plans.conditions import ConditionReason
from penstock_operator.plans.decisions import BrokerReply, BrokerView, ChildState, Reach, Report
from penstock_operator.plans.exchange import ExchangeView
from penstock_operator.plans.lag_service import LagService
from penstock_operator.plans.subscription import SubscriptionView
from penstock_operator.plans.unreadable import UnreadableView, plan_unreadable
from penstock_operator.reconcile import status

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "gitops.md").read_text()
(BLOCK,) = re.findall(r"resource\.customizations\.health\.penstock\.dev_Subscription: \|\n(.*?)```", PAGE, re.DOTALL)
SCRIPT = textwrap.dedent(BLOCK)

OURS: dict[str, Any] = {"finalizers": ["penstock.dev/topology"]}
DELETING = {**OURS, "deletionTimestamp": "2026-03-01T11:59:55Z"}
PAUSED = {**OURS, "annotations": {"penstock.dev/paused": "true"}}
DECLARED = BrokerReply(status=200, body={"outcome": "Created", "expiryPolicy": "Never"})


def of_argo(manifest: Any) -> tuple[str, str]:
    """Health and message by the script; Argo CD passes the object as `obj`."""
    runtime = lua51.LuaRuntime(unpack_returned_tuples=True)
    runtime.globals().obj = runtime.table_from(manifest, recursive=True)
    found: Any = runtime.execute(SCRIPT)
    return str(found["status"]), str(found["message"] or "")


def of_kstatus(manifest: Any) -> str:
    """The status by sigs.k8s.io/cli-utils, pkg/kstatus/status, for custom resources."""
    if "deletionTimestamp" in manifest["metadata"]:
        return "Terminating"
    shown = manifest["status"]
    if shown["observedGeneration"] != manifest["metadata"]["generation"]:
        return "InProgress"
    by_type = {each["type"]: each["status"] for each in shown["conditions"]}
    if by_type.get("Reconciling") == "True":
        return "InProgress"
    if by_type.get("Stalled") == "True":
        return "Failed"
    return "Current" if by_type.get("Ready", "True") == "True" else "InProgress"


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


@pytest.mark.parametrize(("manifest", "seen"), EVERY.values(), ids=EVERY)
def test_what_each_tool_makes_of_it(manifest: Any, seen: Seen) -> None:
    health, message = of_argo(manifest)
    assert (of_kstatus(manifest), health) == (seen.kstatus, seen.argo)
    assert seen.says in message


def test_an_object_without_status_is_in_progress_for_argo() -> None:
    assert of_argo(manifest_of("Broker", {}, None, {})) == ("Progressing", "Waiting for the operator")


@pytest.mark.parametrize("manifest", [entry for entry, _ in EVERY.values()], ids=EVERY)
def test_every_condition_speaks_of_the_generation_that_was_looked_at(manifest: Any) -> None:
    shown = manifest["status"]
    generations = {each.get("observedGeneration") for each in shown["conditions"]}
    assert generations == ({None} if shown["observedGeneration"] == -1 else {shown["observedGeneration"]})
    types = [each["type"] for each in shown["conditions"]]
    assert types.count("Ready") == 1
    assert len(types) == len(set(types))


def test_stalled_is_never_there_with_ready_true() -> None:
    for name, (manifest, _) in EVERY.items():
        by_type = {each["type"]: each["status"] for each in manifest["status"]["conditions"]}
        assert not (by_type["Ready"] == "True" and "Stalled" in by_type), name


def test_what_cannot_be_read_has_failed() -> None:
    manifest = manifest_of("Subscription", {"invented": 1}, None, {})
    report = plan_unreadable(
        UnreadableView(
            problem="invented: there is no such field",
            is_deleting=False,
            has_finalizer=True,
            is_forced=False,
            is_broker_gone=False,
        )
    )
    assert isinstance(report, Report)
    manifest["status"] = status.unparsable(manifest, report, NOW)
    message = (
        "invented: there is no such field. Install the CRDs and the operator of the same version."
        " See docs/how-to/runbooks/reasons.md#InvalidSpec."
    )
    assert (of_kstatus(manifest), of_argo(manifest)) == ("Failed", ("Degraded", message))
    assert conditions.timestamp(NOW) == manifest["status"]["conditions"][0]["lastTransitionTime"]
