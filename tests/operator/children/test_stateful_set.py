"""The whole manifest of the StatefulSet, and what pins it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from support.resources import broker

from penstock_operator.children import page_account, stateful_set
from penstock_operator.children.metadata import child_metadata
from penstock_operator.children.stateful_set import LATEST, PinnedPods, broker_stateful_set, pin
from penstock_operator.manifest import Manifest

PINNED = PinnedPods(image="r/broker:1", default_image="r/broker:1", revision=1)
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
SELECTOR = {"app.kubernetes.io/name": "penstock-broker", "app.kubernetes.io/instance": "main"}

OF_CLAIMS = {"app.kubernetes.io/name": "penstock-broker", "penstock.dev/broker": "main"}
"""Not app.kubernetes.io/instance: by that label Argo CD may take claims for its own, which have no owner."""


def made(**spec: Any) -> Any:
    return broker_stateful_set(broker(**spec), PINNED)[0]


def test_the_whole_of_it() -> None:
    result = made()
    config = result["spec"]["template"]["metadata"]["annotations"]["penstock.dev/config"]
    assert result == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": "main",
            "namespace": "shop",
            "labels": {
                **SELECTOR,
                "app.kubernetes.io/managed-by": "penstock-operator",
                "penstock.dev/broker": "main",
            },
            "ownerReferences": [
                {
                    "apiVersion": "penstock.dev/v1alpha1",
                    "kind": "Broker",
                    "name": "main",
                    "uid": "uid-main",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "annotations": {"penstock.dev/default-image": "r/broker:1", "penstock.dev/pod-revision": "1"},
        },
        "spec": {
            "replicas": 1,
            "serviceName": "main-pods",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": OF_CLAIMS},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "template": {
                "metadata": {
                    "labels": {**SELECTOR, "penstock.dev/broker": "main"},
                    "annotations": {"penstock.dev/config": config},
                },
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 10001,
                        "runAsGroup": 10001,
                        "fsGroup": 10001,
                        "fsGroupChangePolicy": "OnRootMismatch",
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "terminationGracePeriodSeconds": 30,
                    "containers": [BROKER, OBSERVER],
                    "volumes": [
                        {"name": "run", "emptyDir": {"sizeLimit": "16Mi"}},
                        {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
                        {"name": "config", "configMap": {"name": "main-config"}},
                        {"name": "tls", "secret": {"secretName": "main-amqp", "defaultMode": 0o440}},
                        {"name": "management", "secret": {"secretName": "main-management", "defaultMode": 0o440}},
                        {"name": "observer", "secret": {"secretName": "main-observer", "defaultMode": 0o440}},
                    ],
                },
            },
            "volumeClaimTemplates": [claim("data", "10Gi"), claim("ledger", "2Gi")],
        },
    }


def claim(name: str, size: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": OF_CLAIMS},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    }


BROKER = {
    "name": "broker",
    "image": "r/broker:1",
    "imagePullPolicy": "IfNotPresent",
    "args": ["broker", "--data", "/var/lib/penstock/data", "--config", "/etc/penstock/broker/broker.yaml"],
    "ports": [
        {"name": "amqps", "containerPort": 5671, "protocol": "TCP"},
        {"name": "management", "containerPort": 5670, "protocol": "TCP"},
        {"name": "probes", "containerPort": 8081, "protocol": "TCP"},
    ],
    "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
    "securityContext": RESTRICTED,
    "startupProbe": {
        "httpGet": {"path": "/livez", "port": "probes"},
        "periodSeconds": 2,
        "timeoutSeconds": 5,
        "failureThreshold": 300,
    },
    "livenessProbe": {
        "httpGet": {"path": "/livez", "port": "probes"},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": 6,
    },
    "readinessProbe": {
        "httpGet": {"path": "/readyz", "port": "probes"},
        "periodSeconds": 2,
        "timeoutSeconds": 5,
        "failureThreshold": 2,
    },
    "volumeMounts": [
        {"name": "data", "mountPath": "/var/lib/penstock/data"},
        {"name": "run", "mountPath": "/run/penstock"},
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "config", "mountPath": "/etc/penstock/broker", "readOnly": True},
        {"name": "tls", "mountPath": "/etc/penstock/tls", "readOnly": True},
        {"name": "management", "mountPath": "/etc/penstock/management", "readOnly": True},
    ],
}
OBSERVER: dict[str, Any] = {
    "name": "observer",
    "image": "r/broker:1",
    "imagePullPolicy": "IfNotPresent",
    "args": [
        "observer",
        "--broker-socket=/run/penstock/observer.sock",
        "--ledger=/var/lib/penstock/ledger",
        "--listen=0.0.0.0:8080",
        "--token-file=/etc/penstock/observer/token",
        "--tls-cert=/etc/penstock/tls/tls.crt",
        "--tls-key=/etc/penstock/tls/tls.key",
        "--broker=main",
        "--namespace=shop",
    ],
    "ports": [{"name": "observer", "containerPort": 8080, "protocol": "TCP"}],
    "resources": {"requests": {"cpu": "20m", "memory": "128Mi"}},
    "securityContext": RESTRICTED,
    "volumeMounts": [
        {"name": "ledger", "mountPath": "/var/lib/penstock/ledger"},
        {"name": "run", "mountPath": "/run/penstock"},
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "tls", "mountPath": "/etc/penstock/tls", "readOnly": True},
        {"name": "observer", "mountPath": "/etc/penstock/observer", "readOnly": True},
    ],
}


def test_the_page_shows_messages_only_if_the_spec_says_so() -> None:
    def arguments(**spec: Any) -> Any:
        return made(**spec)["spec"]["template"]["spec"]["containers"][1]["args"]

    shows = arguments(page={"showMessages": True})
    assert shows == [*arguments(), "--messages-token-file=/etc/penstock/observer/messages.token"]
    assert arguments(page={"showMessages": False}) == arguments()


def test_what_is_logged_is_told_by_variables_and_only_if_it_is_not_the_default() -> None:
    """A default that was written as an option would restart every pod when the operator is upgraded."""

    def environments(**spec: Any) -> list[Any]:
        containers = made(**spec)["spec"]["template"]["spec"]["containers"]
        return [each.get("env") for each in containers]

    assert environments() == environments(logging={"level": "Info", "format": "Text"}) == [None, None]
    assert environments(logging={"level": "Debug", "format": "Json"}) == [
        [
            {"name": f"PENSTOCK_{process}_LOG_LEVEL", "value": "debug"},
            {"name": f"PENSTOCK_{process}_LOG_FORMAT", "value": "json"},
        ]
        for process in ("BROKER", "OBSERVER")
    ]
    assert environments(logging={"format": "Json"}, page={"serviceAccountLogin": True})[1] == [
        {"name": "PENSTOCK_OBSERVER_ACCOUNT", "value": "/etc/penstock/account"},
        {"name": "PENSTOCK_OBSERVER_LOG_FORMAT", "value": "json"},
    ]


def test_only_the_observer_gets_a_token_of_the_api_server_and_only_if_the_spec_says_so() -> None:
    pod = made(page={"serviceAccountLogin": True})["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("main-observer", False)
    account = {"name": "account", "mountPath": "/etc/penstock/account", "readOnly": True}
    assert pod["containers"] == [
        BROKER,
        {
            **OBSERVER,
            "env": [{"name": "PENSTOCK_OBSERVER_ACCOUNT", "value": "/etc/penstock/account"}],
            "volumeMounts": [*OBSERVER["volumeMounts"], account],
        },
    ]
    assert pod["volumes"][-1] == {
        "name": "account",
        "projected": {
            "defaultMode": 0o440,
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            ],
        },
    }
    assert made(page={"serviceAccountLogin": False}) == made()


def test_the_account_of_the_observer_mounts_nothing_by_itself() -> None:
    assert page_account.manifests(broker()) == []
    (account,) = page_account.manifests(broker(page={"serviceAccountLogin": True}))
    assert (account["kind"], account["automountServiceAccountToken"]) == ("ServiceAccount", False)
    assert account["metadata"] == child_metadata(broker(), broker(), "main-observer")


def test_who_signs_clients_certificates_is_mounted_where_the_spec_names_it() -> None:
    pod = made(authentication={"clientCaSecretRef": {"name": "signers"}})["spec"]["template"]["spec"]
    assert {"name": "client-ca", "secret": {"secretName": "signers", "defaultMode": 0o440}} in pod["volumes"]
    mount = {"name": "client-ca", "mountPath": "/etc/penstock/client-ca", "readOnly": True}
    mounts = {container["name"]: container["volumeMounts"] for container in pod["containers"]}
    assert mount in mounts["broker"]
    assert mount not in mounts["observer"]


def test_keys_of_issuers_are_mounted_by_their_place() -> None:
    tokens = [{"issuer": it, "keysConfigMapRef": {"name": f"keys-of-{it}"}} for it in ("a", "b")]
    pod = made(authentication={"tokens": tokens})["spec"]["template"]["spec"]
    assert {"name": "token-keys-1", "configMap": {"name": "keys-of-b"}} in pod["volumes"]
    mount = {"name": "token-keys-1", "mountPath": "/etc/penstock/token-keys/1", "readOnly": True}
    assert mount in {container["name"]: container["volumeMounts"] for container in pod["containers"]}["broker"]


def test_web_sockets_have_a_port_of_their_own() -> None:
    containers = made(listeners={"webSocket": True})["spec"]["template"]["spec"]["containers"]
    ports = {container["name"]: container["ports"] for container in containers}["broker"]
    assert {"name": "wss", "containerPort": 5443, "protocol": "TCP"} in ports


def test_users_are_mounted_where_the_spec_names_them() -> None:
    pod = made(authentication={"usersSecretRef": {"name": "people"}})["spec"]["template"]["spec"]
    assert {"name": "users", "secret": {"secretName": "people", "defaultMode": 0o440}} in pod["volumes"]
    mount = {"name": "users", "mountPath": "/etc/penstock/users", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]
    assert mount not in pod["containers"][1]["volumeMounts"]


def test_a_limit_below_what_we_ask_for_by_default_lowers_the_request() -> None:
    """The API server refuses a pod that asks for more than its limit, and would name a request that nobody wrote."""
    small = {"limits": {"memory": "128Mi", "cpu": "2"}}
    asked = {"requests": {"memory": "64Mi"}, "limits": {"memory": "64Mi", "cpu": "10m"}}
    pod = made(resources=small, observerResources=asked)["spec"]["template"]["spec"]
    assert [it["resources"] for it in pod["containers"]] == [
        {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "128Mi", "cpu": "2"}},
        {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "64Mi", "cpu": "10m"}},
    ]


def test_a_person_s_labels_can_t_take_ours_away() -> None:
    template = made(pod={"labels": {"app.kubernetes.io/name": "evil", "team": "shop"}})["spec"]["template"]
    assert template["metadata"]["labels"] == {**SELECTOR, "penstock.dev/broker": "main", "team": "shop"}


def test_the_user_is_the_namespace_s_if_the_spec_says_so() -> None:
    pod = made(pod={"user": "Namespace"})["spec"]["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_other_settings_make_other_pods_and_the_same_ones_do_not() -> None:
    def config(**spec: Any) -> object:
        return made(**spec)["spec"]["template"]["metadata"]["annotations"]["penstock.dev/config"]

    assert config() == config(replicas=0)
    assert config() != config(maxMessageSize="1Mi")


def observed(image: str, default: str, revision: str = "1") -> Manifest:
    made = broker_stateful_set(broker(image=image), PinnedPods(image, default, 1))[0]
    annotations = cast(Any, made)["metadata"]["annotations"]
    annotations["penstock.dev/pod-revision"] = revision
    return made


def test_a_new_broker_gets_the_operator_s_default_and_newest_revision() -> None:
    assert pin(broker(), None, "r/broker:2") == PinnedPods("r/broker:2", "r/broker:2", LATEST)


def test_an_upgrade_of_the_operator_changes_nothing_of_a_broker_that_is_there() -> None:
    before, after = PINNED, pin(broker(), observed("r/broker:1", "r/broker:1"), "r/broker:2")
    assert after == before
    assert broker_stateful_set(broker(), after) == broker_stateful_set(broker(), before)


def test_the_spec_s_image_wins_and_the_kept_default_comes_back_when_it_is_taken_out() -> None:
    there = observed("r/broker:1", "r/broker:1")
    assert pin(broker(image="mine:7"), there, "r/broker:2").image == "mine:7"
    assert pin(broker(), observed("mine:7", "r/broker:1"), "r/broker:2").image == "r/broker:1"


def test_a_revision_is_kept_with_its_image_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateful_set, "LATEST", 2)
    there = observed("r/broker:1", "r/broker:1")
    assert pin(broker(), there, "r/broker:2").revision == 1
    assert pin(broker(image="r/broker:2"), there, "r/broker:2").revision == 2


def test_an_unreadable_revision_is_the_newest() -> None:
    assert pin(broker(), observed("r/broker:1", "r/broker:1", "what?"), "x").revision == LATEST


def test_the_record_outlives_the_stateful_set() -> None:
    """While the StatefulSet of a growing volume is made again, another release must not change the pod."""
    known = PinnedPods("r/broker:1", "r/broker:1", 1, frozenset({"settings.announce"}))
    made_before, config_map = broker_stateful_set(broker(), known)
    assert stateful_set.is_recorded(made_before, config_map)
    assert pin(broker(), None, "r/broker:2", config_map) == known
    assert pin(broker(image="mine:7"), None, "r/broker:2", config_map) == PinnedPods("mine:7", "r/broker:1", LATEST)
    of_another: Any = broker_stateful_set(broker(metadata={"uid": "uid-before"}), known)[1]
    assert pin(broker(), None, "r/broker:2", of_another) == pin(broker(), None, "r/broker:2")
    later: Any = broker_stateful_set(broker(), PinnedPods("r/broker:1", "r/broker:2", 1))[0]
    of_other_image: Any = broker_stateful_set(broker(), PinnedPods("mine:7", "r/broker:1", 1, known.understood))[0]
    assert not stateful_set.is_recorded(later, config_map)
    assert not stateful_set.is_recorded(of_other_image, config_map)
    assert not stateful_set.is_recorded(made_before, None)


def test_a_stateful_set_keeps_the_sizes_that_it_has() -> None:
    kept: Any = broker_stateful_set(broker(storage={"size": "20Gi"}), PINNED, "", {"data": "10Gi", "ledger": "1Gi"})[0]
    assert kept["spec"]["volumeClaimTemplates"] == [claim("data", "10Gi"), claim("ledger", "1Gi")]


def test_one_of_an_earlier_release_keeps_its_selector_and_the_labels_of_its_claims() -> None:
    """They can't be changed, and the API server would refuse the whole StatefulSet."""
    before: Manifest = {"metadata": {"name": "main"}, "spec": {"selector": {"matchLabels": SELECTOR}}}
    kept: Any = broker_stateful_set(broker(), PINNED, observed=before)[0]
    assert kept["spec"]["selector"] == {"matchLabels": SELECTOR}
    assert [it["metadata"]["labels"] for it in kept["spec"]["volumeClaimTemplates"]] == [SELECTOR, SELECTOR]
    assert kept["spec"]["template"] == made()["spec"]["template"], "so its pod is not replaced, if it is made again"
