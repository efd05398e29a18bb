"""Why the pod of a Broker is not ready, as one sentence with what a person can do about it.

What a pod's status does not say is in Events: why the cluster does not make the pod at all, why its volumes are not
there, what keeps the kubelet from starting it. They are read only while the pod is not ready, and only those about the
one object that matters then. Source: Kubernetes, "Debug Pods" and "StatefulSets"; docs/decisions/126-events-read.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, cast

from penstock_operator.manifest import Manifest, dig, items_of, text_at

__all__ = ["asked_about", "container_of", "how_it_ended", "waiting_reason", "why_not_ready"]

_OF_A_CREATION: Final = re.compile(r"create (?:pod|claim) (\S+) .*?failed error: (.*)", re.IGNORECASE | re.DOTALL)
"""What the StatefulSet controller says in FailedCreate."""
_PULL: Final = frozenset({"ErrImagePull", "ImagePullBackOff"})
"""The kubelet alternates between them for as long as an image can't be pulled."""
_IMAGE: Final = _PULL | {"ErrImageNeverPull", "InvalidImageName"}
_BACK_OFF: Final = re.compile(r'Back-off pulling image "[^"]*": (?=ErrImagePull: )')
"""What the kubelet sets before the error while it waits."""
_OWN_PORT: Final = re.compile(r":[0-9]+(?=->)")
"""Of the node's end of a connection that failed; each attempt has another."""
_CREATING: Final = frozenset({"ContainerCreating", "PodInitializing"})

_CURES_OF_REFUSALS: Final = (
    (
        re.compile("must specify"),
        "Set the values that it names in `resources` and `observerResources` of the spec, or give the namespace a "
        "LimitRange with defaults",
    ),
    (re.compile("exceeded quota"), "Raise the ResourceQuota of the namespace, or delete what uses it up"),
    (
        re.compile(r"usage per|(memory|cpu) limit of|limit to request ratio"),
        "Change `resources` or `observerResources` of the spec, or the LimitRange of the namespace",
    ),
    (
        re.compile("violates PodSecurity"),
        "Pods of Brokers meet the level `restricted`, so look for what adds to them, such as a webhook, or lower the "
        "level of the namespace",
    ),
    (
        re.compile("is forbidden|admission webhook|denied"),
        "Change in the spec what the policy objects to, or have whoever runs it let the pods of Brokers pass",
    ),
    (re.compile(""), "Correct the spec if one of its values is named"),
)


def asked_about(pod: Manifest | None, stateful_set: Manifest | None, claims: Sequence[Manifest]) -> list[Manifest]:
    """The objects whose Events say what the status of the pod does not; none if it says enough.

    `claims`: of its volumes.
    """
    if pod is None:
        return [] if stateful_set is None else [stateful_set]
    if dig(pod, "metadata", "deletionTimestamp") is not None:
        return []
    if text_at(container_of(pod, "broker"), "state", "waiting", "reason") in _CREATING:
        return [pod]
    if _not_scheduled(pod) is not None:
        return [claim for claim in claims if text_at(claim, "status", "phase") == "Pending"]
    return []


def why_not_ready(name: str, pod: Manifest | None, events: Sequence[Manifest]) -> str:
    """The reason that the cluster gives, and the cure. `name`: of the pod. `events`: about what `asked_about` said."""
    if pod is None:
        command = f"kubectl describe statefulset {name.removesuffix('-0')}"
        return _refused(events) or f"Pod {name} is not there yet. If this lasts, `{command}` says why."
    if dig(pod, "metadata", "deletionTimestamp") is not None:
        return f"Pod {name} is ending and not replaced yet."
    not_scheduled = _not_scheduled(pod)
    if not_scheduled is not None:
        return _unschedulable(name, not_scheduled, events)
    broker = container_of(pod, "broker")
    waiting = waiting_reason(broker)
    if waiting in _CREATING:
        return _being_created(name, text_at(pod, "spec", "nodeName") or "", waiting, broker, events)
    if waiting in _IMAGE:
        return (
            f"Pod {name}: {waiting}. {_sentence(_of_a_pull(broker))}Correct `spec.image` "
            "(or the value `brokerImage` of the operator's chart), or give `spec.imagePullSecrets`; the node tries "
            "again by itself."
        )
    ended = how_it_ended(broker)
    if ended is not None:
        return f"Pod {name}: the broker {ended} and is started again. {_cure_of_an_end(name, broker)}"
    if waiting is not None:
        said = _sentence(text_at(broker, "state", "waiting", "message"))
        return f"Pod {name}: {waiting}. {said}`kubectl describe pod {name}` shows more."
    return f"Pod {name} is {text_at(pod, 'status', 'phase') or 'Pending'} and not ready yet."


def container_of(pod: Manifest | None, name: str) -> Manifest:
    """The status of one container of a pod, empty if there is none."""
    for status in items_of(pod, "status", "containerStatuses"):
        if status.get("name") == name:
            return status
    return {}


