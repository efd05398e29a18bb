"""Where a Broker runs and how clients reach it, on a cluster: placement, a port outside, certificates and their CA."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from e2e.kube import wait_for
from e2e.story import StoryError
from support.cluster_certificates import apply_certificate, bring_files, shown, trust, trusts
from support.installed_operator import MINUTE, Installation, Team, whole

from penstock_operator.children import certificates

pytestmark = pytest.mark.cluster

BROKERS = {"matchLabels": {"app.kubernetes.io/name": "penstock-broker"}}
PLACEMENT = {
    "tolerations": [{"operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}]
            }
        },
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": BROKERS}}
            ]
        },
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": BROKERS,
            "nodeTaintsPolicy": "Honor",
        }
    ],
    "eviction": "Refuse",
}
NAME = "broker.example.com"


@pytest.fixture(scope="module")
def reached(installation: Installation) -> Iterator[Team]:
    """A Broker with everything that says where it runs and who reaches it."""
    with installation.team() as made:
        made.apply_whole(
            listeners={"amqp": True},
            pod=PLACEMENT,
            networkPolicy={},
            externalService={"type": "NodePort", "externalTrafficPolicy": "Local"},
            tls={"names": [NAME, "192.0.2.7"]},
            allowedNamespaces=["*"],
        )
        made.wait_ready()
        yield made


def test_the_pod_is_where_the_spec_says_and_leaves_a_lost_node(reached: Team) -> None:
    spec: Any = reached.field("pod", "main-0", "spec")
    assert spec["topologySpreadConstraints"] == PLACEMENT["topologySpreadConstraints"]
    assert spec["affinity"] == PLACEMENT["affinity"]
    lost = [it for it in spec["tolerations"] if it.get("tolerationSeconds") == 300]
    assert sorted(it["key"] for it in lost) == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


def test_a_drain_is_refused_while_the_spec_says_so(reached: Team) -> None:
    about = {"name": "main-0", "namespace": reached.kube.namespace}
    eviction = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about})
    path = f"/api/v1/namespaces/{reached.kube.namespace}/pods/main-0/eviction"
    with pytest.raises(StoryError, match="Cannot evict pod as it would violate the pod's disruption budget"):
        reached.kube.kubectl("create", "--raw", path, "-f", "-", stdin=eviction)


def test_clients_outside_reach_it_by_the_address_in_the_status(reached: Team) -> None:
    node_port = reached.field("service", "main-external", "spec", "ports", 0, "nodePort")
    address = wait_for("the address", lambda: reached.field("broker", "main", "status", "externalAddress"), MINUTE)
    assert address == f"amqps://{NAME}:{node_port}"
    assert [it["name"] for it in reached.field("service", "main-external", "spec", "ports")] == ["amqps"]
    node = reached.field("pod", "main-0", "status", "hostIP")
    context = ssl.create_default_context(cadata=trust(reached))
    for name in (NAME, "192.0.2.7", f"main-amqp.{reached.kube.namespace}.svc"):
        with socket.create_connection((str(node), int(node_port)), MINUTE) as plain:
            context.wrap_socket(plain, server_hostname=name).close()


def test_a_namespace_that_uses_it_gets_its_ca_and_its_name_into_the_certificate(
    reached: Team, installation: Installation
) -> None:
    with installation.team() as other:
        _, exchange, *_ = whole()
        exchange["metadata"]["name"] = "parcels"
        exchange["spec"]["brokerRef"]["namespace"] = reached.kube.namespace
        other.apply(exchange)
        other.wait_ready("exchange/parcels")
        name = f"{reached.kube.namespace}.main-ca"
        reached.look()
        wait_for("the ConfigMap", lambda: trust(other, name) == trust(reached), 3 * MINUTE)
        bring_files(reached)
        host = f"parcels-x.{other.kube.namespace}.svc"
        wait_for(host, lambda: trusts(reached, 5671, trust(other, name), name=host), 2 * MINUTE)
        other.kube.kubectl("delete", "exchange", "parcels", "--wait")
        wait_for("the ConfigMap to go with the Exchange", lambda: not trust(other, name), MINUTE)


def test_a_rotation_turns_away_neither_who_trusts_the_old_ca_nor_who_trusts_the_new_one(reached: Team) -> None:
    old, before = trust(reached), shown(reached, 5671, trust(reached), name=NAME)
    uid = reached.field("pod", "main-0", "metadata", "uid")
    reached.kube.kubectl("annotate", "broker", "main", "penstock.dev/rotate-ca=1")
    wait_for("a new CA", lambda: trust(reached) != old, MINUTE)
    new = reached.kube.secret("main-ca", "ca.crt") or ""
    assert trust(reached) == new + old
    bring_files(reached)

    def served() -> bool:
        """Whether the new certificate is served; who trusts the old CA is never turned away meanwhile."""
        return shown(reached, 5671, old, name=NAME) != before

    wait_for("the new certificate", served, 2 * MINUTE)
    assert trusts(reached, 5671, new, name=NAME)
    assert trusts(reached, 5671, old, name=NAME)
    assert trusts(reached, 5671, old, new, name=NAME)
    # The operator's own connection goes on with the new CA: what is declared now reaches the broker.
    _, exchange, *_ = whole()
    exchange["metadata"]["name"] = "after"
    reached.apply(exchange)
    reached.wait_ready("broker/main", "exchange/after")
    assert reached.field("pod", "main-0", "metadata", "uid") == uid, "no pod was restarted"


def test_clients_see_a_certificate_of_somebody_else_s_and_the_operator_its_own(reached: Team) -> None:
    now = datetime.now(UTC)
    theirs = certificates.make_ca("theirs", now)
    reached.kube.kubectl(
        "patch", "broker", "main", "--type=merge", '--patch={"spec":{"tls":{"secretRef":{"name":"mine"}}}}'
    )
    wait_for(
        "the missing Secret to be told",
        lambda: reached.reason("broker", "main", "Accepted") == ("False", "ServerCertificateNotFound"),
        MINUTE,
    )
    assert trusts(reached, 5671, trust(reached), name=NAME), "the pod goes on with what it has"
    pair = certificates.make_server(theirs, (NAME,), now)
    authority = theirs.certificate.decode()
    apply_certificate(reached, "mine", pair, authority)

    def is_theirs() -> bool:
        try:
            return trusts(reached, 5671, authority, name=NAME)
        except OSError:
            return False  # The pod is being replaced.

    wait_for("their certificate", is_theirs, 3 * MINUTE)
    reached.wait_ready()
    wait_for(
        "its names to be told",
        lambda: reached.reason("broker", "main", "ServerCertificate") == ("False", "NamesMissing"),
        MINUTE,
    )
    assert trusts(reached, 5671, trust(reached), name=NAME)


def test_an_issuer_needs_cert_manager(reached: Team) -> None:
    patch = '--patch={"spec":{"tls":{"secretRef":null,"issuerRef":{"name":"company"}}}}'
    reached.kube.kubectl("patch", "broker", "main", "--type=merge", patch)
    wait_for(
        "the missing cert-manager to be told",
        lambda: reached.reason("broker", "main", "Accepted") == ("False", "CertManagerNotInstalled"),
        MINUTE,
    )
    assert reached.reason("broker", "main", "Stalled")[0] == "True"
    assert trusts(reached, 5671, trust(reached), name=NAME), "the pod goes on with what it has"
