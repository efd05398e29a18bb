"""TLS of a running broker: certificates of clients, versions, and files that are replaced while it serves."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import SSLDomain
from support.broker_process import BrokerProcess
from support.certificates import Authority, Issued
from support.logins import ExternalLogin, ScramLogin
from support.proton_client import connected, publish
from support.raw_client import RawClient

from penstock_amqp.client.management import ManagementClient
from penstock_amqp.sasl.client import NotAuthenticated
from penstock_api.management import EntityType


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("servers"), "server authority")


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("clients"), "client authority")


@pytest.fixture(scope="module")
def files(authority: Authority, clients: Authority, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Copies that a test may replace."""
    folder = tmp_path_factory.mktemp("tls")
    issued = authority.issue("broker")
    shutil.copy(issued.certificate, folder / "tls.crt")
    shutil.copy(issued.key, folder / "tls.key")
    shutil.copy(clients.ca, folder / "ca.crt")
    return {"certificate": str(folder / "tls.crt"), "key": str(folder / "tls.key"), "clientCa": str(folder / "ca.crt")}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, files: dict[str, str]) -> Iterator[BrokerProcess]:
    address = "127.0.0.1:0"
    settings: dict[str, object] = {
        "listeners": [
            {"name": "required", "address": address, "tls": files},
            {"name": "optional", "address": address, "tls": {**files, "clientCertificates": "optional"}},
            {"name": "newest", "address": address, "tls": {**files, "minimumVersion": "1.3"}},
        ],
        "authentication": {"users": {"ann": "secret"}, "scramIterations": 4096},
        "autoCreate": True,
    }
    with BrokerProcess(tmp_path_factory.mktemp("tls") / "data", dev=False, listen=(), settings=settings) as process:
        yield process


def port(broker: BrokerProcess, listener: str) -> int:
    return int(broker.addresses[listener].rpartition(":")[2])


def context(authority: Authority, identity: Issued | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=authority.ca)
    if identity is not None:
        made.load_cert_chain(identity.certificate, identity.key)
    return made


async def user_of(broker: BrokerProcess, container: str) -> str:
    """The user that the broker sees behind a container-id."""
    client = await ManagementClient.connect(broker.management)
    rows = await client.query_all(EntityType.CONNECTION)
    await client.close()
    (user,) = [row["user"] for row in rows if row["containerId"] == container]
    assert isinstance(user, str)
    return user


async def test_the_name_of_the_certificate_is_the_user(
    broker: BrokerProcess, authority: Authority, clients: Authority
) -> None:
    identity = clients.issue("billing")
    with RawClient(
        port(broker, "required"), "by-certificate", login=ExternalLogin(), context=context(authority, identity)
    ):
        assert await user_of(broker, "by-certificate") == "billing"


def test_acting_for_another_than_the_certificate_s_user_is_refused(
    broker: BrokerProcess, authority: Authority, clients: Authority
) -> None:
    login = ExternalLogin(response=b"admin")
    with pytest.raises(NotAuthenticated):
        RawClient(port(broker, "required"), "c", login=login, context=context(authority, clients.issue("billing")))


def test_without_a_certificate_nobody_gets_as_far_as_sasl(broker: BrokerProcess, authority: Authority) -> None:
    with pytest.raises((ssl.SSLError, EOFError, ConnectionError)):
        RawClient(port(broker, "required"), "c", login=ScramLogin("ann", "secret"), context=context(authority))


def test_a_certificate_of_another_authority_is_refused(broker: BrokerProcess, authority: Authority) -> None:
    foreign = context(authority, authority.issue("intruder"))
    with pytest.raises((ssl.SSLError, EOFError, ConnectionError)):
        RawClient(port(broker, "required"), "c", login=ExternalLogin(), context=foreign)


def test_where_certificates_are_optional_external_is_offered_to_who_shows_one(
    broker: BrokerProcess, authority: Authority, clients: Authority
) -> None:
    at = port(broker, "optional")
    with RawClient(at, "c", login=ScramLogin("ann", "secret"), context=context(authority)):
        pass
    with RawClient(at, "d", login=ExternalLogin(), context=context(authority, clients.issue("billing"))):
        pass
    with pytest.raises(NotAuthenticated, match="EXTERNAL is not offered"):
        RawClient(at, "e", login=ExternalLogin(), context=context(authority))


def test_an_older_version_of_tls_than_the_floor_is_refused(
    broker: BrokerProcess, authority: Authority, clients: Authority
) -> None:
    old = context(authority, clients.issue("billing"))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with RawClient(port(broker, "required"), "c", login=ExternalLogin(), context=old):
        pass
    with pytest.raises((ssl.SSLError, ConnectionError)):
        RawClient(port(broker, "newest"), "c", login=ExternalLogin(), context=old)


def test_proton_logs_in_by_its_certificate(broker: BrokerProcess, authority: Authority, clients: Authority) -> None:
    identity = clients.issue("billing")
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(authority.ca))
    domain.set_credentials(str(identity.certificate), str(identity.key), None)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
    url = f"amqps://127.0.0.1:{port(broker, 'required')}"
    with connected(url, ssl_domain=domain, allowed_mechs="EXTERNAL") as connection:
        publish(connection.create_sender("q"), ["x"])


def test_new_files_hold_for_new_connections_and_open_ones_live_on(
    broker: BrokerProcess, files: dict[str, str], authority: Authority, clients: Authority, tmp_path: Path
) -> None:
    at = port(broker, "required")
    old = context(authority, clients.issue("billing"))
    with RawClient(at, "old", login=ExternalLogin(), context=old) as open_before:
        next_authority, next_clients = Authority(tmp_path, "next servers"), Authority(tmp_path, "next clients")
        issued = next_authority.issue("broker")
        for source, name in ((issued.certificate, "certificate"), (issued.key, "key"), (next_clients.ca, "clientCa")):
            shutil.copy(source, files[name])
        new = context(next_authority, next_clients.issue("billing"))
        with RawClient(at, "new", login=ExternalLogin(), context=new):
            pass
        with pytest.raises((ssl.SSLError, EOFError, ConnectionError)):
            RawClient(at, "late", login=ExternalLogin(), context=old)
        open_before.begin()
    # Half a pair is no reason to stop: what was there stays until the other half is too.
    shutil.copy(authority.issue("broker", "half").certificate, files["certificate"])
    for _ in range(3):
        with RawClient(at, "half", login=ExternalLogin(), context=new):
            pass
    assert broker.log().count("keeps its old certificate") == 1


def test_a_handshake_without_end_is_dropped(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", port(broker, "required")), 20) as sock:
        sock.sendall(b"\x16\x03\x01\x40\x00" + b"\x01\x00\x3f\xfc" + b"\x00" * 1000)
        deadline = time.monotonic() + 60
        with pytest.raises((ConnectionError, TimeoutError)):
            while time.monotonic() < deadline:
                sock.sendall(b"\x00" * 10_000)
            raise AssertionError("it takes more and more")
