"""Which name of a certificate is the user's, and that an unclear one is none."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from support.certificates import Authority

from penstock_amqp.transports.certificate_names import NamePart, name_in


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    others = [
        x509.RFC822Name("ann@example.org"),
        x509.UniformResourceIdentifier("spiffe://cluster.local/ns/shop/sa/billing"),
        x509.UniformResourceIdentifier("spiffe://cluster.local/ns/shop/sa/other"),
    ]
    return der(Authority(tmp_path_factory.mktemp("names")).issue("billing", others=others).certificate)


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (NamePart.COMMON_NAME, "billing"),
        (NamePart.SUBJECT, "CN=billing"),
        (NamePart.DNS, "billing"),
        (NamePart.EMAIL, "ann@example.org"),
        (NamePart.URI, None),  # two of them: neither is the name
    ],
)
def test_the_part_that_the_settings_name(certificate: bytes, part: NamePart, name: str | None) -> None:
    assert name_in(certificate, part) == name


@pytest.mark.parametrize("part", list(NamePart))
def test_a_certificate_without_such_a_name_has_none(tmp_path: Path, part: NamePart) -> None:
    authority = Authority(tmp_path)
    expected = {NamePart.COMMON_NAME: "test authority", NamePart.SUBJECT: "CN=test authority"}.get(part)
    assert name_in(der(authority.ca), part) == expected


@pytest.mark.parametrize("bad", [b"", b"\x30\x03\x02\x01\x01", b"x" * 100])
def test_bytes_that_are_no_certificate_have_no_name(bad: bytes) -> None:
    assert name_in(bad, NamePart.COMMON_NAME) is None