def waiting_reason(container: Manifest) -> str | None:
    """Why a container waits, in the kubelet's word; None if it does not. An image that can't be pulled has one word,
    so that the status does not change with each attempt.
    """
    reason = text_at(container, "state", "waiting", "reason")
    return "ImagePullBackOff" if reason in _PULL else reason


def how_it_ended(container: Manifest) -> str | None:
    """How a container ended the last time, such as `ended with exit code 137 (OOMKilled)`; None if it never did.

    Without the time and the number of ends, so that a container which keeps ending does not write a new status each
    time.
    """
    end = _end(container)
    if end is None:
        return None
    reason, said = text_at(end, "reason"), (text_at(end, "message") or "").strip().rstrip(".")
    in_brackets = f" ({reason})" if reason not in (None, "Error", "Completed") else ""
    return f"ended with exit code {end.get('exitCode')}{in_brackets}{f' ({said})' if said else ''}"


def _of_a_pull(container: Manifest) -> str:
    """What the kubelet says about an image, the same while it tries and while it waits."""
    said = _BACK_OFF.sub("", text_at(container, "state", "waiting", "message") or "")
    return _OWN_PORT.sub("", said.removeprefix("ErrImagePull: "))


def _end(container: Manifest) -> Manifest | None:
    for state in ("state", "lastState"):
        if isinstance(dig(container, state, "terminated", "exitCode"), int):
            found = dig(container, state, "terminated")
            return cast(Manifest, found) if isinstance(found, dict) else None
    return None


def _cure_of_an_end(name: str, container: Manifest) -> str:
    if text_at(_end(container), "reason") == "OOMKilled":
        return "It had less memory than it needs: raise `resources.limits.memory` of the spec."
    return f"`kubectl logs {name} -c broker --previous` says why."


def _refused(events: Sequence[Manifest]) -> str | None:
    """Why the cluster makes no pod; None if it did not refuse the last attempt."""
    attempts = [
        event
        for event in events
        if event.get("reason") == "FailedCreate"
        # The one of a claim comes before the pod is tried.
        or (event.get("reason") == "SuccessfulCreate" and " claim " not in (text_at(event, "message") or "").lower())
    ]
    newest = max(attempts, key=_time, default=None)
    if newest is None or newest.get("reason") != "FailedCreate":
        return None
    message = text_at(newest, "message") or ""
    found = _OF_A_CREATION.match(message)
    what, said = (found[1], found[2]) if found else ("", message)
    cure = next(cure for pattern, cure in _CURES_OF_REFUSALS if pattern.search(said))
    return f"The cluster refuses {what or 'the pod'}: {_sentence(said)}{cure}. It tries again within 17 minutes."


def _not_scheduled(pod: Manifest) -> str | None:
    """What the scheduler says; None if the pod has a node, or was not looked at."""
    for condition in items_of(pod, "status", "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return text_at(condition, "message") or ""
    return None


def _unschedulable(name: str, said: str, events: Sequence[Manifest]) -> str:
    fact = f"Pod {name} can't be scheduled: {_sentence(said)}"
    newest: dict[str, Manifest] = {}
    for event in sorted(events, key=_time):
        if event.get("type") == "Warning":
            newest[text_at(event, "involvedObject", "name") or ""] = event
    if newest:
        of_claims = "".join(
            f"Claim {claim}: {_sentence(text_at(event, 'message'))}" for claim, event in sorted(newest.items())
        )
        return (
            f"{fact}{of_claims}Give the cluster what the claim asks for. If `storage.storageClassName` is wrong, make "
            "the Broker anew with another; it has no messages yet."
        )
    return (
        f"{fact}Give the cluster a node that fits, or change `pod` or `resources` of the spec; the cluster tries again "
        "by itself."
    )


def _being_created(name: str, node: str, waiting: str, broker: Manifest, events: Sequence[Manifest]) -> str:
    said = _sentence(text_at(broker, "state", "waiting", "message"))
    warning = max((event for event in events if event.get("type") == "Warning"), key=_time, default=None)
    if warning is not None:
        told = _sentence(text_at(warning, "message"))
        return f"Pod {name}: {waiting}. {said}Node {node} warns ({text_at(warning, 'reason')}): {told}".rstrip()
    if said:
        return f"Pod {name}: {waiting}. {said}".rstrip()
    return (
        f"Pod {name}: {waiting}. If this lasts, a volume can't be attached to node {node} or mounted there; the "
        "cluster takes one from a node that is lost after about six minutes. "
        f"`kubectl describe pod {name}` says why."
    )


def _time(event: Manifest) -> str:
    """When an Event happened last, RFC 3339; those of the newer API have another field."""
    return (
        text_at(event, "series", "lastObservedTime")
        or text_at(event, "lastTimestamp")
        or text_at(event, "eventTime")
        or text_at(event, "metadata", "creationTimestamp")
        or ""
    )


def _sentence(said: str | None) -> str:
    """What another program says, with one full stop and a space behind it; empty if it says nothing."""
    words = (said or "").strip().rstrip(".")
    return f"{words}. " if words else ""
