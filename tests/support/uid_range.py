"""What OpenShift's `restricted-v2` does to the pods of a namespace, done by policies of the API server.

A pod that names a user or a group of its own is refused. Every other one gets a number from the range of the namespace
for its containers, with the image's group 0, and the same number as the group of its volumes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from e2e.kube import Kube, pick, wait_for
from e2e.story import StoryError

__all__ = ["REFUSED", "UID", "pod", "uid_range"]

UID: Final = 1_000_650_000
REFUSED: Final = "not in the range"
_API: Final = "admissionregistration.k8s.io/v1"
_PODS: Final = {
    "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
}


def _containers(field: str) -> str:
    security = f"Object.spec.{field}.securityContext{{runAsUser: {UID}}}"
    return (
        f"{field}: has(object.spec.{field}) ? object.spec.{field}.map(c, "
        f"Object.spec.{field}{{name: c.name, securityContext: {security}}}) : []"
    )


_NUMBERS: Final = (
    f"Object{{spec: Object.spec{{securityContext: Object.spec.securityContext{{fsGroup: {UID}}}, "
    f"{_containers('containers')}, {_containers('initContainers')}}}}}"
)
_OWN: Final = (
    "!has(object.spec.securityContext) || ["
    "has(object.spec.securityContext.runAsUser), has(object.spec.securityContext.runAsGroup), "
    "has(object.spec.securityContext.fsGroup)].all(it, !it)",
    "object.spec.containers.all(c, !has(c.securityContext) || "
    "!(has(c.securityContext.runAsUser) || has(c.securityContext.runAsGroup)))",
)


def pod(user: int | None = None) -> str:
    """A pod that Pod Security level restricted admits, as JSON, with or without a user of its own."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    own = {} if user is None else {"runAsUser": user}
    container = {"name": "pod", "image": "pod", "securityContext": {**security, **own}}
    of_the_pod = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"securityContext": of_the_pod, "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec})


def _is_in_force(kube: Kube) -> bool:
    """Whether a pod gets a number and another, with a number of its own, is refused."""
    dry = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    try:
        numbered = json.loads(kube.kubectl(*dry, stdin=pod()))
    except StoryError as error:
        if REFUSED not in str(error) and "serviceaccount" not in str(error):
            raise
        return False  # the second policy is in force and the first is not, or the namespace is not yet complete
    if pick(numbered, "spec", "containers", 0, "securityContext", "runAsUser") != UID:
        return False
    try:
        kube.kubectl(*dry, stdin=pod(user=10001))
    except StoryError as error:
        if REFUSED not in str(error):
            raise
        return True
    return False


@contextmanager
def uid_range(kube: Kube) -> Generator[None]:
    """Namespaces with the label of this block's name have such a range: `kube`'s own has it during the block."""
    name = f"uid-range-{secrets.token_hex(3)}"
    match = {"namespaceSelector": {"matchLabels": {"uid-range": name}}}
    objects = [
        # What names numbers of its own is not changed, and so refused by the second.
        _policy("MutatingAdmissionPolicy", name, {
            "matchConditions": [{"name": f"own-{at}", "expression": text} for at, text in enumerate(_OWN)],
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": _NUMBERS}}],
        }),
        _policy("ValidatingAdmissionPolicy", name, {
            "validations": [{
                "expression": f"object.spec.containers.all(c, has(c.securityContext.runAsUser) && "
                f"c.securityContext.runAsUser == {UID} && !has(c.securityContext.runAsGroup)) && "
                f"object.spec.securityContext.fsGroup == {UID}",
                "message": f"a user or group of the pod's own is {REFUSED} of the namespace",
            }],
        }),
        _binding("MutatingAdmissionPolicy", name, {"matchResources": match}),
        _binding("ValidatingAdmissionPolicy", name, {"matchResources": match, "validationActions": ["Deny"]}),
    ]  # fmt: skip
    try:
        kube.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        kube.kubectl("label", "namespace", kube.namespace, f"uid-range={name}", "--overwrite")
        # An API server takes policies up a while after it has accepted them; pods that come before pass as they are.
        wait_for("the policies to be in force", lambda: _is_in_force(kube), seconds=120)
        yield
    finally:
        kube.kubectl("label", "namespace", kube.namespace, "uid-range-")
        for kind in ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"):
            kube.kubectl("delete", f"{kind}Binding,{kind}", name, "--ignore-not-found")


def _policy(kind: str, name: str, rest: dict[str, Any]) -> dict[str, Any]:
    spec = {"failurePolicy": "Fail", "matchConstraints": _PODS, **rest}
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _binding(kind: str, name: str, rest: dict[str, Any]) -> dict[str, Any]:
    about = {"apiVersion": _API, "kind": f"{kind}Binding", "metadata": {"name": name}}
    return {**about, "spec": {"policyName": name, **rest}}
