"""The StatefulSet of a Broker. Pure.

An operator upgrade never rolls broker pods. So what the pods are made with is *pinned* on the StatefulSet itself: the
default image that the Broker was made with, and the pod revision, that is which of this module's templates. A new
version of the operator may add a revision; a StatefulSet gets it when its image changes anyway. Source: section 5 of
the design.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import yaml

from penstock_api import understanding
from penstock_api.resources import Broker
from penstock_operator import names
from penstock_operator.children import cluster_issuer, configuration, services
from penstock_operator.manifest import Manifest, items_of, text_at

__all__ = ["LATEST", "Pinned", "image_of", "not_understood", "pin", "revision_of", "running_image", "stateful_set"]

IMAGE_ANNOTATION: Final = "penstock.dev/default-image"
REVISION_ANNOTATION: Final = "penstock.dev/pod-revision"
CONFIG_ANNOTATION: Final = "penstock.dev/config"
UNDERSTOOD_ANNOTATION: Final = "penstock.dev/understood-settings"
_USER: Final = 10001

_BROKER_REQUESTS: Final[dict[str, str]] = {"cpu": "100m", "memory": "256Mi"}
_OBSERVER_REQUESTS: Final[dict[str, str]] = {"cpu": "20m", "memory": "128Mi"}


@dataclass(frozen=True, slots=True)
class Pinned:
    """What the pods of one Broker are made with, whatever the operator's version."""

    image: str
    """The image in use."""
    default_image: str
    """What `image` is if the spec names none."""
    revision: int
    understood: frozenset[str] | None = None
    """The settings that the image knows (terms of `penstock_api.understanding`); None if it has never told."""


def pin(broker: Broker, observed: Manifest | None, default_image: str) -> Pinned:
    """What holds for a Broker whose StatefulSet is `observed`; None if it has to be made."""
    if observed is None:
        return Pinned(broker.spec.image or default_image, default_image, LATEST)
    kept = text_at(observed, "metadata", "annotations", IMAGE_ANNOTATION) or default_image
    image = broker.spec.image or kept
    running = running_image(observed)
    recorded = text_at(observed, "metadata", "annotations", REVISION_ANNOTATION) or ""
    revision = int(recorded) if recorded.isdigit() and int(recorded) in _REVISIONS else LATEST
    understood = _recorded(observed) if image == running else None
    return Pinned(image, kept, revision if image == running else LATEST, understood)


def _recorded(observed: Manifest) -> frozenset[str] | None:
    """What the image told when it ran last; kept on the StatefulSet, because the broker may be down when it matters."""
    terms = text_at(observed, "metadata", "annotations", UNDERSTOOD_ANNOTATION)
    return None if terms is None else frozenset(f"settings.{term}" for term in terms.split(","))


def running_image(observed: Manifest | None) -> str | None:
    """The image that a StatefulSet makes broker pods with."""
    return _image(items_of(observed, "spec", "template", "spec", "containers"))


def image_of(pod: Manifest | None) -> str | None:
    """The image that a pod was made with; None without a pod."""
    return _image(items_of(pod, "spec", "containers"))


def _image(containers: Iterable[Manifest]) -> str | None:
    return next((text_at(each, "image") for each in containers if each.get("name") == "broker"), None)


def stateful_set(broker: Broker, pinned: Pinned, signed_by: str = "") -> tuple[Manifest, Manifest]:
    """The StatefulSet, and the ConfigMap that its pods read; `signed_by` is the name that the cluster signs tokens
    with.
    """
    revision = revision_of(pinned)
    rendered = revision.settings(broker, signed_by)
    name = broker.metadata.name
    about = services.metadata(
        broker,
        broker,
        name,
        {
            IMAGE_ANNOTATION: pinned.default_image,
            REVISION_ANNOTATION: str(pinned.revision),
            **_understood_annotation(pinned),
        },
    )
    storage = broker.spec.storage
    spec: Manifest = {
        "replicas": broker.spec.replicas,
        "serviceName": f"{name}-pods",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": services.pod_selector(broker)},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": storage.when_deleted, "whenScaled": "Retain"},
        "template": revision.template(broker, pinned.image, configuration.digest(rendered)),
        "volumeClaimTemplates": [_claim(broker, "data", storage.size), _claim(broker, "ledger", storage.ledger_size)],
    }
    made: Manifest = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": about, "spec": spec}
    return made, configuration.config_map(broker, rendered)


