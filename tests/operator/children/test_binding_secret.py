"""The Secret for an application, compared whole."""

from __future__ import annotations

import base64
from typing import Any, cast

from support.resources import broker, exchange, subscription

from penstock_operator.children.binding_secret import manifest, secret_name

CLUSTER = {"anonymous": False, "tokens": [{"issuer": "Cluster"}]}
BILLING = {"name": "billing", "namespace": "billing", "uid": "u1"}


def entries(secret: Any) -> dict[str, str]:
    data = cast(dict[str, str], secret["data"])
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def test_it_says_how_to_connect_and_holds_no_password() -> None:
    made = subscription(metadata=BILLING, binding={})
    secret = manifest(broker(authentication=CLUSTER), exchange(exchangeName="Orders"), made, b"the CA")
    assert {key: value for key, value in secret.items() if key != "data"} == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "billing-binding",
            "namespace": "billing",
            "labels": {
                "app.kubernetes.io/name": "penstock-broker",
                "app.kubernetes.io/instance": "main",
                "app.kubernetes.io/managed-by": "penstock-operator",
                "penstock.dev/broker": "main",
            },
            "ownerReferences": [
                {
                    "apiVersion": "penstock.dev/v1alpha1",
                    "kind": "Subscription",
                    "name": "billing",
                    "uid": "u1",
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "type": "servicebinding.io/amqp",
    }
    assert entries(secret) == {
        "type": "amqp",
        "provider": "penstock",
        "host": "orders-x.shop.svc",
        "port": "5671",
        "uri": "amqps://orders-x.shop.svc:5671",
        "address": "Orders",
        "subscription": "billing",
        "scope": "Global",
        "sharing": "Shared",
        "durability": "Durable",
        "audience": "penstock.dev/shop/main",
        "ca.crt": "the CA",
    }


def test_a_subscription_of_one_container_a_named_credential_and_a_broker_without_tls() -> None:
    spec: dict[str, Any] = {
        "scope": "Container",
        "clientId": "app-1",
        "binding": {"credentialsSecretRef": {"name": "u"}},
    }
    plain = broker(listeners={"amqps": False, "amqp": True})
    found = entries(manifest(plain, exchange(), subscription(**spec), b"the CA"))
    assert found["uri"] == "amqp://orders-x.shop.svc:5672"
    assert (found["scope"], found["client-id"], found["credentials-secret"]) == ("Container", "app-1", "u")
    assert "ca.crt" not in found
    assert "audience" not in found


def test_a_broker_for_web_pages_alone_is_named_with_its_port_and_its_ca() -> None:
    of = broker(listeners={"amqps": False, "webSocket": True})
    found = entries(manifest(of, exchange(), subscription(), b"the CA"))
    assert (found["uri"], found["port"], found["ca.crt"]) == ("amqpwss://orders-x.shop.svc:5443", "5443", "the CA")


def test_the_audience_is_the_one_that_the_broker_asks_for() -> None:
    tokens = {"tokens": [{"issuer": "Cluster", "audiences": ["amqp"]}]}
    found = entries(manifest(broker(authentication=tokens), exchange(), subscription(), b""))
    assert found["audience"] == "amqp"


def test_the_longest_name_of_a_subscription_leaves_room_for_the_suffix() -> None:
    name = secret_name(subscription(metadata={"name": "s" * 253}))
    assert len(name) == 253
    assert name.endswith("-binding")
