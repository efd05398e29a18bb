"""The listener with TLS of `penstock up`, for a Broker that accepts certificates of clients.

The server's certificate comes from the Secret `<broker>-amqp` among the manifests, as on Kubernetes, where the operator
makes it. If there is none, a CA that belongs to the data folder signs one for `localhost`. This CA is kept, because
clients trust it. Source: docs/reference/security.md; docs/decisions/059-credentials.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from penstock_api.failure import Misuse
from penstock_api.resources import Broker
from penstock_api.resources.listeners import listener_settings, tls_settings
from penstock_cli.up.layout import Layout
from penstock_cli.up.manifest_secrets import OWNER_ONLY, content, find, write
from penstock_operator.children import certificates
from penstock_operator.children.certificates import Pair

__all__ = ["HOST", "encrypted_listener", "trusted", "wants_tls"]

HOST: Final = "localhost"
PRIVATE: Final = 0o600


def wants_tls(broker: Broker) -> bool:
    """Whether the Broker accepts client certificates; otherwise all listeners are without TLS."""
    return broker.spec.authentication.client_ca_secret_ref is not None


def trusted(broker: Broker, folder: Path, layout: Layout) -> Path | None:
    """The CA certificate of the data folder, which clients have to trust; None if the manifests have a certificate."""
    return None if _given(broker, folder) is not None else layout.tls / "ca.crt"


def encrypted_listener(broker: Broker, folder: Path, layout: Layout, address: str) -> dict[str, object]:
    """The listener at `address`, as the broker's configuration has it. Writes the certificate files that it names.

    `folder` holds the manifests. Raises `Misuse` if the CA of the clients is not among them.
    """
    given = broker.spec.authentication
    assert given.client_ca_secret_ref is not None
    name = given.client_ca_secret_ref.name
    clients = content(broker, folder, "Secret", name)
    if "ca.crt" not in clients:
        raise Misuse(f"Secret {name} has no key `ca.crt`.", "Put the CA certificates there, in PEM.")
    accepted = write(layout.secrets / "client-ca", {"ca.crt": clients["ca.crt"]})
    own = _server(broker, folder, layout)
    listener: dict[str, object] = {
        "name": "amqps",
        "address": address,
        "tls": {
            "certificate": str(own / "tls.crt"),
            "key": str(own / "tls.key"),
            **tls_settings(broker.spec.listeners),
            "clientCa": str(accepted / "ca.crt"),
            "clientCertificates": given.client_certificates.lower(),
        },
        **listener_settings(broker.spec.listeners, "amqps"),
    }
    if given.mechanisms is not None:
        listener["saslMechanisms"] = list(given.mechanisms)
    return listener


def _given(broker: Broker, folder: Path) -> Mapping[str, bytes] | None:
    return find(broker, folder, "Secret", f"{broker.metadata.name}-amqp")


def _server(broker: Broker, folder: Path, layout: Layout) -> Path:
    """The folder of the server's certificate and key."""
    given = _given(broker, folder)
    if given is None:
        return _own(broker, layout.tls)
    if not {"tls.crt", "tls.key"} <= given.keys():
        raise Misuse(
            f"Secret {broker.metadata.name}-amqp has no `tls.crt` and `tls.key`.",
            "Put the server's certificate and key there, or leave the Secret out: one is made for localhost.",
        )
    return write(layout.secrets / "server", {name: given[name] for name in ("tls.crt", "tls.key")})


def _own(broker: Broker, place: Path) -> Path:
    """Folder with CA and server certificate for localhost; makes those that are missing or expire soon."""
    now = datetime.now(UTC)
    place.mkdir(mode=OWNER_ONLY, exist_ok=True)
    ca, server = _pair(place, "ca"), _pair(place, "tls")
    if ca is None or certificates.ca_is_due(ca, now):
        ca = certificates.make_ca(f"penstock up {broker.metadata.name}", now)
        _keep(place, "ca", ca)
    if server is None or certificates.server_is_due(server, ca, [HOST], now):
        _keep(place, "tls", certificates.make_server(ca, [HOST], now))
    return place


def _pair(place: Path, name: str) -> Pair | None:
    certificate, key = place / f"{name}.crt", place / f"{name}.key"
    return Pair(certificate.read_bytes(), key.read_bytes()) if certificate.exists() and key.exists() else None


def _keep(place: Path, name: str, pair: Pair) -> None:
    key = place / f"{name}.key"
    key.touch(mode=PRIVATE)
    key.write_bytes(pair.key)
    (place / f"{name}.crt").write_bytes(pair.certificate)
