"""Resources on a cluster from the clients' side: logins, permissions, routes, dead letters, WebSocket, clients that
share a container-id, and deletions that wait for clients. The tests that share one Broker run in this order.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.kube import ROOT, wait_for
from proton import SSLDomain, Timeout
from proton.utils import BlockingReceiver, LinkDetached
from support.certificates import Authority
from support.cluster_images import images
from support.installed_operator import MINUTE, Installation, Team, whole
from support.proton_client import Subscribed, connected, publish, take

from penstock_api.management import EntityType

pytestmark = pytest.mark.cluster

PERMISSIONS = [
    {"users": ["anonymous"], "actions": ["Publish"], "exchanges": ["parcels"]},
    {"users": ["anonymous"], "actions": ["Consume"], "subscriptions": ["eu"], "queues": ["dead"]},
]


PUBLISHING = {"users": ["*"], "actions": ["Publish"], "exchanges": ["orders"]}
CONSUMING = {"users": ["*"], "actions": ["Consume"], "subscriptions": ["*"]}
SOLE = {
    "desired_capabilities": ["sole-connection-for-container"],
    "properties": {"sole-connection-enforcement-policy": 1},
}


def parcels() -> list[dict[str, Any]]:
    """A Broker, a Headers exchange, and a Subscription of it."""
    broker, exchange, subscription, *_ = whole(permissions=PERMISSIONS, listeners={"amqp": True, "webSocket": True})
    exchange["metadata"]["name"] = "parcels"
    exchange["spec"]["type"] = "Headers"
    subscription["metadata"]["name"] = "eu"
    subscription["spec"] |= {
        "exchangeRef": {"name": "parcels"},
        "headerBindings": [{"headers": [{"name": "region", "string": "eu"}, {"name": "paid", "boolean": True}]}],
        "delivery": {"deadLetter": "dead"},
    }
    return [broker, exchange, subscription]


@pytest.fixture
def team(installation: Installation) -> Iterator[Team]:
    with installation.team() as made:
        yield made


@pytest.fixture(scope="module")
def signers(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The CA that signs clients' certificates."""
    return Authority(tmp_path_factory.mktemp("signers"), "client authority")


@pytest.fixture(scope="module")
def shared(installation: Installation, signers: Authority) -> Iterator[Team]:
    """A Broker at which pods log in with their tokens, clients with their certificates, and others anonymously."""
    with installation.team() as made:
        made.kube.kubectl("create", "secret", "generic", "signers", f"--from-file=ca.crt={signers.ca}")
        made.apply_whole(
            listeners={"amqp": True, "minimumTlsVersion": "1.3"},
            authentication={
                "anonymous": True,
                "clientCaSecretRef": {"name": "signers"},
                "clientCertificates": "Optional",
                "tokens": [{"issuer": "Cluster"}],
            },
            permissions=[PUBLISHING, CONSUMING],
        )
        made.wait_ready()
        yield made


def address(team: Team, port: int = 5672) -> str:
    """Host and port of the Broker for clients, without scheme."""
    return f"{team.field('service', 'main-amqp', 'spec', 'clusterIP')}:{port}"


def may_publish(url: str, exchange: str) -> bool:
    """Whether the broker accepts a producer for the exchange."""
    with connected(url) as connection:
        try:
            connection.create_sender(exchange)
        except LinkDetached as refused:
            assert refused.condition == "amqp:unauthorized-access"
            return False
        return True


def bring_files(team: Team) -> None:
    """Makes the kubelet update the pod's files now: it does so when the pod changes, else once a minute."""
    team.kube.kubectl("annotate", "pod", "main-0", "look=now")


def upgraded(team: Team) -> str:
    """The first line of the broker's response to a WebSocket handshake, over TLS with the Broker's CA."""
    context = ssl.create_default_context(cadata=team.kube.secret("main-amqp", "ca.crt") or "")
    host = f"main-amqp.{team.kube.namespace}.svc"
    where = (str(team.field("service", "main-amqp", "spec", "clusterIP")), 5443)
    asked = [
        "GET /amqp HTTP/1.1",
        f"Host: {host}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol: amqp",
    ]
    with socket.create_connection(where, MINUTE) as plain, context.wrap_socket(plain, server_hostname=host) as sock:
        sock.sendall("".join(f"{line}\r\n" for line in [*asked, ""]).encode())
        return sock.recv(4096).split(b"\r\n")[0].decode()


def test_headers_dead_letters_and_permissions(team: Team) -> None:
    team.apply(*parcels())
    team.wait_ready("broker/main", "exchange/parcels", "subscription/eu")
    assert team.field("subscription", "eu", "status", "applied", "headerBindings") == [
        "All: paid = True, region = 'eu'"
    ]
    url = f"amqp://{address(team)}"
    with connected(url) as connection:
        sender = connection.create_sender("parcels")
        publish(sender, ["other"], properties={"region": "us", "paid": True})
        publish(sender, ["bad", "good"], properties={"region": "eu", "paid": True})
        receiver = connection.create_receiver("parcels", name="eu|global", options=Subscribed(), credit=10)
        assert receiver.receive(timeout=MINUTE).body == "bad"
        receiver.reject()
        assert take(receiver, 1) == [("good", 0)]
        assert take(connection.create_receiver("dead", credit=10), 1) == [("bad", 0)]

    assert upgraded(team) == "HTTP/1.1 101 Switching Protocols"

    # More is allowed by an edit, without a restart.
    assert not may_publish(url, "amq.topic")
    pod = team.field("pod", "main-0", "metadata", "uid")
    more = [*PERMISSIONS, {"users": ["*"], "actions": ["Publish"], "exchanges": ["amq.*"]}]
    team.kube.kubectl("patch", "broker", "main", "--type=merge", "--patch", json.dumps({"spec": {"permissions": more}}))
    wait_for("the file", lambda: "amq." in str(team.field("configmap", "main-config", "data")), MINUTE)
    bring_files(team)
    wait_for("the permission to hold", lambda: may_publish(url, "amq.topic"), 3 * MINUTE)
    assert team.field("pod", "main-0", "metadata", "uid") == pod


