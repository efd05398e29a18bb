"""The status of a Broker, computed from what was observed."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from support.resources import NOW, broker, broker_state

from penstock_api.resources import Condition
from penstock_api.state_documents import BrokerState, ContestedContainer
from penstock_operator.children.stateful_set import PinnedPods
from penstock_operator.plans.broker_health import contested, contested_containers
from penstock_operator.plans.broker_report import report_broker
from penstock_operator.plans.broker_view import BrokerReportView
from penstock_operator.plans.conditions import ConditionReason
from penstock_operator.plans.decisions import Reach, Report, Retry
from penstock_operator.plans.lag_service import LagService

PINNED = PinnedPods("r/broker:1", "r/broker:1", 1)


def state(durable_work: Any = "Ok") -> BrokerState:
    return broker_state(epoch=4, durable_work=durable_work)


def pod(broker_ready: bool = True, observer: str | None = None, **status: Any) -> dict[str, Any]:
    waiting = {} if observer is None else {"waiting": {"reason": observer}}
    containers = [{"name": "broker", "ready": broker_ready}, {"name": "observer", "ready": True, "state": waiting}]
    return {"metadata": {"name": "main-0"}, "status": {"containerStatuses": containers, **status}}


def report(**changes: Any) -> Report:
    spec = changes.pop("spec", {})
    made: dict[str, Any] = {
        "broker": broker(lagAnalysis={"backend": "None"}, **spec),
        "pinned": PINNED,
        "default_image": "r/broker:1",
        "reach": Reach.CONNECTED,
        "state": state(),
        "pod": pod(),
        "stateful_set": {"status": {"replicas": 1}},
        "lag_service": LagService(off=(ConditionReason.DISABLED, "the test has no lag job")),
        "exchanges": 2,
        "subscriptions": 7,
        "now": NOW,
    }
    return report_broker(BrokerReportView(**{**made, **changes}))


def told(**changes: Any) -> dict[str, tuple[str, str]]:
    return {it.type: (it.status.value, str(it.reason)) for it in report(**changes).conditions}


def test_a_broker_that_serves() -> None:
    assert told() == {
        "Ready": ("True", "Ready"),
        "Accepted": ("True", "Accepted"),
        "Available": ("True", "Serving"),
        "StorageHealthy": ("True", "Ok"),
        "VersionAligned": ("True", "Pinned"),
        "LagAnalysisScheduled": ("False", "Disabled"),
    }


def test_its_status() -> None:
    view = BrokerReportView(
        broker=broker(),
        pinned=PINNED,
        default_image="r/broker:1",
        reach=Reach.CONNECTED,
        state=state(),
        pod=pod(),
        stateful_set={"status": {"replicas": 1}},
        lag_service=LagService(off=(ConditionReason.DISABLED, "the test has no lag job")),
        exchanges=2,
        subscriptions=7,
        queues=3,
        external_address="amqps://broker.example:5671",
        lag={"lastRunName": "r"},
        now=NOW,
    )
    assert report_broker(view).details == {
        "replicas": 1,
        "readyReplicas": 1,
        "selector": "app.kubernetes.io/name=penstock-broker,app.kubernetes.io/instance=main",
        "address": "amqps://main-amqp.shop.svc:5671",
        "image": "r/broker:1",
        "exchanges": 2,
        "subscriptions": 7,
        "queues": 3,
        "externalAddress": "amqps://broker.example:5671",
        "version": "0.1.0",
        "instanceId": "i1",
        "epoch": 4,
        "lagAnalysis": {"lastRunName": "r"},
    }
    assert report_broker(view).retry is Retry.RESYNC


@pytest.mark.parametrize(
    ("changes", "kind", "expected"),
    [
        ({"taken_names": ("Service main-amqp",)}, "Ready", ("False", "NameTaken")),
        ({"taken_names": ("Service main-amqp",)}, "Stalled", ("True", "NameTaken")),
        ({"predecessor_children": ("Secret main-ca",)}, "Ready", ("False", "PredecessorLeaving")),
        ({"pod": None}, "Ready", ("False", "PodNotReady")),
        ({"pod": pod(broker_ready=False)}, "Ready", ("False", "PodNotReady")),
        ({"reach": Reach.NOT_ASKED, "problem": "Not yet."}, "Ready", ("Unknown", "BrokerNotAsked")),
        ({"reach": Reach.UNREACHABLE, "problem": "No."}, "Ready", ("Unknown", "BrokerUnreachable")),
        ({"reach": Reach.NOT_UNDERSTOOD, "problem": "What?"}, "Available", ("Unknown", "OperatorTooOld")),
        ({"reach": Reach.NOT_UNDERSTOOD, "problem": "What?"}, "Stalled", ("True", "OperatorTooOld")),
        (
            {"unconfirmed_settings": ("settings.announce",), "reach": Reach.UNREACHABLE},
            "Accepted",
            ("Unknown", "BrokerUnreachable"),
        ),
        (
            {"unconfirmed_settings": ("settings.announce",), "reach": Reach.NOT_ASKED},
            "Accepted",
            ("Unknown", "BrokerNotAsked"),
        ),
        ({"state": state("Full")}, "StorageHealthy", ("False", "StorageFull")),
        ({"state": state("Failed")}, "StorageHealthy", ("False", "StorageFailed")),
        ({"state": state("Full")}, "Ready", ("True", "Ready")),
        (
            {"state": state().model_copy(update={"storage_level": "Critical"})},
            "StorageFilling",
            ("True", "StorageCritical"),
        ),
        ({"state": state().model_copy(update={"storage_level": "Critical"})}, "Ready", ("True", "Ready")),
        ({"default_image": "r/broker:2"}, "VersionAligned", ("False", "UpdateAvailable")),
        ({"default_image": "r/broker:2"}, "Ready", ("True", "Ready")),
        ({"spec": {"replicas": 0}, "pod": None}, "Ready", ("True", "ScaledToZero")),
        ({"spec": {"replicas": 0}, "pod": None}, "Available", ("False", "ScaledToZero")),
        (
            {"spec": {"replicas": 0}, "pod": None, "taken_names": ("Service main-amqp",)},
            "Ready",
            ("False", "NameTaken"),
        ),
        ({"pod": pod(observer="CrashLoopBackOff")}, "Ready", ("True", "Ready")),
        ({"pod": pod(observer="CrashLoopBackOff")}, "ObserverFailing", ("True", "CrashLoopBackOff")),
        (
            {"spec": {"authentication": {"usersSecretRef": {"name": "u"}}}, "users_missing": True},
            "Ready",
            ("False", "UsersSecretNotFound"),
        ),
        (
            {"spec": {"authentication": {"clientCaSecretRef": {"name": "u"}}}, "client_ca_missing": True},
            "Stalled",
            ("True", "ClientCaNotFound"),
        ),
        ({"token_keys_missing": ("cluster",)}, "Stalled", ("True", "TokenKeysNotFound")),
        (
            {"spec": {"listeners": {"amqp": True}, "authentication": {"anonymous": True, "allowInsecurePlain": True}}},
            "InsecurePlain",
            ("True", "PlainTextPasswords"),
        ),
    ],
)
def test_one_reason_per_outcome(changes: dict[str, Any], kind: str, expected: tuple[str, str]) -> None:
    assert told(**changes)[kind] == expected


def test_what_is_waited_for_without_an_event_is_looked_at_again() -> None:
    view = BrokerReportView(
        broker=broker(),
        predecessor_children=("Secret main-ca", "Service main-amqp"),
        pinned=PINNED,
        default_image="i",
        reach=Reach.UNREACHABLE,
        pod=pod(),
        lag_service=LagService(off=(ConditionReason.DISABLED, "the test has no lag job")),
        exchanges=0,
        subscriptions=0,
        now=NOW,
    )
    found = report_broker(view)
    assert found.retry is Retry.BACKOFF
    assert "Secret main-ca, Service main-amqp" in found.conditions[0].message


def contested_by(*counts: int) -> BrokerState:
    fights = [ContestedContainer(container_id=f"c{index}", takeovers=it, last_ms=0) for index, it in enumerate(counts)]
    return state().model_copy(update={"contested_containers": tuple(fights)})


def test_container_ids_that_fight_are_named_with_the_remedy() -> None:
    found = contested(contested_by(7, 1999))
    assert found is not None
    assert "'c0' (at least 5 times), 'c1' (at least 1000 times)" in found.message
    assert "Give each pod a ClientID of its own, or none" in found.message
    assert contested(state()) is None


def test_a_fight_is_told_while_the_broker_answers_and_hurts_no_readiness() -> None:
    seen = told(state=contested_by(5))
    assert (seen["Ready"], seen["ContainersContested"]) == (("True", "Ready"), ("True", "TakeoversRepeated"))
    assert "ContainersContested" not in told(state=contested_by(5), reach=Reach.UNREACHABLE)


@pytest.mark.parametrize(
    ("count", "shown"), [(1, 1), (4, 2), (5, 5), (9, 5), (10, 10), (19, 10), (20, 20), (99, 50), (123_456, 100_000)]
)
def test_figures_are_rounded_so_that_status_keeps_still(count: int, shown: int) -> None:
    assert contested_containers(contested_by(count)) == (("c0", shown),)


def test_a_word_of_a_later_broker_is_told_as_it_is() -> None:
    assert told(state=state("ReadOnly"))["StorageHealthy"] == ("Unknown", "OperatorTooOld")


@pytest.mark.parametrize(
    "missing",
    [{"users_missing": True}, {"client_ca_missing": True}, {"token_keys_missing": ("k",)}, {"issuer_unknown": True}],
)
def test_what_is_missing_is_looked_for_soon(missing: dict[str, Any]) -> None:
    assert report(**missing).retry is Retry.BACKOFF


def test_a_listener_without_tls_is_no_warning_where_no_password_may_be_sent() -> None:
    spec = {"listeners": {"amqp": True}, "authentication": {"anonymous": True}}
    assert "InsecurePlain" not in told(spec=spec)


@pytest.mark.parametrize(
    ("ready", "state", "retry"),
    [
        (False, {"terminated": {"reason": "Error"}}, Retry.BACKOFF),
        (False, {"running": {}}, Retry.BACKOFF),
        (False, {"waiting": {"reason": "CrashLoopBackOff"}}, Retry.RESYNC),
        (True, {"running": {}}, Retry.RESYNC),
    ],
)
def test_an_observer_that_has_just_crashed_is_looked_at_again_soon(ready: bool, state: Any, retry: Retry) -> None:
    """The StatefulSet, which is watched, changes when it crashes, and not when the kubelet calls it a loop."""
    found = pod()
    found["status"]["containerStatuses"][1] |= {"ready": ready, "state": state}
    assert report(pod=found).retry is retry


def test_an_observer_that_starts_is_not_failing() -> None:
    assert "ObserverFailing" not in told(pod=pod(observer="ContainerCreating"))


def of_revision(name: str) -> dict[str, Any]:
    made = pod()
    made["metadata"] |= {"labels": {"controller-revision-hash": name}}
    return made


@pytest.mark.parametrize(
    ("stateful_set", "status"),
    [
        ({"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "updateRevision": "main-1"}}, "False"),
        ({"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "updateRevision": "main-2"}}, "False"),
        ({"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "updateRevision": "main-1"}}, "True"),
        # It was made again, with larger claims, and takes the pod over.
        ({"metadata": {"generation": 1}, "status": {"replicas": 0}}, "True"),
        # Somebody replaces pods by hand.
        ({"spec": {"updateStrategy": {"type": "OnDelete"}}, "status": {"updateRevision": "main-2"}}, "True"),
        (
            {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}, "status": {"updateRevision": "main-2"}},
            "True",
        ),
    ],
)
def test_a_broker_is_not_ready_before_its_pod_is_of_the_newest_spec(stateful_set: dict[str, Any], status: str) -> None:
    found = report(stateful_set=stateful_set, pod=of_revision("main-1"))
    assert found.conditions[0].status.value == status
    assert (found.retry is Retry.BACKOFF) is (status == "False")
    assert ("about to be replaced" in found.conditions[0].message) is (status == "False")


@pytest.mark.parametrize(
    ("broker_ready", "words"), [(True, "Messages are still delivered, but"), (False, "Metrics and lag are not updated")]
)
def test_an_observer_that_fails_tells_of_messages_only_what_is_so(broker_ready: bool, words: str) -> None:
    found = {it.type: it.message for it in report(pod=pod(broker_ready, observer="ImagePullBackOff")).conditions}
    assert words in found["ObserverFailing"]
    assert ("still delivered" in found["ObserverFailing"]) is broker_ready


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_an_observer_whose_image_is_not_there_has_one_reason(reason: str) -> None:
    assert told(pod=pod(observer=reason))["ObserverFailing"] == ("True", "ImagePullBackOff")


ENDED = {"terminated": {"exitCode": 1}}


@pytest.mark.parametrize(
    ("observer", "fails"),
    [
        pytest.param({"ready": False, "state": ENDED}, True, id="it-has-just-ended"),
        pytest.param({"ready": False, "state": {"running": {}}, "lastState": ENDED}, True, id="it-starts-again"),
        pytest.param({"ready": True, "state": {"running": {}}, "lastState": ENDED}, False, id="it-is-ready"),
        pytest.param({"ready": False, "state": {"running": {}}}, False, id="of-a-new-pod"),
    ],
)
def test_an_observer_that_crashes_fails_until_it_is_ready(observer: dict[str, Any], fails: bool) -> None:
    shown = Condition(
        type="ObserverFailing", status="True", reason="CrashLoopBackOff", message="It ended.", last_transition_time=NOW
    )
    made = broker(lagAnalysis={"backend": "None"})
    seen = pod()
    seen["status"]["containerStatuses"][1] = {"name": "observer", **observer}
    before = made.model_copy(update={"status": made.status.model_copy(update={"conditions": (shown,)})})
    found = {it.type: (it.reason, it.message) for it in report(broker=before, pod=seen).conditions}
    assert found.get("ObserverFailing") == (("CrashLoopBackOff", "It ended.") if fails else None)
    assert "ObserverFailing" not in told(pod=seen)  # the first crash alone says nothing


def paused(generation: int, seen: int, accepted: Literal["True", "Unknown"]) -> dict[str, Any]:
    """A report of a paused Broker of this generation, whose status said `accepted` about the generation `seen`."""
    made = broker(metadata={"annotations": {"penstock.dev/paused": "true"}, "generation": generation})
    said = Condition(type="Accepted", status=accepted, reason="X", message="", last_transition_time=NOW)
    return {
        "broker": made.model_copy(
            update={"status": made.status.model_copy(update={"observed_generation": seen, "conditions": (said,)})}
        )
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(paused(2, 2, "True"), ("True", "Ready"), id="as-it-was"),
        pytest.param(paused(3, 2, "True"), ("Unknown", "PausedByAnnotation"), id="changed"),
        pytest.param(paused(3, 3, "Unknown"), ("Unknown", "PausedByAnnotation"), id="still-not-in-force"),
        pytest.param(paused(1, -1, "Unknown"), ("Unknown", "PausedByAnnotation"), id="made-paused"),
    ],
)
def test_a_paused_broker_is_not_ready_with_a_spec_that_is_not_in_force(
    changes: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert told(**changes)["Ready"] == expected
    assert told(**changes)["ReconciliationPaused"] == ("True", "PausedByAnnotation")
    assert "Stalled" not in told(**changes)


def image_told(**changes: Any) -> str:
    return next(it.message for it in report(**changes).conditions if it.type == "VersionAligned")


CRASHED = {"name": "broker", "ready": False, "state": {"terminated": {"exitCode": 1}}}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"pod": None}, id="no-pod"),
        pytest.param({"pod": None, "spec": {"replicas": 0}}, id="scaled-to-zero"),
        pytest.param({"pod": {"metadata": {}, "status": {"containerStatuses": [CRASHED]}}}, id="crashed"),
        pytest.param(
            {"pod": of_revision("main-1"), "stateful_set": {"status": {"updateRevision": "main-2"}}}, id="old"
        ),
    ],
)
def test_an_image_that_no_pod_runs_is_not_said_to_run(changes: dict[str, Any]) -> None:
    assert image_told(**changes) == "The next pod gets r/broker:1; none runs with it now."


def test_the_image_of_a_broker_that_starts_is_said_to_run() -> None:
    starting: dict[str, Any] = {"name": "broker", "ready": False, "state": {"running": {}}}
    started: dict[str, Any] = {"pod": {"metadata": {}, "status": {"containerStatuses": [starting]}}}
    assert image_told() == image_told(**started) == "The pods run r/broker:1."
    assert image_told(default_image="r/broker:2") == (
        "The pods run r/broker:1. New Brokers get r/broker:2: set `spec.image` to that image to replace the pods."
    )


def test_a_pod_that_goes_does_not_serve() -> None:
    going = pod()
    going["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    assert told(pod=going)["Ready"] == ("False", "PodNotReady")
    assert report(pod=going).conditions[0].message == "Pod main-0 is ending and not replaced yet."


PULLING = {"name": "broker", "state": {"waiting": {"reason": "ErrImagePull", "message": "404"}}}
CREATING = {"name": "broker", "state": {"waiting": {"reason": "ContainerCreating"}}}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "message": "no cpu"}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"containerStatuses": [PULLING]}, "ImagePullBackOff. 404"),
        ({"containerStatuses": [CREATING]}, "ContainerCreating. If this lasts, a volume can't be attached"),
        ({"conditions": [UNSCHEDULABLE]}, "can't be scheduled: no cpu"),
        ({"phase": "Pending"}, "is Pending and not ready yet"),
    ],
)
def test_why_a_pod_is_not_ready(status: dict[str, Any], words: str) -> None:
    found = report_broker(
        BrokerReportView(
            broker=broker(),
            pinned=PINNED,
            default_image="i",
            reach=Reach.UNREACHABLE,
            pod={"metadata": {}, "status": status},
            lag_service=LagService(off=(ConditionReason.DISABLED, "the test has no lag job")),
            exchanges=0,
            subscriptions=0,
            now=NOW,
        )
    )
    assert words in found.conditions[0].message
    assert found.retry is Retry.BACKOFF
