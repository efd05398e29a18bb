"""The configuration file: keys as documented, every wrong one named, passwords never in the clear by accident."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_amqp.transports.certificate_names import NamePart
from penstock_api.failure import Misuse
from penstock_broker.log import LogOptions
from penstock_broker.settings.security import ClientCertificates
from penstock_broker.settings.settings import BrokerSettings, ListenerKind, ListenerSettings, load
from penstock_core.permissions import Action, Grant

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


@pytest.mark.parametrize("text", ["listeners: [", "- a\n- b", "[]", "false", "''"])
def test_what_is_no_map_is_refused_in_words(tmp_path: Path, text: str) -> None:
    with pytest.raises(Misuse):
        load(write(tmp_path, text))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("# für das Lager\n".encode("latin-1"), "is not text in UTF-8"),
        (b"authentication: {users: {ann: 2026-13-45}}", "is not valid YAML: month must be in 1..12"),
        (b"maxFrameBytes: 0x_", "is not valid YAML: "),
        (b"a: " + b"[" * 3000, "is not valid YAML: lists or maps lie too deep in each other"),
        (b"a: \x00", "is not valid YAML: "),
    ],
)
def test_a_file_that_is_no_yaml_is_refused_in_words(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "broker.yaml"
    path.write_bytes(content)
    with pytest.raises(Misuse) as wrong:
        load(path)
    assert f"The configuration {path} {told}" in wrong.value.cause


def test_a_key_that_is_there_twice_is_told_with_its_line(tmp_path: Path) -> None:
    """YAML's own libraries keep the last one, and half of the listeners would be missing."""
    with pytest.raises(Misuse, match=r"(?s)the key 'listeners' is there twice.*line 3, column 1"):
        load(write(tmp_path, "listeners: [{address: 'h:1'}]\nautoCreate: true\nlisteners: [{address: 'h:2'}]\n"))


def test_an_anchor_may_be_used_twice_and_overridden(tmp_path: Path) -> None:
    text = (
        "listeners:\n- &a {name: a, address: 'h:1', maxMessageBytes: 1Ki}\n- &b {<<: *a, name: b}\n"
        "- {<<: *b, name: c, maxMessageBytes: 2Ki}\n"
    )
    found = load(write(tmp_path, text)).listeners
    assert [(each.name, each.address, each.max_message_bytes) for each in found] == [
        ("a", "h:1", 1024),
        ("b", "h:1", 1024),
        ("c", "h:1", 2048),
    ]


def test_all_that_does_not_fit_together_is_told_at_once(tmp_path: Path) -> None:
    text = (
        "listeners:\n"
        "- {name: one, address: '0.0.0.0:1', saslMechanisms: [PLAIN, SCRAM]}\n"
        "- {name: two, address: '0.0.0.0:2', saslMechanisms: [CRAM-MD5]}\n"
        "- {name: two, address: 'h:3'}\n"
        "log: {segmentBytes: 1Mi}\ntransactions: {maxBytes: 1Gi}\n"
    )
    with pytest.raises(Misuse) as wrong:
        load(write(tmp_path, text))
    for told in (
        "'SCRAM' is not a SASL mechanism",
        "'CRAM-MD5' is not a SASL mechanism",
        "listener 'one' would take PLAIN without TLS",
        "several listeners are named 'two'",
        "transactions.maxBytes",
    ):
        assert told in wrong.value.cause


def test_sizes_may_have_units(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(
        "{maxMessageBytes: 8Mi, queueMaxBytes: 1G, memory: {maxBytes: 64Mi}, log: {segmentBytes: 32Mi},"
        " transactions: {maxBytes: 1Mi}, listeners: [{address: 'h:1', maxMessageBytes: 4Ki}]}"
    )
    found = load(path)
    assert (found.max_message_bytes, found.queue_max_bytes, found.memory.max_bytes) == (8388608, 10**9, 67108864)
    assert (found.log.segment_bytes, found.transactions.max_bytes) == (33554432, 1048576)
    assert found.listeners[0].max_message_bytes == 4096


@pytest.mark.parametrize(("given", "taken"), [("100M", 99_999_744), ("1048577", 1_048_576), ("4Gi", 4_294_967_296)])
def test_a_segment_has_the_next_lower_size_that_the_log_takes(tmp_path: Path, given: str, taken: int) -> None:
    found = load(write(tmp_path, f"{{listeners: [], log: {{segmentBytes: {given}}}}}"))
    assert found.log.segment_bytes == taken
    assert LogOptions(segment_bytes=taken).segment_bytes == taken


@pytest.mark.parametrize("given", ["4294971392", "1048575", "8Gi"])
def test_a_segment_that_no_log_takes_is_refused(tmp_path: Path, given: str) -> None:
    """A block says in 32 bits where in its segment it begins."""
    with pytest.raises(Misuse, match="segmentBytes"):
        load(write(tmp_path, f"{{listeners: [], log: {{segmentBytes: {given}}}}}"))
    with pytest.raises(ValueError, match="from 16384 to 4294967296"):
        LogOptions(segment_bytes=4_294_971_392)


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
    assert ListenerSettings(address=address).is_local is local


@pytest.mark.parametrize("mechanism", ["PLAIN", "XOAUTH2", "OAUTHBEARER"])
def test_secrets_without_tls_want_a_word(tmp_path: Path, mechanism: str) -> None:
    text = (
        f'listeners: [{{address: "0.0.0.0:5672", saslMechanisms: [{mechanism}]}}]\n'
        "authentication: {users: {ann: secret}"
    )
    with pytest.raises(Misuse, match="allowInsecurePlain"):
        load(write(tmp_path, text + "}\n"))
    assert load(write(tmp_path, text + ", allowInsecurePlain: true}\n")).listeners
    assert load(write(tmp_path, text.replace("0.0.0.0", "127.0.0.1") + "}\n")).listeners


def test_an_unknown_mechanism_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="'CRAM-MD5' is not a SASL mechanism"):
        load(write(tmp_path, 'listeners: [{address: "127.0.0.1:0", saslMechanisms: [CRAM-MD5]}]\n'))


