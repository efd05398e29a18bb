"""The certificate of a Broker's listeners that is not the operator's: where it is, what is in it, who is asked for it.

Management and observer keep the operator's certificate, so a certificate that lacks a name or has ended keeps neither
the operator nor Prometheus out. Source: cert-manager, "Certificate resource"; docs/decisions/101-reach.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock_api.resources import Broker
from penstock_api.resources.server_tls import is_address
from penstock_operator.children import certificates
from penstock_operator.children.certificates import Pair, ServedCertificate
from penstock_operator.children.metadata import child_metadata
from penstock_operator.children.secret_data import bytes_at
from penstock_operator.manifest import Manifest, dig, items_of, text_at

__all__ = ["FOLDER", "cert_manager_certificates", "mounts_issued_secret", "read", "request_name", "secret_name"]

FOLDER: Final = "/etc/penstock/server-tls"


def secret_name(broker: Broker) -> str | None:
    """The Secret with the certificate; None if the operator makes it."""
    tls = broker.spec.tls
    if tls.issuer_ref is not None:
        return _issued_name(broker)
    return None if tls.secret_ref is None else tls.secret_ref.name


def cert_manager_certificates(broker: Broker, hosts: Sequence[str]) -> list[Manifest]:
    """The Certificate that asks cert-manager for a certificate with these names; none without an issuer."""
    issuer = broker.spec.tls.issuer_ref
    if issuer is None:
        return []
    spec: Manifest = {
        "secretName": _issued_name(broker),
        "issuerRef": {"name": issuer.name, "kind": issuer.kind, "group": issuer.group},
        "dnsNames": [host for host in hosts if not is_address(host)],
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        "usages": ["digital signature", "server auth"],
    }
    addresses = [host for host in hosts if is_address(host)]
    if addresses:
        spec["ipAddresses"] = addresses
    about = child_metadata(broker, broker, _issued_name(broker))
    return [{"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": about, "spec": spec}]


def request_name(certificate: Manifest) -> str:
    """The CertificateRequest by which cert-manager asks the issuer for the next certificate; it numbers them."""
    revision = dig(certificate, "status", "revision")
    return f"{text_at(certificate, 'metadata', 'name')}-{(revision if isinstance(revision, int) else 0) + 1}"


def mounts_issued_secret(broker: Broker, stateful_set: Manifest | None) -> bool:
    """Whether the pods mount the Secret that cert-manager makes; then there may be a Certificate."""
    volumes = items_of(stateful_set, "spec", "template", "spec", "volumes")
    return any(text_at(each, "secret", "secretName") == _issued_name(broker) for each in volumes)


def read(secret: Manifest | None) -> ServedCertificate | None:
    """What is in a Secret; None if `tls.crt` or `tls.key` is missing, can't be read, or they don't belong together."""
    certificate, key = bytes_at(secret, "tls.crt"), bytes_at(secret, "tls.key")
    if certificate is None or key is None:
        return None
    return certificates.served(Pair(certificate, key), bytes_at(secret, "ca.crt") or b"")


def _issued_name(broker: Broker) -> str:
    return f"{broker.metadata.name}-tls"
