"""Header bindings, dead letters, permissions and WebSocket, by resources, from a client's side on a cluster."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from broker.clients import Subscribed, connected, publish, take
from e2e.kube import wait_for
from operating.site import MINUTE, Site, Team, open_site, whole
from proton.utils import LinkDetached

pytestmark = pytest.mark.cluster

PERMISSIONS = [
    {"users": ["anonymous"], "actions": ["Publish"], "exchanges": ["parcels"]},
    {"users": ["anonymous"], "actions": ["Consume"], "subscriptions": ["eu"], "queues": ["dead"]},
]


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


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with open_site() as made:
        yield made


@pytest.fixture
def team(site: Site) -> Iterator[Team]:
    with site.team() as made:
        yield made


def may_publish(url: str, exchange: str) -> bool:
    """Whether the broker takes a producer of the exchange."""
    with connected(url) as connection:
        try:
            connection.create_sender(exchange)
        except LinkDetached as refused:
            assert refused.condition == "amqp:unauthorized-access"
            return False
        return True


def upgraded(team: Team) -> str:
    """The first line of the answer to a WebSocket handshake, over TLS with the Broker's CA."""
    context = ssl.create_default_context(cadata=team.kube.secret("main-amqp", "ca.crt") or "")
    host = f"main-amqp.{team.kube.namespace}.svc"
    address = (str(team.field("service", "main-amqp", "spec", "clusterIP")), 5443)
    asked = [
        "GET /amqp HTTP/1.1",
        f"Host: {host}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol: amqp",
    ]
    with socket.create_connection(address, 20) as plain, context.wrap_socket(plain, server_hostname=host) as sock:
        sock.sendall("".join(f"{line}\r\n" for line in [*asked, ""]).encode())
        return sock.recv(4096).split(b"\r\n")[0].decode()


def test_headers_dead_letters_and_permissions(team: Team) -> None:
    team.apply(*parcels())
    team.wait_ready("broker/main", "exchange/parcels", "subscription/eu")
    assert team.field("subscription", "eu", "status", "applied", "headerBindings") == [
        "All: paid = True, region = 'eu'"
    ]
    url = f"amqp://{team.field('service', 'main-amqp', 'spec', 'clusterIP')}:5672"
    with connected(url) as connection:
        sender = connection.create_sender("parcels")
        publish(sender, ["other"], properties={"region": "us", "paid": True})
        publish(sender, ["bad", "good"], properties={"region": "eu", "paid": True})
        receiver = connection.create_receiver("parcels", name="eu|global", options=Subscribed(), credit=10)
        assert receiver.receive(timeout=20).body == "bad"
        receiver.reject()
        assert take(receiver, 1) == [("good", 0)]
        assert take(connection.create_receiver("dead", credit=10), 1) == [("bad", 0)]

    assert upgraded(team) == "HTTP/1.1 101 Switching Protocols"

    # More is allowed by an edit, within the time that kubelet takes to bring a file, and without a restart.
    assert not may_publish(url, "amq.topic")
    pod = team.field("pod", "main-0", "metadata", "uid")
    more = [*PERMISSIONS, {"users": ["*"], "actions": ["Publish"], "exchanges": ["amq.*"]}]
    team.kube.kubectl("patch", "broker", "main", "--type=merge", "--patch", json.dumps({"spec": {"permissions": more}}))
    wait_for("the permission to hold", lambda: may_publish(url, "amq.topic"), 3 * MINUTE)
    assert team.field("pod", "main-0", "metadata", "uid") == pod
