"""The settings file is one that the broker takes, and says what the spec says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from operating.making import broker

from penstock_broker import settings
from penstock_broker.settings_security import Tls
from penstock_operator import configuration


def loaded(tmp_path: Path, **spec: Any) -> settings.Settings:
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


def test_without_tls_only_anonymous_unless_passwords_are_allowed_there(tmp_path: Path) -> None:
    both = {"anonymous": True, "usersSecretRef": {"name": "people"}}
    found = loaded(tmp_path, listeners={"amqp": True}, authentication=both)
    assert [(it.name, it.sasl_mechanisms) for it in found.listeners] == [("amqps", None), ("amqp", ("ANONYMOUS",))]
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
    found = loaded(tmp_path, delivery=delivery, autoCreate=True)
    assert found.delivery == settings.DeliverySettings(
        max_deliveries=3,
        dead_letter="dead",
        expiry="expired",
        max_ttl_ms=60_000,
        exclusive_consumer=True,
        idle_expiry_seconds=86_400,
    )
    assert found.auto_create


def test_the_file_of_a_broker_that_uses_nothing_new_stays_as_it_is() -> None:
    rendered = configuration.render(broker())
    assert configuration.digest(rendered) == "b03cc10fa46e9cf8", "broker pods would be rolled by an operator upgrade"
