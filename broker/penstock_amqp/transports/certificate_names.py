"""The user name in a client's certificate. Must not know sockets or users. Source: RFC 5280, 4.1.2.6 and 4.2.1.6.

The library for certificates is imported when the first one comes: it takes a twentieth of a broker's start, and most
brokers ask no client for a certificate.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

__all__ = ["NamePart", "name_in"]


class NamePart(Enum):
    """The part of a certificate that is the user name. Values are those of the broker's settings."""

    COMMON_NAME = "commonName"
    SUBJECT = "subject"
    """The whole distinguished name, in the form of RFC 4514."""
    DNS = "dns"
    """The only DNS name among the alternative names; so with `EMAIL` and `URI`."""
    EMAIL = "email"
    URI = "uri"


def name_in(certificate: bytes, part: NamePart) -> str | None:
    """The user name in a certificate (DER) that TLS has verified; None if it has none, or several."""
    from cryptography import x509

    try:
        parsed = x509.load_der_x509_certificate(certificate)
        names = _names(parsed, part)
    except ValueError:
        return None  # this parser is stricter than OpenSSL, which accepted the certificate
    return names[0] if len(names) == 1 and names[0] and "\0" not in names[0] else None


def _names(certificate: x509.Certificate, part: NamePart) -> list[str]:
    from cryptography import x509

    if part is NamePart.SUBJECT:
        return [certificate.subject.rfc4514_string()]
    if part is NamePart.COMMON_NAME:
        values = [attribute.value for attribute in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
        return [value for value in values if isinstance(value, str)]
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    kinds: dict[NamePart, type[x509.DNSName] | type[x509.RFC822Name] | type[x509.UniformResourceIdentifier]] = {
        NamePart.DNS: x509.DNSName,
        NamePart.EMAIL: x509.RFC822Name,
        NamePart.URI: x509.UniformResourceIdentifier,
    }
    return [str(name) for name in extension.value.get_values_for_type(kinds[part])]
