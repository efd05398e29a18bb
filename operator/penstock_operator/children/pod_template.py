"""The pod template of a Broker: the containers of broker and observer, their probes, mounts and volumes.

A template is never changed once it is released, or an upgrade of the operator would replace the pods of every Broker.
What has to be different is a new function, and a new revision in `stateful_set`. Source:
docs/decisions/051-broker-pods.md.
"""

from __future__ import annotations

from typing import Final

from penstock_api.observer_tokens import MESSAGES_TOKEN
from penstock_api.quantity import parse_quantity
from penstock_api.resources import Broker
from penstock_operator import names
from penstock_operator.children import cluster_issuer, configuration, page_account, server_certificate
from penstock_operator.children.metadata import pod_selector
from penstock_operator.children.placement import placement
from penstock_operator.children.services import client_ports
from penstock_operator.manifest import Manifest

__all__ = ["template_1"]

CONFIG_ANNOTATION: Final = "penstock.dev/config"


_USER: Final = 10001
_FIXED_USER: Final[Manifest] = {"runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER}


_BROKER_REQUESTS: Final[dict[str, str]] = {"cpu": "100m", "memory": "256Mi"}


_OBSERVER_REQUESTS: Final[dict[str, str]] = {"cpu": "20m", "memory": "128Mi"}


def template_1(broker: Broker, image: str, config: str, host: str = names.ALL_IPV4) -> Manifest:
    """The pod template of revision 1; `config` is the digest of the settings file, and `host` what stands for all
    addresses of a pod.
    """
    spec = broker.spec
    pod: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            **({} if spec.pod.user == "Namespace" else _FIXED_USER),
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": spec.pod.termination_grace_period_seconds,
        "containers": [_broker_container(broker, image), _observer_container(broker, image, host)],
        "volumes": _volumes(broker),
    }
    if spec.page.service_account_login:
        pod["serviceAccountName"] = page_account.name_of(broker)
    if spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": reference.name} for reference in spec.image_pull_secrets]
    if spec.pod.node_selector:
        pod["nodeSelector"] = dict(spec.pod.node_selector)
    if spec.pod.priority_class_name is not None:
        pod["priorityClassName"] = spec.pod.priority_class_name
    pod |= placement(broker)
    about: Manifest = {
        "labels": {**spec.pod.labels, **pod_selector(broker), names.BROKER_LABEL: broker.metadata.name},
        "annotations": {**spec.pod.annotations, CONFIG_ANNOTATION: config},
    }
    return {"metadata": about, "spec": pod}


def _broker_container(broker: Broker, image: str) -> Manifest:
    ports = [_port(str(port["name"]), port["port"]) for port in client_ports(broker)]
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
    if broker.spec.tls.is_own:
        mounts.append(_mount("server-tls", server_certificate.FOLDER, read_only=True))
    for number, _ in enumerate(broker.spec.authentication.tokens):
        mounts.append(_mount(f"token-keys-{number}", configuration.token_keys(number), read_only=True))
    return {
        "name": "broker",
        "image": image,
        "imagePullPolicy": broker.spec.image_pull_policy,
        "args": ["broker", "--data", configuration.DATA, "--config", f"{configuration.CONFIG}/broker.yaml"],
        **_environment(_log_variables(broker, "BROKER")),
        "ports": [*ports, _port("management", names.MANAGEMENT_PORT), _port("probes", names.PROBE_PORT)],
        "resources": _resources(_BROKER_REQUESTS, broker.spec.resources.requests, broker.spec.resources.limits),
        "securityContext": _restricted(),
        # The broker answers /livez from its first second, as long as its start or its loop advances. What may take
        # long before that is the volume and the image, so the startup probe waits.
        "startupProbe": _probe("/livez", period=2, failures=300),
        "livenessProbe": _probe("/livez", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=2, failures=2),
        "volumeMounts": mounts,
    }


def _log_variables(broker: Broker, process: str) -> list[Manifest]:
    """What `spec.logging` says, as variables, because a process of an earlier release ignores one that it does not
    know. None for what has its default, so that an operator's upgrade restarts no pod.
    """
    return [
        {"name": f"PENSTOCK_{process}_{name.upper().replace('-', '_')}", "value": word}
        for name, word in broker.spec.logging.options().items()
    ]


def _environment(variables: list[Manifest]) -> Manifest:
    return {"env": variables} if variables else {}


def _observer_container(broker: Broker, image: str, host: str) -> Manifest:
    """The observer has no probes: messages do not pass through it, and the pod stays ready when it fails."""
    metadata = broker.metadata
    asks = broker.spec.page.service_account_login
    return {
        "name": "observer",
        "image": image,
        "imagePullPolicy": broker.spec.image_pull_policy,
        "args": [
            "observer",
            f"--broker-socket={configuration.SOCKET}",
            f"--ledger={configuration.LEDGER}",
            f"--listen={host}:{names.OBSERVER_PORT}",
            f"--token-file={configuration.OBSERVER}/token",
            f"--tls-cert={configuration.TLS}/tls.crt",
            f"--tls-key={configuration.TLS}/tls.key",
            f"--broker={metadata.name}",
            f"--namespace={metadata.namespace}",
            *_page_arguments(broker),
        ],
        **_environment([*(page_account.environment() if asks else ()), *_log_variables(broker, "OBSERVER")]),
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
            *([_mount(page_account.VOLUME, page_account.FOLDER, read_only=True)] if asks else []),
        ],
    }


def _page_arguments(broker: Broker) -> list[str]:
    """An image that knows the setting `observerPeek` also knows this option."""
    return (
        [f"--messages-token-file={configuration.OBSERVER}/{MESSAGES_TOKEN}"] if broker.spec.page.show_messages else []
    )


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
    if broker.spec.page.service_account_login:
        volumes.append(page_account.volume())
    authentication = broker.spec.authentication
    for volume, reference in (
        ("users", authentication.users_secret_ref),
        ("client-ca", authentication.client_ca_secret_ref),
    ):
        if reference is not None:
            volumes.append({"name": volume, "secret": {"secretName": reference.name, "defaultMode": 0o440}})
    own_certificate = server_certificate.secret_name(broker)
    if own_certificate is not None:
        volumes.append({"name": "server-tls", "secret": {"secretName": own_certificate, "defaultMode": 0o440}})
    for number, issuer in enumerate(authentication.tokens):
        keys = issuer.keys_config_map_ref
        found = cluster_issuer.config_map_name(broker) if keys is None else keys.name
        volumes.append({"name": f"token-keys-{number}", "configMap": {"name": found}})
    return volumes


def _resources(defaults: dict[str, str], requests: dict[str, str], limits: dict[str, str]) -> Manifest:
    merged = {**{name: _at_most(amount, limits.get(name)) for name, amount in defaults.items()}, **requests}
    return {"requests": merged, "limits": dict(limits)} if limits else {"requests": merged}


def _at_most(amount: str, limit: str | None) -> str:
    """A default that fits the limit: the API server takes no pod that asks for more."""
    return amount if limit is None or parse_quantity(amount) <= parse_quantity(limit) else limit


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
