"""The CA and the server certificate of one Broker: when a new one is due, and how it is made.

The functions `ca_is_due` and `server_is_due` decide from the time and the host names alone. Nothing is replaced without
need, because clients keep a copy of the CA. Keys are ECDSA P-256. The clock is an argument; keys and serial numbers are
random. Source: docs/decisions/059-credentials.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["CA_LIFE", "SERVER_LIFE", "Pair", "ca_is_due", "make_ca", "make_server", "server_is_due"]

CA_LIFE: Final = timedelta(days=3650)
CA_MARGIN: Final = timedelta(days=365)
SERVER_LIFE: Final = timedelta(days=365)
SERVER_MARGIN: Final = timedelta(days=90)
"""A certificate is renewed when it is valid for less than its margin; so an operator that did not run for weeks is
still in time.
"""
_BACKDATED: Final = timedelta(hours=1)
"""Certificates are valid from a little in the past on, for clients whose clocks are behind."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


def ca_is_due(pair: Pair | None, now: datetime) -> bool:
    """Whether a new CA is needed: there is none, it can't be read, or it expires within `CA_MARGIN`."""
    certificate = _read(pair)
    return certificate is None or certificate.not_valid_after_utc - now < CA_MARGIN


def server_is_due(pair: Pair | None, ca: Pair, hosts: Sequence[str], now: datetime) -> bool:
    """Whether a new server certificate is needed: there is none, it can't be read, another CA signed it, one of `hosts`
    is missing in it, or it expires within `SERVER_MARGIN`.
    """
    certificate, issuer = _read(pair), _read(ca)
    if certificate is None or issuer is None or certificate.not_valid_after_utc - now < SERVER_MARGIN:
        return True
    try:
        certificate.verify_directly_issued_by(issuer)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return True
    return not set(hosts) <= set(names.get_values_for_type(x509.DNSName))


def make_ca(name: str, now: datetime) -> Pair:
    """A new CA, valid for `CA_LIFE`; `name` is its common name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(subject, subject, key.public_key(), now, CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def make_server(ca: Pair, hosts: Sequence[str], now: datetime) -> Pair:
    """A new server certificate for `hosts` (the first is its common name), signed by `ca`."""
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    issuer_key = serialization.load_pem_private_key(ca.key, password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_subject(hosts[0]), issuer.subject, key.public_key(), now, SERVER_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def _read(pair: Pair | None) -> x509.Certificate | None:
    """The certificate of a pair; None if certificate or key can't be read, or they don't belong together."""
    if pair is None:
        return None
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
    except (ValueError, TypeError):
        return None
    return certificate if key.public_key() == certificate.public_key() else None


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + life)
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), encoded)
