"""The settings file: the broker can read it, and it contains what the spec says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.resources import broker

from penstock_amqp.transports.certificate_names import NamePart
from penstock_api import release_terms
from penstock_api.settings.announcements import Announcements, FailoverServer
from penstock_api.settings.auto_creation import AutoCreate, CreatedNodes, CreatedQueues
from penstock_api.settings.client_limits import ConnectionLimits
from penstock_api.settings.permissions import Grants
from penstock_api.settings.transaction_limits import TransactionSettings
from penstock_broker.settings import settings
from penstock_broker.settings.security import ClientCertificates, Tls, TokenIssuer
from penstock_core.permissions import Action, Grant
from penstock_operator.children import configuration, stateful_set


def loaded(tmp_path: Path, **spec: Any) -> settings.BrokerSettings:
    path = tmp_path / "broker.yaml"
    path.write_text(configuration.render(broker(**spec)))
    return settings.load(path)


def test_the_defaults(tmp_path: Path) -> None:
    found = loaded(tmp_path)
    (amqps,) = found.listeners
    assert (amqps.name, amqps.address, amqps.tls) == (
        "amqps",
        "0.0.0.0:5671",
        Tls(certificate=Path("/etc/penstock/tls/tls.crt"), key=Path("/etc/penstock/tls/tls.key")),
    )
    assert found.management is not None
    assert (found.management.address, found.management.user) == ("0.0.0.0:5670", "operator")
    assert found.management.password_file == Path("/etc/penstock/management/password")
    assert (found.observer_socket, found.probes) == (Path("/run/penstock/observer.sock"), "0.0.0.0:8081")
    assert (found.authentication.anonymous, found.auto_create) == (True, False)
    assert (found.max_message_bytes, found.idle_timeout_seconds) == (16 * 1024 * 1024, 60)


def test_without_tls_passwords_are_not_shown_unless_that_is_allowed(tmp_path: Path) -> None:
    both = {"anonymous": True, "usersSecretRef": {"name": "people"}}
    found = loaded(tmp_path, listeners={"amqp": True}, authentication=both)
    # The broker itself offers no mechanism there that shows a password.
    assert [(it.name, it.sasl_mechanisms) for it in found.listeners] == [("amqps", None), ("amqp", None)]
    assert not any(found.is_private(it) for it in found.listeners if it.name == "amqp")
    assert found.authentication.users_folder == Path("/etc/penstock/users")
    insecure = {**both, "allowInsecurePlain": True}
    found = loaded(tmp_path, listeners={"amqp": True, "amqps": False}, authentication=insecure)
    assert [(it.name, it.sasl_mechanisms) for it in found.listeners] == [("amqp", None)]


def test_what_clients_make_has_the_broker_s_delivery(tmp_path: Path) -> None:
    assert (loaded(tmp_path).delivery, loaded(tmp_path).auto_create) == (settings.DeliverySettings(), False)
    delivery = {
        "maxDeliveries": 3,
        "deadLetter": "dead",
        "expiry": "expired",
        "maxTtlSeconds": 60,
        "exclusiveConsumer": True,
        "idleExpirySeconds": 86_400,
    }
    found = loaded(tmp_path, delivery=delivery)
    assert found.delivery == settings.DeliverySettings(
        max_deliveries=3,
        dead_letter="dead",
        expiry="expired",
        max_ttl_ms=60_000,
        exclusive_consumer=True,
        idle_expiry_seconds=86_400,
    )


def test_what_clients_may_make_by_naming_it(tmp_path: Path) -> None:
    queues = {"names": ["jobs.*"], "limit": 5, "deleteUnusedSeconds": 60}
    assert loaded(tmp_path, autoCreate={"queues": queues}).auto_create == AutoCreate(
        queues=CreatedQueues(names=("jobs.*",), limit=5, delete_unused_seconds=60), topics=False
    )
    assert loaded(tmp_path, autoCreate={"topics": {}}).auto_create == AutoCreate(
        queues=False, topics=CreatedNodes(names=("*",), limit=10_000)
    )


def test_the_file_of_a_broker_that_uses_nothing_new_stays_as_it_is() -> None:
    rendered = configuration.render(broker())
    assert configuration.digest(rendered) == "b03cc10fa46e9cf8", "broker pods would be rolled by an operator upgrade"


def test_mechanisms_are_those_of_the_spec_less_what_shows_a_secret(tmp_path: Path) -> None:
    chosen = {"usersSecretRef": {"name": "people"}, "mechanisms": ["PLAIN", "SCRAM-SHA-256"]}
    found = loaded(tmp_path, listeners={"amqp": True}, authentication=chosen)
    names = {it.name: it.sasl_mechanisms for it in found.listeners}
    assert names == {"amqps": ("PLAIN", "SCRAM-SHA-256"), "amqp": ("SCRAM-SHA-256",)}
    found = loaded(tmp_path, listeners={"amqp": True}, authentication={**chosen, "allowInsecurePlain": True})
    assert [it.sasl_mechanisms for it in found.listeners] == [("PLAIN", "SCRAM-SHA-256")] * 2


PERMISSIONS = [
    {"users": ["billing"], "actions": ["Consume"], "subscriptions": ["billing-*"]},
    {"groups": ["shop"], "actions": ["Publish", "Create"], "exchanges": ["orders"], "queues": ["*"]},
    {"users": ["admin"], "actions": ["Manage"], "management": True},
]


def permissions_of(**spec: Any) -> Any:
    """The content of the permissions file, which the ConfigMap has beside the settings file."""
    made = broker(**spec)
    return yaml.safe_load(configuration.config_map(made, configuration.render(made))["data"]["permissions.yaml"])  # type: ignore[index]  # a manifest


def test_permissions_are_a_file_that_the_broker_takes(tmp_path: Path) -> None:
    groups = {"anonymous": True, "groups": [{"name": "shop", "users": ["ann", "bob"]}]}
    found = loaded(tmp_path, permissions=PERMISSIONS, authentication=groups)
    assert found.permissions_file == Path("/etc/penstock/broker/permissions.yaml")
    assert found.authentication.groups == {"shop": ("ann", "bob")}
    grants = [it.grant() for it in Grants.model_validate(permissions_of(permissions=PERMISSIONS)).permissions]
    assert grants == [
        Grant(users=("billing",), actions=frozenset({Action.CONSUME}), subscriptions=("billing-*",)),
        Grant(
            groups=("shop",),
            actions=frozenset({Action.PUBLISH, Action.CREATE}),
            exchanges=("orders",),
            queues=("*",),
        ),
        Grant(users=("admin",), actions=frozenset({Action.MANAGE}), management=True),
    ]


def test_no_permissions_are_another_thing_than_an_empty_list(tmp_path: Path) -> None:
    assert loaded(tmp_path).permissions_file is None
    assert loaded(tmp_path, permissions=[]).permissions_file is not None
    assert permissions_of(permissions=[]) == {"permissions": []}


def test_a_change_of_permissions_rolls_no_pod() -> None:
    some, others = (configuration.render(broker(permissions=it)) for it in (PERMISSIONS, PERMISSIONS[:1]))
    assert some == others


def test_certificates_of_clients(tmp_path: Path) -> None:
    assert loaded(tmp_path).authentication.certificate_user is NamePart.COMMON_NAME
    mutual = {"clientCaSecretRef": {"name": "signers"}, "certificateUser": "Dns"}
    found = loaded(tmp_path, authentication=mutual)
    (amqps,) = found.listeners
    assert amqps.tls is not None
    assert amqps.tls.client_ca == Path("/etc/penstock/client-ca/ca.crt")
    assert amqps.tls.client_certificates is ClientCertificates.REQUIRED
    assert found.authentication.certificate_user is NamePart.DNS
    assert found.management is not None
    assert found.management.tls is not None
    assert found.management.tls.client_ca is None
    (amqps,) = loaded(tmp_path, authentication={**mutual, "clientCertificates": "Optional"}).listeners
    assert amqps.tls is not None
    assert amqps.tls.client_certificates is ClientCertificates.OPTIONAL


@pytest.mark.parametrize(("written", "read"), [(it.value[0].upper() + it.value[1:], it) for it in NamePart])
def test_every_part_of_a_certificate_can_be_chosen(tmp_path: Path, written: str, read: NamePart) -> None:
    mutual = {"clientCaSecretRef": {"name": "signers"}, "certificateUser": written}
    assert loaded(tmp_path, authentication=mutual).authentication.certificate_user is read


def test_limits_are_the_broker_s_where_the_spec_has_none(tmp_path: Path) -> None:
    assert loaded(tmp_path).limits == ConnectionLimits()
    every = {
        "connections": 1,
        "connectionsPerUser": 2,
        "connectionsPerPeer": 3,
        "unauthenticated": 4,
        "unauthenticatedPerPeer": 5,
        "loginSeconds": 6,
        "sessionsPerConnection": 7,
        "linksPerConnection": 8,
        "subscriptions": 9,
        "subscriptionsPerUser": 10,
    }
    assert loaded(tmp_path, limits=every).limits == ConnectionLimits.model_validate(every)


def test_tokens_are_for_this_broker_unless_the_spec_says_otherwise(tmp_path: Path) -> None:
    cluster = {"issuer": "https://kubernetes.default.svc", "keysConfigMapRef": {"name": "cluster"}}
    other = {
        "issuer": "https://login",
        "keysConfigMapRef": {"name": "login"},
        "audiences": ["mq"],
        "algorithms": ["ES384"],
        "userClaim": "email",
        "groupsClaim": "roles",
        "leewaySeconds": 5,
    }
    found = loaded(tmp_path, authentication={"tokens": [cluster, other]}).authentication.tokens
    assert found == (
        TokenIssuer(
            issuer="https://kubernetes.default.svc",
            audiences=("penstock.dev/shop/main",),
            keys_file=Path("/etc/penstock/token-keys/0/keys"),
        ),
        TokenIssuer(
            issuer="https://login",
            audiences=("mq",),
            keys_file=Path("/etc/penstock/token-keys/1/keys"),
            algorithms=("ES384",),
            user_claim="email",
            groups_claim="roles",
            leeway_seconds=5,
        ),
    )


def test_web_sockets_have_the_tls_and_the_mechanisms_of_the_other_listener(tmp_path: Path) -> None:
    mutual = {"clientCaSecretRef": {"name": "signers"}, "mechanisms": ["EXTERNAL"]}
    amqps, wss = loaded(tmp_path, listeners={"webSocket": True}, authentication=mutual).listeners
    assert (wss.kind, wss.address) == (settings.ListenerKind.WEB_SOCKET, "0.0.0.0:5443")
    assert (wss.tls, wss.sasl_mechanisms) == (amqps.tls, ("EXTERNAL",))


def test_the_cluster_s_tokens_are_checked_by_what_the_api_server_says(tmp_path: Path) -> None:
    made = broker(authentication={"tokens": [{"issuer": "Cluster"}]})
    path = tmp_path / "broker.yaml"
    path.write_text(configuration.render(made, "https://kubernetes.default.svc"))
    assert settings.load(path).authentication.tokens == (
        TokenIssuer(
            issuer="https://kubernetes.default.svc",
            audiences=("penstock.dev/shop/main",),
            keys_file=Path("/etc/penstock/token-keys/0/keys"),
        ),
    )


def test_each_listener_has_what_its_options_say(tmp_path: Path) -> None:
    listeners = {
        "amqp": True,
        "webSocket": True,
        "minimumTlsVersion": "1.3",
        "options": {
            "amqps": {"maxMessageSize": "1Mi"},
            "webSocket": {"idleTimeoutSeconds": 30, "allowedOrigins": ["https://shop.example"]},
        },
    }
    amqps, amqp, wss = loaded(tmp_path, listeners=listeners).listeners
    assert [it.max_message_bytes for it in (amqps, amqp, wss)] == [1024 * 1024, None, None]
    assert [it.idle_timeout_seconds for it in (amqps, amqp, wss)] == [None, None, 30]
    assert wss.allowed_origins == ("https://shop.example",)
    assert amqps.tls is not None
    assert wss.tls is not None
    assert (amqps.tls.minimum_version, wss.tls.minimum_version, amqp.tls) == ("1.3", "1.3", None)
    management = loaded(tmp_path, listeners=listeners).management
    assert management is not None
    assert management.tls is not None
    assert management.tls.minimum_version == "1.2"


def test_what_clients_are_told(tmp_path: Path) -> None:
    assert loaded(tmp_path).announce == Announcements()
    servers = [
        {"hostname": "other.example", "port": 5671},
        {"hostname": "b", "port": 443, "scheme": "amqpwss", "networkHost": "10.0.0.1", "path": "/amqp"},
    ]
    found = loaded(tmp_path, announce={"failoverServers": servers, "prefixes": True}).announce
    assert found == Announcements(
        failover_servers=(
            FailoverServer(hostname="other.example", port=5671),
            FailoverServer(hostname="b", port=443, scheme="amqpwss", network_host="10.0.0.1", path="/amqp"),
        ),
        prefixes=True,
    )


def test_the_broker_lets_its_observer_see_messages_only_if_the_page_shows_them(tmp_path: Path) -> None:
    assert loaded(tmp_path).observer_peek is False
    assert loaded(tmp_path, page={"showMessages": True}).observer_peek is True
    knows = frozenset(release_terms.settings_vocabulary(settings.BrokerSettings)) - {"settings.observerPeek"}
    older = stateful_set.PinnedPods("image:1", "image:1", stateful_set.LATEST, knows)
    assert stateful_set.unknown_settings(broker(), older) == ()
    shows = broker(page={"showMessages": True})
    # Its observer would not know the option either, and end at once.
    assert stateful_set.unknown_settings(shows, older) == ("settings.observerPeek",)


def test_limits_of_transactions(tmp_path: Path) -> None:
    assert loaded(tmp_path).transactions == TransactionSettings()
    every = {
        "maxMessages": 1,
        "maxSize": "32Mi",
        "maxSizePerConnection": "1Gi",
        "maxSizeInMemory": "2Gi",
        "maxOpenPerConnection": 3,
        "maxAgeSeconds": 0,
    }
    assert loaded(tmp_path, transactions=every).transactions == TransactionSettings(
        max_messages=1,
        max_bytes=32 * 1024 * 1024,
        max_bytes_per_connection=1024**3,
        max_bytes_in_memory=2 * 1024**3,
        max_open_per_connection=3,
        max_age_seconds=0,
    )


def test_the_settings_that_are_compared_are_those_of_the_file() -> None:
    """Also in their types: the comparison looks into lists and maps, and into nothing else."""
    made = broker(
        announce={"prefixes": True},
        authentication={"anonymous": True, "groups": [{"name": "shop"}]},
        listeners={"amqps": True, "webSocket": True},
        permissions=PERMISSIONS,
        transactions={"maxMessages": 1, "maxSize": "32Mi"},
    )
    issuer = "https://kubernetes.default.svc"
    told = configuration.settings_of(made, issuer)
    assert yaml.safe_load(configuration.render(made, issuer)) == told
    assert "announce" in told


def test_settings_that_a_running_broker_does_not_know_are_named() -> None:
    knows = frozenset(release_terms.settings_vocabulary(settings.BrokerSettings))
    told = broker(announce={"prefixes": True}, authentication={"anonymous": True, "groups": [{"name": "shop"}]})
    pinned = stateful_set.PinnedPods("image:1", "image:1", stateful_set.LATEST)
    assert stateful_set.unknown_settings(told, replace(pinned, understood=knows)) == ()
    older = frozenset(term for term in knows if not term.startswith("settings.announce"))
    assert stateful_set.unknown_settings(told, replace(pinned, understood=older)) == ("settings.announce",)
    assert stateful_set.unknown_settings(told, pinned) == (), "a release that doesn't say what it knows"
    assert stateful_set.unknown_settings(broker(), replace(pinned, understood=older)) == ()
    without_prefixes = knows - {"settings.announce.prefixes"}
    assert stateful_set.unknown_settings(told, replace(pinned, understood=without_prefixes)) == (
        "settings.announce.prefixes",
    )


@pytest.mark.parametrize(
    "origin",
    ["*", "null", "https://shop.example", "http://shop.example:8080", "https://shop:65535", "capacitor://it"],
)
def test_every_origin_that_the_spec_takes_the_broker_takes(tmp_path: Path, origin: str) -> None:
    listeners = {"webSocket": True, "options": {"webSocket": {"allowedOrigins": [origin]}}}
    assert len(loaded(tmp_path, listeners=listeners).listeners[-1].allowed_origins or ()) == 1


def test_the_memory_of_messages_is_taken_over_if_it_is_set(tmp_path: Path) -> None:
    assert loaded(tmp_path).memory.max_bytes is None
    assert loaded(tmp_path, memory={"maxSize": "64Mi"}).memory.max_bytes == 64 * 1024**2