SECURITY = """
listeners:
  - {name: wss, kind: webSocket, address: "0.0.0.0:443",
     tls: {certificate: /c, key: /k, clientCa: /ca, clientCertificates: optional, minimumVersion: "1.3"}}
authentication:
  scramIterations: 4096
  certificateUser: dns
  groups: {team: [ann, bob]}
  tokens:
    - {issuer: "https://issuer", audiences: [penstock.dev/shop/main], keysFile: /keys, algorithms: [RS256]}
permissions:
  - {users: [ann], actions: [publish, consume], exchanges: ["orders.*"]}
permissionsFile: /permissions/permissions.yaml
limits: {connections: 10, connectionsPerUser: 2, connectionsPerPeer: 3, unauthenticated: 4, unauthenticatedPerPeer: 1,
         loginSeconds: 5, sessionsPerConnection: 6, linksPerConnection: 7}
"""


def test_every_key_of_security_is_read(tmp_path: Path) -> None:
    settings = load(write(tmp_path, SECURITY))
    (listener,) = settings.listeners
    assert listener.kind is ListenerKind.WEB_SOCKET
    assert listener.tls is not None
    assert listener.tls.client_ca == Path("/ca")
    assert listener.tls.client_certificates is ClientCertificates.OPTIONAL
    assert listener.tls.minimum_version == "1.3"
    assert settings.authentication.certificate_user is NamePart.DNS
    (issuer,) = settings.authentication.tokens
    assert (issuer.audiences, issuer.user_claim, issuer.leeway_seconds) == (("penstock.dev/shop/main",), "sub", 30)
    assert settings.permissions is not None
    assert settings.permissions[0].grant() == Grant(
        users=("ann",), actions=frozenset((Action.PUBLISH, Action.CONSUME)), exchanges=("orders.*",)
    )
    assert settings.limits.links_per_connection == 7


@pytest.mark.parametrize(
    ("permission", "words"),
    [
        ("{actions: [publish], queues: [q]}", "applies to nobody"),
        ("{users: [ann], actions: [publish]}", "allows nothing"),
        ("{users: [ann], actions: [], queues: [q]}", "actions"),
        ("{users: [ann], actions: [delete], queues: [q]}", "actions"),
    ],
)
def test_a_permission_that_means_nothing_is_refused(tmp_path: Path, permission: str, words: str) -> None:
    with pytest.raises(Misuse, match=words):
        load(write(tmp_path, f"permissions: [{permission}]\n"))


def test_messages_may_be_larger_than_a_log_segment(tmp_path: Path) -> None:
    settings = load(write(tmp_path, "maxMessageBytes: 1073741824\nlog: {segmentBytes: 67108864}\n"))
    assert settings.max_message_bytes == 1 << 30


def test_dev_adds_guest_anonymous_and_names_made_when_used() -> None:
    settings = BrokerSettings.model_validate({"authentication": {"users": {"ann": "x"}}}).for_dev()
    assert settings.authentication.users == {"ann": "x", "guest": "guest"}
    assert settings.authentication.anonymous
    assert settings.auto_create


@pytest.mark.parametrize("origin", ["shop.example", "https://shop.example/amqp", "https://*.example", ""])
def test_what_is_no_origin_is_refused(tmp_path: Path, origin: str) -> None:
    text = f"listeners: [{{address: 'a:1', kind: webSocket, allowedOrigins: ['{origin}']}}]"
    with pytest.raises(Misuse, match="is not an origin"):
        load(write(tmp_path, text))


def test_origins_are_kept_as_browsers_write_them(tmp_path: Path) -> None:
    text = "listeners: [{address: 'a:1', kind: webSocket, allowedOrigins: ['HTTPS://Shop.example:443', '*', 'null']}]"
    (listener,) = load(write(tmp_path, text)).listeners
    assert listener.allowed_origins == ("https://shop.example", "*", "null")


def test_origins_of_a_listener_without_web_sockets_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="allowedOrigins is for listeners of kind webSocket"):
        load(write(tmp_path, "listeners: [{address: 'a:1', allowedOrigins: ['*']}]"))
