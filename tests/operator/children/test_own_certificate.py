"""A server certificate that is not the operator's: what is mounted and set, and what cert-manager is asked for."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from support.resources import broker

from penstock_operator.children import certificates, configuration, server_certificate
from penstock_operator.children.metadata import child_metadata
from penstock_operator.children.stateful_set import PinnedPods, broker_stateful_set

NOW = datetime(2026, 3, 1, tzinfo=UTC)
PINNED = PinnedPods(image="r/broker:1", default_image="r/broker:1", revision=1)
CA = certificates.make_ca("theirs", NOW)
PAIR = certificates.make_server(CA, ("b.example", "10.1.2.3"), NOW)
OWN = {"certificate": "/etc/penstock/server-tls/tls.crt", "key": "/etc/penstock/server-tls/tls.key"}
OPERATORS = {"certificate": "/etc/penstock/tls/tls.crt", "key": "/etc/penstock/tls/tls.key"}


def secret(**data: bytes) -> dict[str, Any]:
    names = {"crt": "tls.crt", "key": "tls.key", "ca": "ca.crt"}
    return {"data": {names[key]: base64.b64encode(value).decode() for key, value in data.items()}}


def test_what_is_in_a_secret_of_cert_manager_s_layout() -> None:
    found = server_certificate.read(secret(crt=PAIR.certificate + CA.certificate, key=PAIR.key, ca=CA.certificate))
    assert found == certificates.ServedCertificate(
        begin=NOW - timedelta(hours=1),
        end=NOW + timedelta(days=365),
        names=frozenset({"b.example", "10.1.2.3"}),
        authorities=CA.certificate,
    )


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        secret(crt=PAIR.certificate),
        secret(key=PAIR.key),
        secret(crt=PAIR.certificate, key=CA.key),
        secret(crt=b"no certificate", key=PAIR.key),
        {"data": {"tls.crt": "no base64!", "tls.key": "no base64!"}},
    ],
)
def test_what_no_broker_could_use_is_none(wrong: Any) -> None:
    assert server_certificate.read(wrong) is None


@pytest.mark.parametrize("authorities", [b"", b"no certificate"])
def test_without_an_authority_clients_are_told_of_none(authorities: bytes) -> None:
    found = server_certificate.read(secret(crt=PAIR.certificate, key=PAIR.key, ca=authorities))
    assert found is not None
    assert found.authorities == b""


def test_a_key_beside_the_authority_does_not_get_to_clients() -> None:
    found = server_certificate.read(secret(crt=PAIR.certificate, key=PAIR.key, ca=CA.key + CA.certificate))
    assert found is not None
    assert found.authorities == CA.certificate


@pytest.mark.parametrize(
    ("tls", "name"),
    [({"secretRef": {"name": "mine"}}, "mine"), ({"issuerRef": {"name": "company"}}, "main-tls")],
)
def test_the_broker_s_container_mounts_it_and_the_observer_does_not(tls: dict[str, Any], name: str) -> None:
    made: Any = broker_stateful_set(broker(tls=tls), PINNED)[0]
    pod = made["spec"]["template"]["spec"]
    assert {"name": "server-tls", "secret": {"secretName": name, "defaultMode": 0o440}} in pod["volumes"]
    mount = {"name": "server-tls", "mountPath": "/etc/penstock/server-tls", "readOnly": True}
    assert [mount in each["volumeMounts"] for each in pod["containers"]] == [True, False]
    assert server_certificate.mounts_issued_secret(broker(), made) is (name == "main-tls")


def test_listeners_for_clients_use_it_and_the_management_does_not() -> None:
    both = {"amqps": True, "webSocket": True, "minimumTlsVersion": "1.3"}
    settings = yaml.safe_load(configuration.render(broker(listeners=both, tls={"secretRef": {"name": "mine"}})))
    assert [each["tls"] for each in settings["listeners"]] == [{**OWN, "minimumVersion": "1.3"}] * 2
    assert settings["management"]["tls"] == OPERATORS


def test_names_alone_change_no_pod() -> None:
    named = broker(tls={"names": ["broker.example.com"]})
    assert broker_stateful_set(named, PINNED) == broker_stateful_set(broker(), PINNED)


def test_the_whole_of_what_cert_manager_is_asked_for() -> None:
    asking = broker(tls={"issuerRef": {"name": "company", "kind": "ClusterIssuer"}})
    assert server_certificate.cert_manager_certificates(asking, ["a.example", "10.1.2.3", "*.b.example"]) == [
        {
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "metadata": child_metadata(broker(), broker(), "main-tls"),
            "spec": {
                "secretName": "main-tls",
                "issuerRef": {"name": "company", "kind": "ClusterIssuer", "group": "cert-manager.io"},
                "dnsNames": ["a.example", "*.b.example"],
                "ipAddresses": ["10.1.2.3"],
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                "usages": ["digital signature", "server auth"],
            },
        }
    ]


def test_without_an_issuer_cert_manager_is_asked_for_nothing() -> None:
    assert server_certificate.cert_manager_certificates(broker(tls={"secretRef": {"name": "mine"}}), ["a"]) == []
