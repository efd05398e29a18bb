"""What a Broker says of a server certificate that is not the operator's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.resources import NOW

from penstock_operator.children.certificates import ServedCertificate
from penstock_operator.plans.server_certificate import (
    ServerCertificateView,
    certificate_obstacle,
    server_certificate,
)

HOST = "main-amqp.shop.svc"


def found(*names: str, days_ago: int = 10, days_left: int = 80) -> ServedCertificate:
    return ServedCertificate(
        begin=NOW - timedelta(days=days_ago),
        end=NOW + timedelta(days=days_left),
        names=frozenset(names or (HOST,)),
    )


def view(**changes: Any) -> ServerCertificateView:
    facts: dict[str, Any] = {"secret": "mine", "host": HOST}
    return ServerCertificateView(**(facts | changes))


def test_the_operator_s_own_certificate_is_no_matter() -> None:
    assert certificate_obstacle(None) is None
    assert server_certificate(None, NOW) is None


@pytest.mark.parametrize(
    ("changes", "reason", "says"),
    [
        pytest.param(
            {},
            "ServerCertificateNotFound",
            "There is no Secret mine with the keys `tls.crt` and `tls.key`",
            id="secret",
        ),
        pytest.param(
            {"is_issued": True, "has_cert_manager": False},
            "CertManagerNotInstalled",
            "Install cert-manager, or give a certificate in `tls.secretRef`",
            id="no-cert-manager",
        ),
        pytest.param(
            {"is_issued": True},
            "ServerCertificatePending",
            "cert-manager has not yet made the certificate mine. If this lasts",
            id="not-yet",
        ),
        pytest.param(
            {"is_issued": True, "told": "Issuer x not found."},
            "ServerCertificatePending",
            "mine. It says: Issuer x not found. If this lasts",
            id="told",
        ),
    ],
)
def test_without_a_certificate_nothing_is_accepted(changes: dict[str, Any], reason: str, says: str) -> None:
    obstacle = certificate_obstacle(view(**changes))
    assert obstacle is not None
    assert (obstacle.type, obstacle.status.value, str(obstacle.reason)) == ("Accepted", "False", reason)
    assert says in obstacle.message
    condition = server_certificate(view(**changes), NOW)
    assert condition is not None, "the metric of this condition is what the alert looks at"
    assert (condition.type, condition.status.value, str(condition.reason)) == ("ServerCertificate", "False", reason)
    assert condition.message == obstacle.message
    assert certificate_obstacle(view(**changes, found=found())) is None


@pytest.mark.parametrize(
    ("certificate", "status", "reason"),
    [
        pytest.param(found(), "True", "CertificateValid", id="valid"),
        pytest.param(found("*.shop.svc"), "True", "CertificateValid", id="wildcard"),
        pytest.param(found("*.svc"), "False", "NamesMissing", id="a-wildcard-is-one-label"),
        pytest.param(found("broker.example.com"), "False", "NamesMissing", id="only-outside"),
        pytest.param(found(days_ago=81, days_left=9), "True", "CertificateValid", id="a-tenth-left"),
        pytest.param(found(days_ago=82, days_left=8), "False", "CertificateExpiring", id="less-than-a-tenth-left"),
        pytest.param(found(days_left=0), "False", "CertificateExpired", id="over"),
    ],
)
def test_what_is_in_it(certificate: ServedCertificate, status: str, reason: str) -> None:
    condition = server_certificate(view(found=certificate), NOW)
    assert condition is not None
    assert (condition.type, condition.status.value, str(condition.reason)) == ("ServerCertificate", status, reason)


def test_a_renewal_writes_no_new_status() -> None:
    before = server_certificate(view(found=found()), NOW)
    assert server_certificate(view(found=found(days_ago=0, days_left=90)), NOW) == before


def test_whom_to_ask_for_a_new_one_is_told() -> None:
    by_hand, issued = (server_certificate(view(found=found(days_left=-1), is_issued=it), NOW) for it in (False, True))
    assert by_hand is not None
    assert issued is not None
    assert "Renew the Secret mine; no restart is needed." in by_hand.message
    assert "Look at its Certificate of cert-manager; no restart is needed." in issued.message
