"""The CA and the server certificate of one Broker: when a new one is due, and how it is made.

The functions `ca_is_due` and `server_is_due` decide from the time and the host names alone. Nothing is replaced without
need, because clients keep a copy of the CA. Keys are ECDSA P-256. The clock is an argument; keys and serial numbers are
random. Source: docs/decisions/059-credentials.md.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = [
    "BRIDGE_LIFE",
    "CA_LIFE",
    "SERVER_LIFE",
    "Pair",
    "ServedCertificate",
    "bare",
    "bridge",
    "ca_is_due",
    "end_of",
    "first_of",
    "is_readable",
    "make_ca",
    "make_server",
    "served",
    "server_is_due",
]

CA_LIFE: Final = timedelta(days=3650)
CA_MARGIN: Final = timedelta(days=365)
BRIDGE_LIFE: Final = timedelta(days=365)
"""How long clients that trust the CA of before still find their way to the new one."""
SERVER_LIFE: Final = timedelta(days=365)
SERVER_MARGIN: Final = timedelta(days=90)
"""A certificate is renewed when it is valid for less than its margin; so an operator that did not run for weeks is
still in time.
"""
_BACKDATED: Final = timedelta(hours=1)
"""Certificates are valid from a little in the past on, for clients whose clocks are behind."""


_CA_USAGE: Final = x509.KeyUsage(
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
_END: Final = b"-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCertificate:
    """What is in a certificate that somebody else has made."""

    begin: datetime
    end: datetime
    names: frozenset[str]
    """Its DNS names and IP addresses."""
    authorities: bytes = b""
    """The certificates of those who signed it, PEM; empty if they are not known."""


def ca_is_due(pair: Pair | None, now: datetime) -> bool:
    """Whether a new CA is needed: there is none, it can't be read, or it expires within `CA_MARGIN`."""
    certificate = _read(pair)
    return certificate is None or certificate.not_valid_after_utc - now < CA_MARGIN


def is_readable(pair: Pair) -> bool:
    """Whether certificate and key can be read and belong together."""
    return _read(pair) is not None


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
    addresses = (str(each) for each in names.get_values_for_type(x509.IPAddress))
    return not {_plain(host) for host in hosts} <= {*names.get_values_for_type(x509.DNSName), *addresses}


def make_ca(name: str, now: datetime) -> Pair:
    """A new CA, valid for `CA_LIFE`; `name` is its common name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    certificate = (
        _builder(subject, subject, key.public_key(), now, CA_LIFE)
        # One authority may follow: the bridge to its successor. RFC 5280 does not count it, but some verifiers do (Go).
        .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
        .add_extension(_CA_USAGE, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def bridge(old: Pair, new: Pair, now: datetime) -> bytes:
    """The key of the CA `new` in a certificate that `old` signed, PEM, for clients that trust only `old`.

    Both have the same subject, so it is self-issued, and does not count for the path length of `old`. It is valid for
    `BRIDGE_LIFE`, at most as long as `old`. Source: RFC 4210, section 4.4 ("new with old"); RFC 5280, section 6.1.
    """
    issuer, subject = x509.load_pem_x509_certificate(old.certificate), x509.load_pem_x509_certificate(new.certificate)
    issuer_key, key = _private_key(old), _private_key(new).public_key()
    life = min(BRIDGE_LIFE, issuer.not_valid_after_utc - now)
    certificate = (
        _builder(subject.subject, issuer.subject, key, now, life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_CA_USAGE, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def served(pair: Pair, authorities: bytes) -> ServedCertificate | None:
    """What is in a certificate; None if certificate or key can't be read, or they don't belong together.

    Of `authorities` only certificates are kept: what else somebody may have written there is not for clients.
    """
    certificate = _read(pair)
    if certificate is None:
        return None
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = (str(each) for each in names.get_values_for_type(x509.IPAddress))
        found = frozenset((*names.get_values_for_type(x509.DNSName), *addresses))
    except (ValueError, x509.ExtensionNotFound):
        found = frozenset[str]()
    try:
        signers = x509.load_pem_x509_certificates(authorities)
    except ValueError:
        signers = []
    return ServedCertificate(
        begin=certificate.not_valid_before_utc,
        end=certificate.not_valid_after_utc,
        names=found,
        authorities=b"".join(each.public_bytes(serialization.Encoding.PEM) for each in signers),
    )


def first_of(chain: bytes) -> bytes:
    """The first certificate in PEM; the bytes as they are if there is none."""
    head, end, _ = chain.partition(_END)
    return head + end + b"\n" if end else chain


def bare(chain: bytes) -> bytes:
    """The certificates in PEM, without what somebody has written beside them: Python's ssl takes no text that is not
    ASCII. The bytes as they are if they can't be read.
    """
    try:
        found = x509.load_pem_x509_certificates(chain)
    except ValueError:
        return chain
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in found)


def end_of(certificate: bytes) -> datetime | None:
    """Until when a certificate is valid; None if it can't be read."""
    try:
        return x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    except ValueError:
        return None


def make_server(ca: Pair, hosts: Sequence[str], now: datetime) -> Pair:
    """A new server certificate for `hosts`, names or IP addresses (the first is its common name), signed by `ca`."""
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    issuer_key = _private_key(ca)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_subject(hosts[0]), issuer.subject, key.public_key(), now, SERVER_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general(host) for host in hosts]), critical=False)
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


def _private_key(pair: Pair) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pair.key, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _general(host: str) -> x509.GeneralName:
    """A name or an IP address, as a certificate has it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _plain(host: str) -> str:
    """A name or an IP address in one way of writing."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


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
