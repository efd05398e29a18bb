"""Certificates and trust as the reconciler brings them about, against an API server in memory."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.management_in_memory import BrokerInMemory, SessionsInMemory
from support.resources import manifest_of

from penstock_api.resources import Broker
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.children import certificates
from penstock_operator.cluster.api_server import ApiResource, KubeError
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.manifest import Manifest
from penstock_operator.plans.decisions import Report, Retry
from penstock_operator.reconcile.broker_reconciler import BrokerReconciler
from penstock_operator.settings import OperatorSettings

NOW = datetime(2026, 3, 1, tzinfo=UTC)
KEY = ResourceKey("Broker", "shop", "main")
THEIRS = certificates.make_ca("theirs", NOW)
CERTIFICATE = ("Certificate", "shop", "main-tls")
STATEFUL_SET = ("StatefulSet", "shop", "main")


@dataclass(slots=True)
class Place:
    """An operator, its cluster, and the resources that it has seen."""

    api: ApiServerInMemory = field(default_factory=ApiServerInMemory)
    cache: Cache = field(default_factory=Cache)
    sessions: SessionsInMemory = field(default_factory=lambda: SessionsInMemory(BrokerInMemory()))

    version: int = 0

    async def run(self, annotations: dict[str, str] | None = None, **spec: Any) -> Report:
        """Reconcile the Broker with this spec once."""
        self.version += 1
        about = {"annotations": annotations or {}, "generation": self.version, "resourceVersion": str(self.version)}
        made = manifest_of("Broker", spec, None, about)
        self.cache.put(made)
        reconciler = BrokerReconciler(
            self.api,
            self.cache,
            cast(BrokerSessions, self.sessions),
            OperatorSettings(broker_image="image:1", lag_image="lag:1"),
            lambda: NOW,
            lambda key: None,
            lambda key: None,
            lambda: None,
        )
        found = self.cache.broker("shop", "main")
        assert isinstance(found, Broker)
        report = await reconciler.reconcile(KEY, found)
        assert isinstance(report, Report)
        return report

    def has(self, kind: str, namespace: str, name: str, created: str = "2026-02-01T00:00:00Z") -> None:
        """Somebody has made an Exchange or a Subscription that uses the Broker."""
        spec: dict[str, Any] = {"brokerRef": {"name": "main", "namespace": "shop"}}
        about = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "creationTimestamp": created}
        self.cache.put(manifest_of(kind, spec, None, about))

    def secret(self, name: str, *hosts: str) -> None:
        """Somebody, or cert-manager, has made a Secret with a certificate."""
        pair = certificates.make_server(THEIRS, hosts, NOW)
        data = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": THEIRS.certificate}
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        self.api.objects["Secret", "shop", name] = {"metadata": {"name": name}, "data": encoded}

    def trust(self, namespace: str = "shop", name: str = "main-ca") -> list[str]:
        """What clients are told to trust: its certificates."""
        text = self.api.objects["ConfigMap", namespace, name]["data"]["ca.crt"]
        return [f"{each}-----END CERTIFICATE-----\n" for each in text.split("-----END CERTIFICATE-----\n")[:-1]]


def accepted(report: Report) -> tuple[str, str]:
    return next((it.status.value, str(it.reason)) for it in report.conditions if it.type == "Accepted")


def told(report: Report) -> str:
    return next(it.message for it in report.conditions if it.type == "Accepted")


def condition(kind: str, status: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "message": message}


@pytest.fixture
def place() -> Place:
    return Place()


OWN: dict[str, Any] = {"tls": {"secretRef": {"name": "mine"}}}


async def test_nothing_is_made_before_there_is_a_certificate_and_everything_after(place: Place) -> None:
    report = await place.run(**OWN)
    assert (accepted(report), report.retry) == (("False", "ServerCertificateNotFound"), Retry.BACKOFF)
    assert STATEFUL_SET not in place.api.objects
    place.secret("mine", "main-amqp.shop.svc")
    assert accepted(await place.run(**OWN)) == ("True", "Accepted")
    assert STATEFUL_SET in place.api.objects


async def test_pods_that_run_stay_as_they_are_when_the_certificate_is_taken_away(place: Place) -> None:
    place.secret("mine", "main-amqp.shop.svc")
    await place.run(**OWN)
    before = place.api.objects[STATEFUL_SET]
    del place.api.objects["Secret", "shop", "mine"]
    await place.run(**OWN, maxMessageSize="1Mi")
    assert place.api.objects[STATEFUL_SET] == before
    assert place.sessions.get("shop/main") is not None, "exchanges and subscriptions are still declared"


async def test_clients_trust_who_signed_it_and_the_operator_s_own_ca(place: Place) -> None:
    place.secret("mine", "main-amqp.shop.svc")
    await place.run(**OWN)
    own = base64.b64decode(place.api.objects["Secret", "shop", "main-ca"]["data"]["ca.crt"]).decode()
    assert place.trust() == [own, THEIRS.certificate.decode()]
    observer = base64.b64decode(place.api.objects["Secret", "shop", "main-observer"]["data"]["ca.crt"]).decode()
    assert observer == own


ISSUED: dict[str, Any] = {"tls": {"issuerRef": {"name": "company"}, "names": ["broker.example.com"]}}


async def test_cert_manager_is_asked_first_and_the_rest_waits_for_it(place: Place) -> None:
    assert accepted(await place.run(**ISSUED)) == ("False", "CertManagerNotInstalled")
    assert CERTIFICATE not in place.api.objects
    place.api.served.add("Certificate")
    assert accepted(await place.run(**ISSUED)) == ("False", "ServerCertificatePending")
    names = place.api.objects[CERTIFICATE]["spec"]["dnsNames"]
    assert {"main-amqp.shop.svc", "*.shop.svc", "broker.example.com"} <= set(names)
    assert "localhost" not in names
    assert STATEFUL_SET not in place.api.objects
    place.api.objects[CERTIFICATE]["status"] = {"conditions": [condition("Ready", "False", "No issuer company.")]}
    assert "It says: No issuer company. If this lasts" in told(await place.run(**ISSUED))
    place.secret("main-tls", *names)
    assert accepted(await place.run(**ISSUED)) == ("True", "Accepted")
    assert STATEFUL_SET in place.api.objects


async def test_the_newest_request_says_why_there_is_no_certificate(place: Place) -> None:
    """As cert-manager 1.21 writes it: the Certificate does not know that its issuer is missing, its request does."""
    place.api.served.add("Certificate")
    await place.run(**ISSUED)
    about_secret = condition("Ready", "False", "Issuing certificate as Secret does not exist")
    place.api.objects[CERTIFICATE]["status"] = {"conditions": [about_secret], "revision": 3}
    assert "It says: Issuing certificate as Secret does not exist. If this lasts" in told(await place.run(**ISSUED))
    approved = condition("Approved", "True", "Certificate request has been approved by cert-manager.io")
    waits = condition("Ready", "False", 'Referenced "Issuer" not found: issuer.cert-manager.io "company" not found')
    place.api.objects["CertificateRequest", "shop", "main-tls-4"] = {"status": {"conditions": [approved, waits]}}
    message = told(await place.run(**ISSUED))
    assert 'It says: Referenced "Issuer" not found: issuer.cert-manager.io "company" not found. If this' in message
    assert "kubectl describe certificaterequest main-tls-4" in message


async def test_a_request_that_failed_is_told_until_the_next_one(place: Place) -> None:
    place.api.served.add("Certificate")
    await place.run(**ISSUED)
    failed = condition("Issuing", "False", "The certificate request has failed to complete and will be retried: no.")
    about_secret = condition("Ready", "False", "Issuing certificate as Secret does not exist")
    place.api.objects[CERTIFICATE]["status"] = {"conditions": [about_secret, failed]}
    assert "It says: The certificate request has failed to complete" in told(await place.run(**ISSUED))


async def test_a_request_is_read_only_while_there_is_no_certificate_and_only_if_it_may_be(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, asked = ApiServerInMemory.get, list[str]()

    async def get(api: ApiServerInMemory, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        if kind.kind == "CertificateRequest":
            asked.append(name)
            raise KubeError(403, "no")
        return await really(api, kind, namespace, name)

    monkeypatch.setattr(ApiServerInMemory, "get", get)
    place.api.served.add("Certificate")
    await place.run(**ISSUED)
    place.api.objects[CERTIFICATE]["status"] = {"conditions": [condition("Ready", "False", "No issuer.")]}
    assert "It says: No issuer. If this lasts" in told(await place.run(**ISSUED))
    assert asked == ["main-tls-1"]
    place.secret("main-tls", "main-amqp.shop.svc")
    await place.run(**ISSUED)
    assert asked == ["main-tls-1"]


async def test_cert_manager_is_asked_no_more_when_the_issuer_is_taken_out(place: Place) -> None:
    place.api.served.add("Certificate")
    place.secret("main-tls", "main-amqp.shop.svc")
    await place.run(**ISSUED)
    assert CERTIFICATE in place.api.objects
    await place.run()
    assert CERTIFICATE not in place.api.objects
    assert "server-tls" not in str(place.api.objects[STATEFUL_SET])


async def test_a_paused_broker_asks_for_nothing(place: Place) -> None:
    place.api.served.add("Certificate")
    await place.run(annotations={"penstock.dev/paused": "true"}, **ISSUED)
    assert CERTIFICATE not in place.api.objects


async def test_a_certificate_of_somebody_else_s_is_not_taken_over(place: Place) -> None:
    place.api.served.add("Certificate")
    foreign: dict[str, Any] = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "spec": {}}
    place.api.user_applies({**foreign, "metadata": {"namespace": "shop", "name": "main-tls"}})
    assert accepted(await place.run(**ISSUED)) == ("False", "NameTaken")
    assert place.api.objects[CERTIFICATE]["spec"] == {}


async def test_a_rotation_reaches_everybody_in_one_pass(place: Place) -> None:
    place.has("Exchange", "hub", "orders")
    await place.run(allowedNamespaces=["hub"])
    (old,) = place.trust()
    await place.run(annotations={"penstock.dev/rotate-ca": "1"}, allowedNamespaces=["hub"])
    new, kept = place.trust()
    assert (kept, new == old) == (old, False)
    assert place.trust("hub", "shop.main-ca") == [new, old]


async def test_namespaces_that_use_the_broker_get_its_ca(place: Place) -> None:
    place.has("Subscription", "hub", "billing", created="2026-02-03T00:00:00Z")
    place.has("Exchange", "hub", "orders", created="2026-02-02T00:00:00Z")
    place.has("Exchange", "foreign", "orders")
    place.has("Exchange", "shop", "orders")
    await place.run(allowedNamespaces=["hub", "idle"])
    found = place.api.objects["ConfigMap", "hub", "shop.main-ca"]
    assert place.trust("hub", "shop.main-ca") == place.trust()
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "penstock.dev/v1alpha1", "kind": "Exchange", "name": "orders", "uid": "uid-hub-orders"}
    ]
    assert found["metadata"]["labels"]["penstock.dev/broker-namespace"] == "shop"
    of_others = [name for name in place.api.objects if name[0] == "ConfigMap" and name[1] != "shop"]
    assert of_others == [("ConfigMap", "hub", "shop.main-ca")]


async def test_the_certificate_names_the_namespaces_that_use_a_broker_for_all(place: Place) -> None:
    place.api.served.add("Certificate")
    place.has("Subscription", "hub", "billing")
    await place.run(allowedNamespaces=["*"], **ISSUED)
    assert "*.hub.svc" in place.api.objects[CERTIFICATE]["spec"]["dnsNames"]


async def test_what_is_as_it_should_be_is_not_written_again(place: Place) -> None:
    place.has("Exchange", "hub", "orders")
    await place.run(allowedNamespaces=["hub"])
    name = ("ConfigMap", "hub", "shop.main-ca")
    before = place.api.objects[name]["metadata"]["resourceVersion"]
    await place.run(allowedNamespaces=["hub"])
    assert place.api.objects[name]["metadata"]["resourceVersion"] == before
    place.api.objects[name]["data"] = {"ca.crt": "something else"}
    await place.run(allowedNamespaces=["hub"])
    assert place.trust("hub", "shop.main-ca") == place.trust()
    # The Exchange goes; a Subscription is left, and keeps the ConfigMap.
    place.cache.remove(ResourceKey("Exchange", "hub", "orders"))
    place.has("Subscription", "hub", "billing")
    await place.run(allowedNamespaces=["hub"])
    assert place.api.objects[name]["metadata"]["ownerReferences"][0]["uid"] == "uid-hub-billing"


async def test_somebody_else_s_config_map_stays_and_so_does_a_namespace_that_forbids_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place.has("Exchange", "hub", "orders", created="2026-02-01T00:00:00Z")
    place.has("Exchange", "closed", "orders", created="2026-02-02T00:00:00Z")
    place.has("Exchange", "open", "orders", created="2026-02-03T00:00:00Z")
    foreign: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "spec": {}, "data": {}}
    place.api.user_applies({**foreign, "metadata": {"namespace": "hub", "name": "shop.main-ca"}})
    really = ApiServerInMemory.apply

    async def apply(api: ApiServerInMemory, manifest: Manifest) -> Manifest:
        if cast(Any, manifest)["metadata"]["namespace"] == "closed":
            raise KubeError(403, "no")
        return await really(api, manifest)

    monkeypatch.setattr(ApiServerInMemory, "apply", apply)
    assert accepted(await place.run(allowedNamespaces=["*"])) == ("True", "Accepted")
    assert place.api.objects["ConfigMap", "hub", "shop.main-ca"]["data"] == {}
    assert place.trust("open", "shop.main-ca") == place.trust()
    assert "in namespace hub: the ConfigMap shop.main-ca there is somebody else's" in caplog.text
    assert "the CA of Broker shop/main is not in namespace closed: it can't be written: 403: no" in caplog.text
