"""The server's certificate changes under JMS traffic on a cluster: by a rotation of the operator's CA, and by another
authority for a certificate of one's own.

Every connection that was open goes on, every accepted message comes once, and no pod is restarted.
`tests/jms_suite/test_certificate_rotation.py` does the same with files, on any machine.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from e2e.kube import wait_for
from e2e.local_demo import build_clients
from support.cluster_certificates import apply_certificate, bring_files, shown, trust, trusts
from support.installed_operator import MINUTE, Installation, Team
from support.tls_traffic import Door, flowing

from penstock_operator.children import certificates
from penstock_operator.children.certificates import Pair

pytestmark = pytest.mark.cluster

AMQPS = 5671
SECRET = "company-tls"


@pytest.fixture(scope="module")
def team(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """A Broker whose certificate also names the address by which this machine reaches it."""
    build_clients(tmp_path_factory.mktemp("maven") / "maven.log")
    with installation.team() as made:
        made.apply_whole()
        made.wait_ready()
        patch(made, f'{{"spec":{{"tls":{{"names":["{address(made)}"]}}}}}}')
        bring_files(made)
        wait_for("its address in the certificate", lambda: admitted(made, trust(made)), 3 * MINUTE)
        yield made


@pytest.fixture
def door(team: Team, tmp_path: Path) -> Door:
    return Door(f"{address(team)}:{AMQPS}", tmp_path)


def address(team: Team) -> str:
    return str(team.field("service", "main-amqp", "spec", "clusterIP"))


def admitted(team: Team, *trusted: str) -> bool:
    """Whether a client that trusts these accepts the broker; False also while the pod is replaced."""
    try:
        return trusts(team, AMQPS, *trusted, name=address(team))
    except OSError:
        return False


def presented(team: Team, *trusted: str) -> bytes:
    return shown(team, AMQPS, *trusted, name=address(team))


def patch(team: Team, change: str) -> None:
    team.kube.kubectl("patch", "broker", "main", "--type=merge", f"--patch={change}")


def pod(team: Team) -> tuple[object, object]:
    """Which pod it is, and how often its broker was started again."""
    status = team.field("pod", "main-0", "status", "containerStatuses")
    return team.field("pod", "main-0", "metadata", "uid"), sum(each["restartCount"] for each in status)


def test_a_rotation_of_the_operators_ca_turns_no_jms_client_away(team: Team, door: Door) -> None:
    old, before, runs = trust(team), presented(team, trust(team)), pod(team)
    with flowing(door, {"old": old}) as flow:
        team.kube.kubectl("annotate", "broker", "main", "penstock.dev/rotate-ca=1")
        wait_for("a new CA", lambda: trust(team) != old, MINUTE)
        both = trust(team)
        new = both.removesuffix(old)
        assert new + old == both
        bring_files(team)
        wait_for("the new certificate", lambda: presented(team, old) != before, 2 * MINUTE)
        flow.goes_on()
        assert [flow.admits(each) for each in (old, new, both)] == [True, True, True]
    assert pod(team) == runs


def server(team: Team, ca: Pair) -> Pair:
    hosts = (f"main-amqp.{team.kube.namespace}.svc", address(team))
    return certificates.make_server(ca, hosts, datetime.now(UTC))


def test_another_authority_of_ones_own_certificate_comes_in_two_steps(team: Team, door: Door) -> None:
    """First clients get both authorities, then the certificate is replaced: docs/how-to/reach.md."""
    first, second = (certificates.make_ca(name, datetime.now(UTC)) for name in ("company 2026", "company 2027"))
    one, two = first.certificate.decode(), second.certificate.decode()
    pair = server(team, first)
    apply_certificate(team, SECRET, pair, one)
    patch(team, f'{{"spec":{{"tls":{{"secretRef":{{"name":"{SECRET}"}}}}}}}}')
    wait_for("the certificate of its own", lambda: admitted(team, one), 3 * MINUTE)
    team.wait_ready()
    old, before, runs = trust(team), presented(team, one), pod(team)
    assert one in old
    with flowing(door, {"old": old, "only-old": one, "both": one + two}) as flow:
        apply_certificate(team, SECRET, pair, one + two)
        team.look()
        wait_for("both authorities for clients", lambda: two in trust(team), MINUTE)
        both = trust(team)
        assert one in both
        assert flow.admits(both)
        renewed = server(team, second)
        apply_certificate(team, SECRET, renewed, one + two)
        bring_files(team)
        wait_for("the new certificate", lambda: presented(team, both) != before, 2 * MINUTE)
        assert presented(team, two) == ssl.PEM_cert_to_DER_cert(renewed.certificate.decode())
        flow.goes_on()
        assert [flow.admits(each) for each in (both, one + two, two)] == [True, True, True]
        assert [flow.admits(each) for each in (old, one)] == [False, False]
    assert pod(team) == runs
    assert team.reason("broker", "main", "ServerCertificate") == ("True", "CertificateValid")
