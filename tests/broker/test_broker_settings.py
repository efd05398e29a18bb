"""The configuration file: keys as documented, every wrong one named, passwords never in the clear by accident."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_api.failing import Misuse
from penstock_broker.settings import Listener, Settings, load

WHOLE = """
listeners:
  - name: amqps
    address: "0.0.0.0:5671"
    tls: {certificate: /tls/tls.crt, key: /tls/tls.key}
    saslMechanisms: [PLAIN]
management:
  address: "0.0.0.0:5670"
  tls: {certificate: /tls/tls.crt, key: /tls/tls.key}
  user: operator
  passwordFile: /management/password
observerSocket: /run/penstock/observer.sock
probes: "0.0.0.0:8081"
authentication: {usersFolder: /users}
log: {segmentBytes: 67108864}
autoCreate: false
maxMessageBytes: 1048576
idleTimeoutSeconds: 30
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "broker.yaml"
    path.write_text(text)
    return path


def test_every_key_of_a_pod_s_file_is_read(tmp_path: Path) -> None:
    settings = load(write(tmp_path, WHOLE))
    (listener,) = settings.listeners
    assert (listener.name, listener.address, listener.sasl_mechanisms) == ("amqps", "0.0.0.0:5671", ("PLAIN",))
    assert settings.management is not None
    assert settings.management.password_file == Path("/management/password")
    assert (settings.max_message_bytes, settings.idle_timeout_seconds, settings.auto_create) == (1048576, 30, False)


def test_wrong_keys_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(Misuse) as wrong:
        load(write(tmp_path, "listener: []\nautoCreate: perhaps\n"))
    assert "listener" in wrong.value.cause
    assert "autoCreate" in wrong.value.cause


@pytest.mark.parametrize("text", ["listeners: [", "- a\n- b"])
def test_what_is_no_map_is_refused_in_words(tmp_path: Path, text: str) -> None:
    with pytest.raises(Misuse):
        load(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"absent\.yaml"):
        load(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("unix:/run/x", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.1.2.3:1", False),
        ("example.org:1", False),
    ],
)
def test_an_address_says_whether_other_machines_reach_it(address: str, local: bool) -> None:
    assert Listener(address=address).is_local is local


def test_passwords_without_tls_want_a_word(tmp_path: Path) -> None:
    text = 'listeners: [{address: "0.0.0.0:5672"}]\nauthentication: {users: {ann: secret}'
    with pytest.raises(Misuse, match="allowInsecurePlain"):
        load(write(tmp_path, text + "}\n"))
    assert load(write(tmp_path, text + ", allowInsecurePlain: true}\n")).listeners
    assert load(write(tmp_path, text.replace("0.0.0.0", "127.0.0.1") + "}\n")).listeners


def test_messages_have_to_fit_a_log_segment(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="segmentBytes"):
        load(write(tmp_path, "maxMessageBytes: 16777216\nlog: {segmentBytes: 16777216}\n"))


def test_dev_adds_guest_anonymous_and_names_made_when_used() -> None:
    settings = Settings.model_validate({"authentication": {"users": {"ann": "x"}}}).for_dev()
    assert settings.authentication.users == {"ann": "x", "guest": "guest"}
    assert settings.authentication.anonymous
    assert settings.auto_create
