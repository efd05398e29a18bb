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