def token_pod(mechanism: str) -> dict[str, Any]:
    """A pod that logs in with its ServiceAccount and prints the user that it then is."""
    name = f"till-{mechanism.lower()}"
    token = {"audience": "penstock.dev/NAMESPACE/main", "path": "token", "expirationSeconds": 600}
    container = {
        "name": "till",
        "image": images().broker,
        "command": ["python3", "/var/run/script/token_client.py"],
        "args": ["main-amqp.NAMESPACE.svc", mechanism],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": it, "mountPath": f"/var/run/{it}"} for it in ("token", "ca", "script")],
    }
    spec = {
        "serviceAccountName": "till",
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
            {"name": "ca", "configMap": {"name": "main-ca"}},
            {"name": "script", "configMap": {"name": "script"}},
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_pods_log_in_with_their_service_account(shared: Team) -> None:
    kubectl, namespace = shared.kube.kubectl, shared.kube.namespace
    served = json.loads(kubectl("get", "--raw", "/openid/v1/jwks"))
    kept = json.loads(str(shared.field("configmap", "main-issuer", "data", "keys")))
    assert {it["kid"] for it in kept["keys"]} == {it["kid"] for it in served["keys"]}
    kubectl("create", "serviceaccount", "till")
    kubectl("create", "configmap", "script", f"--from-file={ROOT / 'tests/support/token_client.py'}")
    mechanisms = ("XOAUTH2", "OAUTHBEARER")
    manifests = yaml.safe_dump_all([token_pod(it) for it in mechanisms]).replace("NAMESPACE", namespace)
    kubectl("apply", "-f", "-", stdin=manifests)
    pods = [f"till-{it.lower()}" for it in mechanisms]

    def have_ended() -> bool:
        return all(shared.field("pod", it, "status", "phase") in ("Succeeded", "Failed") for it in pods)

    wait_for("the pods to end", have_ended, 3 * MINUTE)
    for mechanism, pod in zip(mechanisms, pods, strict=True):
        assert kubectl("logs", pod) == f"{mechanism}: system:serviceaccount:{namespace}:till\n"


async def users(team: Team) -> dict[str, str]:
    """The users of the connected clients, by container-id."""
    management = await team.management()
    try:
        rows = await management.query_all(EntityType.CONNECTION, attributes=["containerId", "user"])
        return {str(row["containerId"]): str(row["user"]) for row in rows}
    finally:
        await management.close()


def test_a_client_logs_in_by_its_certificate(shared: Team, signers: Authority, tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text(shared.kube.secret("main-amqp", "ca.crt") or "")
    identity = signers.issue("billing-service")
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(ca))
    domain.set_credentials(str(identity.certificate), str(identity.key), None)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
    url = f"amqps://{address(shared, 5671)}"
    with connected(url, "mutual", ssl_domain=domain, allowed_mechs="EXTERNAL") as connection:
        publish(connection.create_sender("orders"), ["x"])
        assert asyncio.run(users(shared))["mutual"] == "billing-service"


def test_connections_that_close_each_other_are_a_condition(shared: Team) -> None:
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(connected(f"amqp://{address(shared)}", "twin", **SOLE))
        wait_for(
            "the condition",
            lambda: shared.reason("broker", "main", "ContainersContested") == ("True", "TakeoversRepeated"),
            MINUTE,
        )
    assert "'twin' (at least 5 times)" in shared.message("broker", "main", "ContainersContested")
    assert shared.is_ready("broker", "main")


def test_a_deletion_waits_for_consumers_and_names_them(shared: Team) -> None:
    with connected(f"amqp://{address(shared)}", "the till") as connection:
        connection.create_receiver("orders", name="fraud|global", options=Subscribed(), credit=10)
        shared.kube.kubectl("delete", "subscription", "fraud", "--wait=false")
        wait_for(
            "the deletion to wait",
            lambda: shared.reason("subscription", "fraud", "DeletionBlocked") == ("True", "ConsumersActive"),
            MINUTE,
        )
        assert "the till" in shared.message("subscription", "fraud", "DeletionBlocked")
    shared.kube.kubectl("wait", "--for=delete", "subscription/fraud", "--timeout=180s")


def is_withdrawn(receiver: BlockingReceiver) -> bool:
    """Whether the broker has closed the link, which it may do only because a permission is missing."""
    try:
        receiver.receive(timeout=1)
    except Timeout:
        return False
    except LinkDetached as ended:
        assert ended.condition == "amqp:unauthorized-access"
        return True
    return False


def test_a_permission_withdrawn_ends_the_links_that_need_it(shared: Team) -> None:
    with connected(f"amqp://{address(shared)}", "watcher") as connection:
        sender = connection.create_sender("orders")
        receiver = connection.create_receiver("orders", name="billing|global", options=Subscribed(), credit=10)
        pod = shared.field("pod", "main-0", "metadata", "uid")
        patch = json.dumps({"spec": {"permissions": [PUBLISHING]}})
        shared.kube.kubectl("patch", "broker", "main", "--type=merge", "--patch", patch)
        wait_for("the file", lambda: "consume" not in str(shared.field("configmap", "main-config", "data")), MINUTE)
        bring_files(shared)
        wait_for("the permission to be withdrawn", lambda: is_withdrawn(receiver), 3 * MINUTE)
        publish(sender, ["who may still publish does"])
    assert shared.field("pod", "main-0", "metadata", "uid") == pod
