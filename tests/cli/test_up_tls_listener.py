"""`penstock up` takes certificates of clients: by a certificate of its own, or by one among its manifests."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
import yaml
from e2e.local_site import LocalSite
from support.certificates import Authority
from support.logins import ExternalLogin
from support.raw_client import RawClient

from penstock_amqp.frames.performatives import Detach, Target
from penstock_amqp.sasl.client import Login, NotAuthenticated
from penstock_api.failure import Misuse
from penstock_api.resources import Broker, parse
from penstock_cli.up.layout import Layout
from penstock_cli.up.tls_listener import encrypted_listener, trusted

BROKER: dict[str, object] = {
    "apiVersion": "penstock.dev/v1alpha1",
    "kind": "Broker",
    "metadata": {"name": "shop"},
    "spec": {
        "authentication": {"clientCaSecretRef": {"name": "clients"}},
        "permissions": [{"users": ["billing"], "actions": ["Publish", "Create"], "queues": ["work"]}],
    },
}


def secret(name: str, **content: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": content}


def put(folder: Path, *manifests: dict[str, object]) -> Path:
    folder.mkdir()
    (folder / "all.yaml").write_text(yaml.safe_dump_all(manifests))
    return folder


def context_of(server_ca: Path, clients: Authority | None = None, user: str = "billing") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(server_ca))
    if clients is not None:
        issued = clients.issue(user)
        context.load_cert_chain(issued.certificate, issued.key)
    return context


def authority(folder: Path, name: str = "clients") -> Authority:
    folder.mkdir(exist_ok=True)
    return Authority(folder, name)


def encrypted(site: LocalSite, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A connection to `localhost`, whose certificate has to say so."""
    port = int(str(site.state()["amqps"]).rpartition(":")[2])
    return context.wrap_socket(socket.create_connection(("localhost", port), 60), server_hostname="localhost")


def test_a_client_is_who_its_certificate_says_also_after_the_next_start(tmp_path: Path) -> None:
    clients, strangers = authority(tmp_path / "signed"), authority(tmp_path / "forged", "strangers")
    folder = put(tmp_path / "in", BROKER, secret("clients", **{"ca.crt": clients.ca.read_text()}))
    own = tmp_path / "data" / "tls" / "ca.crt"
    seen: list[bytes] = []
    for _ in range(2):
        with LocalSite(folder, tmp_path / "data") as site:
            site.wait_until_serving()
            assert "amqp" not in site.state(), "without a certificate nobody can be let in"
            seen.append(own.read_bytes())
            context = context_of(own, clients)
            with RawClient(0, "c", login=ExternalLogin(), stream=encrypted(site, context)) as client:
                client.begin()
                assert client.attach_sender("s", Target(address="work")).target is not None
                assert client.attach_sender("t", Target(address="other")).target is None
                assert str(client.expect(Detach).error) != "None"
            with pytest.raises((OSError, NotAuthenticated)):
                RawClient(0, "c", login=ExternalLogin(), stream=encrypted(site, context_of(own, strangers)))
    assert seen[0] == seen[1], "clients trust it"
    assert (tmp_path / "data" / "tls" / "ca.key").stat().st_mode & 0o077 == 0
    assert f"(server certificate for localhost, signed by the CA in {own})" in (tmp_path / "up.log").read_text()


def test_a_certificate_among_the_manifests_is_shown_and_users_come_without_tls(tmp_path: Path) -> None:
    clients, servers = authority(tmp_path / "signed"), authority(tmp_path / "site", "servers")
    issued = servers.issue("localhost")
    shown = {"tls.crt": issued.certificate.read_text(), "tls.key": issued.key.read_text()}
    authentication = {
        "clientCaSecretRef": {"name": "clients"},
        "clientCertificates": "Optional",
        "usersSecretRef": {"name": "users"},
        "mechanisms": ["EXTERNAL", "PLAIN"],
    }
    broker: dict[str, object] = {**BROKER, "spec": {"authentication": authentication}}
    folder = put(
        tmp_path / "in",
        broker,
        secret("clients", **{"ca.crt": clients.ca.read_text()}),
        secret("users", ann="secret"),
        secret("shop-amqp", **shown),
    )
    with LocalSite(folder, tmp_path / "data") as site:
        site.wait_until_serving()
        for login, context in (
            (ExternalLogin(), context_of(servers.ca, clients)),
            (Login("ann", "secret"), context_of(servers.ca)),
        ):
            with RawClient(0, "c", login=login, stream=encrypted(site, context)):
                pass
        plain = int(str(site.state()["amqp"]).rpartition(":")[2])
        with RawClient(plain, "c", login=Login("ann", "secret")):
            pass
    assert not (tmp_path / "data" / "tls").exists()


@pytest.mark.parametrize(
    ("secrets", "words"),
    [
        ([], "names the Secret clients, and no manifest"),
        ([secret("clients", other="x")], "has no key `ca.crt`"),
        ([secret("clients", **{"ca.crt": "x"}), secret("shop-amqp", **{"tls.crt": "x"})], "no `tls.crt` and `tls.key`"),
    ],
)
def test_what_is_lacking_is_named(tmp_path: Path, secrets: list[dict[str, object]], words: str) -> None:
    folder = put(tmp_path / "in", *secrets)
    broker = parse(BROKER)
    assert isinstance(broker, Broker)
    layout = Layout(tmp_path, tmp_path)
    layout.secrets.mkdir()
    with pytest.raises(Misuse, match=words):
        encrypted_listener(broker, folder, layout, "127.0.0.1:0")
    assert (trusted(broker, folder, layout) is None) is (len(secrets) == 2)