def _understood_annotation(pinned: Pinned) -> Manifest:
    if pinned.understood is None:
        return {}
    return {UNDERSTOOD_ANNOTATION: ",".join(sorted(term.removeprefix("settings.") for term in pinned.understood))}


def not_understood(broker: Broker, pinned: Pinned, running: Manifest | None = None) -> tuple[str, ...]:
    """The settings of a Broker that its image, by its own word, can't read.

    An image that has never told can read at least what it runs with, `running`: that ConfigMap's settings; without one
    nothing is known, and nothing held against it.
    """
    wanted = yaml.safe_load(revision_of(pinned).settings(broker, ""))
    if pinned.understood is not None:
        return understanding.missing_settings(wanted, pinned.understood)
    runs_with = text_at(running, "data", configuration.FILE)
    if runs_with is None:
        return ()
    return understanding.missing_settings(wanted, understanding.settings_terms(yaml.safe_load(runs_with)))


@dataclass(frozen=True, slots=True)
class _Revision:
    """One way to make pods; never changed once released."""

    template: Callable[[Broker, str, str], Manifest]
    settings: Callable[[Broker, str], str]


def _claim(broker: Broker, name: str, size: str) -> Manifest:
    spec: Manifest = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if broker.spec.storage.storage_class_name is not None:
        spec["storageClassName"] = broker.spec.storage.storage_class_name
    about = {"name": name, "labels": services.pod_selector(broker)}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": spec}


def _template_1(broker: Broker, image: str, config: str) -> Manifest:
    spec = broker.spec
    pod: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": spec.pod.termination_grace_period_seconds,
        "containers": [_broker_container(broker, image), _observer_container(broker, image)],
        "volumes": _volumes(broker),
    }
    if spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": reference.name} for reference in spec.image_pull_secrets]
    if spec.pod.node_selector:
        pod["nodeSelector"] = dict(spec.pod.node_selector)
    if spec.pod.priority_class_name is not None:
        pod["priorityClassName"] = spec.pod.priority_class_name
    about: Manifest = {
        "labels": {**spec.pod.labels, **services.pod_selector(broker), names.BROKER_LABEL: broker.metadata.name},
        "annotations": {**spec.pod.annotations, CONFIG_ANNOTATION: config},
    }
    return {"metadata": about, "spec": pod}


def _broker_container(broker: Broker, image: str) -> Manifest:
    ports = [_port(str(port["name"]), port["port"]) for port in services.client_ports(broker)]
    mounts = [
        _mount("data", configuration.DATA),
        _mount("run", configuration.RUN),
        _mount("tmp", "/tmp"),
        _mount("config", configuration.CONFIG, read_only=True),
        _mount("tls", configuration.TLS, read_only=True),
        _mount("management", configuration.PASSWORD, read_only=True),
    ]
    if broker.spec.authentication.users_secret_ref is not None:
        mounts.append(_mount("users", configuration.USERS, read_only=True))
    if broker.spec.authentication.client_ca_secret_ref is not None:
        mounts.append(_mount("client-ca", configuration.CLIENT_CA, read_only=True))
    for number, _ in enumerate(broker.spec.authentication.tokens):
        mounts.append(_mount(f"token-keys-{number}", configuration.token_keys(number), read_only=True))
    return {
        "name": "broker",
        "image": image,
        "imagePullPolicy": broker.spec.image_pull_policy,
        "args": ["broker", "--data", configuration.DATA, "--config", f"{configuration.CONFIG}/broker.yaml"],
        "ports": [*ports, _port("management", names.MANAGEMENT_PORT), _port("probes", names.PROBE_PORT)],
        "resources": _resources(_BROKER_REQUESTS, broker.spec.resources.requests, broker.spec.resources.limits),
        "securityContext": _restricted(),
        # Recovery reads the whole log before the probes' port answers: a start may take minutes, a turn may not.
        "startupProbe": _probe("/livez", period=2, failures=300),
        "livenessProbe": _probe("/livez", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=2, failures=2),
        "volumeMounts": mounts,
    }


