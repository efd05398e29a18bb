"""Why a pod is not ready, from what a real cluster has said, and what a person is told to do."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_operator.plans.pod_trouble import asked_about, how_it_ended, why_not_ready

STATEFUL_SET: dict[str, Any] = {"metadata": {"name": "main", "uid": "s1"}}


def refused(said: str, at: str = "2026-03-01T12:00:05Z", reason: str = "FailedCreate") -> dict[str, Any]:
    return {"type": "Warning", "reason": reason, "lastTimestamp": at, "message": said}


def of_the_pod(error: str) -> dict[str, Any]:
    return refused(f"Create Pod main-0 in StatefulSet main failed error: {error}")


def pod(waiting: Any = None, **further: Any) -> dict[str, Any]:
    state = {} if waiting is None else {"state": {"waiting": waiting}}
    container = {"name": "broker", "ready": False, **state, **further}
    return {
        "metadata": {"name": "main-0", "uid": "p1"},
        "spec": {"nodeName": "n7"},
        "status": {"phase": "Pending", "containerStatuses": [container]},
    }


def unscheduled(message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    return {"metadata": {"name": "main-0"}, "status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        (
            'pods "main-0" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0',
            "Raise the ResourceQuota of the namespace, or delete what uses it up.",
        ),
        (
            'pods "main-0" is forbidden: failed quota: lim: must specify limits.cpu for: broker,observer',
            "Set the values that it names in `resources` and `observerResources` of the spec, or give the namespace a "
            "LimitRange with defaults.",
        ),
        (
            'Pod "main-0" is invalid: spec.containers[0].resources.requests: Invalid value: "256Mi": must be less than '
            "or equal to memory limit of 64Mi",
            "Change `resources` or `observerResources` of the spec, or the LimitRange of the namespace.",
        ),
        (
            'pods "main-0" is forbidden: maximum memory usage per Container is 64Mi, but limit is 1Gi',
            "Change `resources` or `observerResources` of the spec, or the LimitRange of the namespace.",
        ),
        (
            'pods "main-0" is forbidden: violates PodSecurity "restricted:latest": privileged',
            "Pods of Brokers meet the level `restricted`, so look for what adds to them, such as a webhook, or lower "
            "the level of the namespace.",
        ),
        (
            'admission webhook "policy.example.com" denied the request: no',
            "Change in the spec what the policy objects to, or have whoever runs it let the pods of Brokers pass.",
        ),
    ],
)
def test_a_pod_that_the_cluster_refuses_is_told_with_its_words_and_the_cure(error: str, cure: str) -> None:
    assert why_not_ready("main-0", None, [of_the_pod(error)]) == (
        f"The cluster refuses main-0: {error}. {cure} It tries again within 17 minutes."
    )


def test_a_claim_that_the_cluster_refuses_is_named() -> None:
    said = (
        'create Claim data-main-0 Pod main-0 in StatefulSet main failed error: persistentvolumeclaims "data-main-0" is '
        "forbidden: exceeded quota: disk, requested: requests.storage=10Gi"
    )
    found = why_not_ready("main-0", None, [refused(said)])
    assert found.startswith('The cluster refuses data-main-0: persistentvolumeclaims "data-main-0" is forbidden')


def test_what_was_refused_before_the_pod_was_made_is_not_told_any_more() -> None:
    before = of_the_pod("exceeded quota: none")
    made = {**refused("Create Pod main-0 in StatefulSet main successful", "2026-03-01T12:00:09Z", "SuccessfulCreate")}
    assert why_not_ready("main-0", None, [before, made]) == (
        "Pod main-0 is not there yet. If this lasts, `kubectl describe statefulset main` says why."
    )


def test_a_claim_that_was_made_says_nothing_of_the_pod() -> None:
    said = "Create Claim data-main-0 Pod main-0 in StatefulSet main success"
    claim = refused(said, "2026-03-01T12:00:09Z", "SuccessfulCreate")
    assert "exceeded quota" in why_not_ready("main-0", None, [of_the_pod("exceeded quota: none"), claim])


@pytest.mark.parametrize(
    ("container", "told"),
    [
        (
            {"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}},
            "Pod main-0: the broker ended with exit code 137 (OOMKilled) and is started again. It had less memory than "
            "it needs: raise `resources.limits.memory` of the spec.",
        ),
        (
            {"state": {"terminated": {"exitCode": 3, "reason": "Error"}}},
            "Pod main-0: the broker ended with exit code 3 and is started again. `kubectl logs main-0 -c broker "
            "--previous` says why.",
        ),
        (
            {"lastState": {"terminated": {"exitCode": 128, "reason": "StartError", "message": "no such file.\n"}}},
            "Pod main-0: the broker ended with exit code 128 (StartError) (no such file) and is started again. "
            "`kubectl logs main-0 -c broker --previous` says why.",
        ),
    ],
)
@pytest.mark.parametrize("waiting", [None, {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting"}])
def test_a_broker_that_crashes_is_told_with_how_it_ended(waiting: Any, container: Any, told: str) -> None:
    """The same words while it waits and while it runs, so that each crash does not write the status."""
    seen = pod(waiting)
    seen["status"]["containerStatuses"][0] |= container
    if waiting is not None and "terminated" in container.get("state", {}):
        seen["status"]["containerStatuses"][0] |= {"state": {"waiting": waiting}, "lastState": container["state"]}
    assert why_not_ready("main-0", seen, []) == told


def test_the_newest_end_is_told() -> None:
    ends: dict[str, Any] = {"state": {"terminated": {"exitCode": 2}}, "lastState": {"terminated": {"exitCode": 1}}}
    assert how_it_ended(ends) == "ended with exit code 2"
    assert how_it_ended({"state": {"running": {}}, "lastState": {}}) is None


@pytest.mark.parametrize(
    "waiting",
    [
        {"reason": "ErrImagePull", "message": 'failed to pull "r/broker:9": read udp 10.1.0.1:42757->10.9.0.3:53: i/o'},
        {
            "reason": "ImagePullBackOff",
            "message": 'Back-off pulling image "r/broker:9": ErrImagePull: failed to pull "r/broker:9": read udp '
            "10.1.0.1:39620->10.9.0.3:53: i/o",
        },
    ],
)
def test_an_image_that_is_not_there_is_told_in_the_same_words_while_the_node_tries_and_waits(waiting: Any) -> None:
    assert why_not_ready("main-0", pod(waiting), []) == (
        'Pod main-0: ImagePullBackOff. failed to pull "r/broker:9": read udp 10.1.0.1->10.9.0.3:53: i/o. Correct '
        "`spec.image` (or the value `brokerImage` of the operator's chart), or give `spec.imagePullSecrets`; the node "
        "tries again by itself."
    )


def test_an_older_kubelet_says_only_that_it_waits() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "r/broker:9"'}
    assert why_not_ready("main-0", pod(waiting), []).startswith(
        'Pod main-0: ImagePullBackOff. Back-off pulling image "r/broker:9". Correct `spec.image`'
    )


def test_a_container_that_can_not_be_configured_is_told_with_the_words_of_the_kubelet() -> None:
    waiting = {"reason": "CreateContainerConfigError", "message": 'secret "main-amqp" not found'}
    assert why_not_ready("main-0", pod(waiting), []) == (
        'Pod main-0: CreateContainerConfigError. secret "main-amqp" not found. `kubectl describe pod main-0` shows '
        "more."
    )


def test_a_pod_that_no_node_takes_is_told_with_what_can_be_changed() -> None:
    said = "0/3 nodes are available: 3 Insufficient memory."
    assert why_not_ready("main-0", unscheduled(said), []) == (
        "Pod main-0 can't be scheduled: 0/3 nodes are available: 3 Insufficient memory. Give the cluster a node that "
        "fits, or change `pod` or `resources` of the spec; the cluster tries again by itself."
    )


def test_claims_without_a_volume_are_told_with_why() -> None:
    events: list[dict[str, Any]] = [
        {
            "type": "Warning",
            "reason": "ProvisioningFailed",
            "lastTimestamp": f"2026-03-01T12:00:0{second}Z",
            "involvedObject": {"name": "data-main-0"},
            "message": said,
        }
        for second, said in ((5, 'storageclass.storage.k8s.io "nope" not found'), (1, "an older word"))
    ]
    unbound = unscheduled("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found")
    assert why_not_ready("main-0", unbound, events) == (
        "Pod main-0 can't be scheduled: 0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not "
        'found. Claim data-main-0: storageclass.storage.k8s.io "nope" not found. Give the cluster what the claim asks '
        "for. If `storage.storageClassName` is wrong, make the Broker anew with another; it has no messages yet."
    )


def test_what_keeps_the_kubelet_from_starting_the_pod_is_told() -> None:
    said = 'MountVolume.SetUp failed for volume "tls" : secret "main-amqp" not found'
    event: dict[str, Any] = {
        "type": "Warning",
        "reason": "FailedMount",
        "eventTime": "2026-03-01T12:00:05Z",
        "message": said,
    }
    assert why_not_ready("main-0", pod({"reason": "ContainerCreating"}), [event]) == (
        f"Pod main-0: ContainerCreating. Node n7 warns (FailedMount): {said}."
    )


def ending(made: dict[str, Any]) -> dict[str, Any]:
    return {**made, "metadata": {**made["metadata"], "deletionTimestamp": "2026-03-01T12:00:00Z"}}


BOUND: dict[str, Any] = {"metadata": {"name": "data-main-0", "uid": "c1"}, "status": {"phase": "Bound"}}
PENDING: dict[str, Any] = {"metadata": {"name": "ledger-main-0", "uid": "c2"}, "status": {"phase": "Pending"}}


@pytest.mark.parametrize(
    ("its_pod", "uids"),
    [
        pytest.param(None, ["s1"], id="no-pod"),
        pytest.param(pod({"reason": "ContainerCreating"}), ["p1"], id="being-created"),
        pytest.param(unscheduled("no node"), ["c2"], id="unscheduled"),
        pytest.param(pod({"reason": "CrashLoopBackOff"}), [], id="its-status-says-enough"),
        pytest.param(ending(pod({"reason": "ContainerCreating"})), [], id="ending"),
    ],
)
def test_events_are_read_only_about_what_the_pod_waits_for(its_pod: Any, uids: list[str]) -> None:
    assert [it["metadata"] for it in asked_about(its_pod, STATEFUL_SET, [BOUND, PENDING])] == [
        it["metadata"] for it in (STATEFUL_SET, pod(), BOUND, PENDING) if it["metadata"]["uid"] in uids
    ]
    assert asked_about(None, None, []) == []
