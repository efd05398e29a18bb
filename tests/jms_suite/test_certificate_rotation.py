"""The server's certificate is replaced under JMS traffic: by the operator's next authority, and by somebody else's.

The files are those that the operator writes; `test_cluster_certificate` does the same with resources on a cluster.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from e2e.local_demo import build_clients
from support.broker_process import BrokerProcess
from support.tls_traffic import Door, flowing
from support.waiting import until

from penstock_operator.children import authority, certificates
from penstock_operator.children.authority import Authority

pytestmark = pytest.mark.jms

HOSTS = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Served:
    """A broker's TLS listener, and the files of its certificate."""

    broker: BrokerProcess
    certificate: Path
    key: Path

    @property
    def port(self) -> int:
        return int(self.broker.addresses["amqps"].rpartition(":")[2])

    def serve(self, ca: Authority, *, with_bridge: bool = True) -> None:
        """Replace key and certificate, and wait until new connections see it."""
        pair = certificates.make_server(ca.current, HOSTS, datetime.now(UTC))
        self.key.write_bytes(pair.key)
        self.certificate.write_bytes(ca.chain(pair.certificate) if with_bridge else pair.certificate)
        wanted = ssl.PEM_cert_to_DER_cert(pair.certificate.decode())
        until(lambda: self.shown() == wanted, "the new certificate")

    def shown(self) -> bytes:
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", self.port), timeout=60))


def first_authority(name: str) -> Authority:
    return authority.renewed(None, name, "", datetime.now(UTC))


@pytest.fixture
def old() -> Authority:
    return first_authority("Penstock Broker shop/main")


@pytest.fixture
def served(tmp_path: Path, old: Authority) -> Iterator[Served]:
    build_clients(tmp_path / "maven.log")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    pair = certificates.make_server(old.current, HOSTS, datetime.now(UTC))
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    tls = {"certificate": str(certificate), "key": str(key)}
    listeners = [{"name": "amqps", "address": "127.0.0.1:0", "tls": tls}]
    with BrokerProcess(tmp_path / "data", settings={"listeners": listeners}) as broker:
        yield Served(broker, certificate, key)


def pem(*values: bytes) -> str:
    return b"".join(values).decode()


def test_the_operators_next_authority_turns_no_jms_client_away(served: Served, old: Authority, tmp_path: Path) -> None:
    new = next_of(old)
    before, after = pem(old.trusted), pem(new.current.certificate)
    door = Door(f"localhost:{served.port}", tmp_path)
    with flowing(door, {"old": before, "both": pem(new.trusted)}) as flow:
        assert not flow.admits(after), "nothing that it trusts is shown yet"
        served.serve(new)
        flow.goes_on()
        assert [flow.admits(each) for each in (before, after, pem(new.trusted))] == [True, True, True]


def test_without_the_bridge_who_trusts_the_old_authority_is_refused(
    served: Served, old: Authority, tmp_path: Path
) -> None:
    """What the test above relies on: Java does look at the authority, and connections that are open go on."""
    new = next_of(old)
    with flowing(Door(f"localhost:{served.port}", tmp_path), {"old": pem(old.trusted)}) as flow:
        served.serve(new, with_bridge=False)
        flow.goes_on()
        assert [flow.admits(each) for each in (pem(old.trusted), pem(new.trusted))] == [False, True]


def test_another_authority_is_accepted_by_those_who_got_it_before(
    served: Served, old: Authority, tmp_path: Path
) -> None:
    other = first_authority("company")
    both = pem(old.trusted, other.trusted)
    with flowing(Door(f"localhost:{served.port}", tmp_path), {"old": pem(old.trusted), "both": both}) as flow:
        served.serve(other)
        flow.goes_on()
        assert [flow.admits(each) for each in (both, pem(other.trusted), pem(old.trusted))] == [True, True, False]


def next_of(before: Authority) -> Authority:
    """The authority after a rotation."""
    secret: dict[str, object] = {
        "data": {key: base64.b64encode(value).decode() for key, value in before.secret_data().items()}
    }
    return authority.renewed(secret, "Penstock Broker shop/main", "2026-11", datetime.now(UTC))