def _observer_container(broker: Broker, image: str) -> Manifest:
    """No probes: the observer is never on the message path, and the pod stays ready without it."""
    metadata = broker.metadata
    return {
        "name": "observer",
        "image": image,
        "imagePullPolicy": broker.spec.image_pull_policy,
        "args": [
            "observer",
            f"--broker-socket={configuration.SOCKET}",
            f"--ledger={configuration.LEDGER}",
            f"--listen=0.0.0.0:{names.OBSERVER_PORT}",
            f"--token-file={configuration.OBSERVER}/token",
            f"--tls-cert={configuration.TLS}/tls.crt",
            f"--tls-key={configuration.TLS}/tls.key",
            f"--broker={metadata.name}",
            f"--namespace={metadata.namespace}",
        ],
        "ports": [_port("observer", names.OBSERVER_PORT)],
        "resources": _resources(
            _OBSERVER_REQUESTS, broker.spec.observer_resources.requests, broker.spec.observer_resources.limits
        ),
        "securityContext": _restricted(),
        "volumeMounts": [
            _mount("ledger", configuration.LEDGER),
            _mount("run", configuration.RUN),
            _mount("tmp", "/tmp"),
            _mount("tls", configuration.TLS, read_only=True),
            _mount("observer", configuration.OBSERVER, read_only=True),
        ],
    }


def _volumes(broker: Broker) -> list[Manifest]:
    name = broker.metadata.name
    volumes: list[Manifest] = [
        {"name": "run", "emptyDir": {"sizeLimit": "16Mi"}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
        {"name": "config", "configMap": {"name": f"{name}-config"}},
        {"name": "tls", "secret": {"secretName": f"{name}-amqp", "defaultMode": 0o440}},
        {"name": "management", "secret": {"secretName": f"{name}-management", "defaultMode": 0o440}},
        {"name": "observer", "secret": {"secretName": f"{name}-observer", "defaultMode": 0o440}},
    ]
    authentication = broker.spec.authentication
    for volume, reference in (
        ("users", authentication.users_secret_ref),
        ("client-ca", authentication.client_ca_secret_ref),
    ):
        if reference is not None:
            volumes.append({"name": volume, "secret": {"secretName": reference.name, "defaultMode": 0o440}})
    for number, issuer in enumerate(authentication.tokens):
        keys = issuer.keys_config_map_ref
        found = cluster_issuer.config_map_name(broker) if keys is None else keys.name
        volumes.append({"name": f"token-keys-{number}", "configMap": {"name": found}})
    return volumes


def _resources(defaults: dict[str, str], requests: dict[str, str], limits: dict[str, str]) -> Manifest:
    merged = {**defaults, **requests}
    return {"requests": merged, "limits": dict(limits)} if limits else {"requests": merged}


def _restricted() -> Manifest:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _probe(path: str, *, period: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "probes"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _port(name: str, number: object) -> Manifest:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _mount(name: str, path: str, *, read_only: bool = False) -> Manifest:
    return {"name": name, "mountPath": path, "readOnly": True} if read_only else {"name": name, "mountPath": path}


_REVISIONS: Final[dict[int, _Revision]] = {1: _Revision(_template_1, configuration.render)}
LATEST: Final = max(_REVISIONS)


def revision_of(pinned: Pinned) -> _Revision:
    """The way to make pods that is pinned."""
    return _REVISIONS[pinned.revision]
