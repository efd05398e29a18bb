"""The Secrets of a Broker: CA, server certificate, management password, observer token.

What is there and still good is kept. Time and random text are arguments; only the private keys that `certificates`
makes are different at each call. Source: docs/decisions/059-credentials.md.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from penstock_api.resources import Broker
from penstock_operator.children import certificates
from penstock_operator.children.certificates import Pair
from penstock_operator.children.metadata import child_metadata
from penstock_operator.manifest import Manifest, text_at

__all__ = ["MANAGEMENT_USER", "Credentials", "hosts_of", "manifests", "renew"]

MANAGEMENT_USER: Final = "operator"
_TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """All secrets of one Broker."""

    ca: Pair
    server: Pair
    password: str
    """Password of the management user."""
    token: str
    """Bearer token of the observer."""


def hosts_of(broker: Broker, cluster_domain: str) -> tuple[str, ...]:
    """The DNS names in the server certificate: all Services of the namespaces that may have an Exchange of this Broker.

    They are wildcards, so that a new Exchange needs no new certificate. They give the Broker no power over other
    Services: only clients of this Broker trust its CA.
    """
    name, home = broker.metadata.name, broker.metadata.namespace
    allowed = [namespace for namespace in sorted(broker.spec.allowed_namespaces) if namespace not in ("*", home)]
    hosts = [f"{name}-amqp.{home}.svc", "localhost"]
    for namespace in (home, *allowed):
        hosts += [f"*.{namespace}.svc", f"*.{namespace}.svc.{cluster_domain}"]
    hosts += [f"*.{name}-pods.{home}.svc", f"*.{name}-pods.{home}.svc.{cluster_domain}"]
    return tuple(hosts)


def renew(
    observed: Mapping[str, Manifest | None],
    broker: Broker,
    hosts: Sequence[str],
    now: datetime,
    random_text: Callable[[int], str],
) -> Credentials:
    """The credentials to use now: those of `observed` (Secrets by name) that are still good, new ones for the rest.

    `random_text(n)`: text made of `n` random bytes, such as `secrets.token_urlsafe`.
    """
    name = broker.metadata.name
    ca = _pair(observed.get(f"{name}-ca"), "ca.crt", "ca.key")
    if ca is None or certificates.ca_is_due(ca, now):
        ca = certificates.make_ca(f"Penstock Broker {broker.key}", now)
    server = _pair(observed.get(f"{name}-amqp"), "tls.crt", "tls.key")
    if server is None or certificates.server_is_due(server, ca, hosts, now):
        server = certificates.make_server(ca, hosts, now)
    return Credentials(
        ca=ca,
        server=server,
        password=_text(observed.get(f"{name}-management"), "password") or random_text(_TOKEN_BYTES),
        token=_text(observed.get(f"{name}-observer"), "token") or random_text(_TOKEN_BYTES),
    )


def manifests(broker: Broker, credentials: Credentials) -> list[Manifest]:
    """The four Secrets, and the ConfigMap from which clients take the CA. No pod mounts the CA's key."""
    name = broker.metadata.name
    ca = credentials.ca.certificate
    config_map: Manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(broker, broker, f"{name}-ca"),
        "data": {"ca.crt": ca.decode()},
    }
    server = {"tls.crt": credentials.server.certificate, "tls.key": credentials.server.key, "ca.crt": ca}
    management = {"username": MANAGEMENT_USER.encode(), "password": credentials.password.encode()}
    return [
        _secret(broker, f"{name}-ca", {"ca.crt": ca, "ca.key": credentials.ca.key}),
        _secret(broker, f"{name}-amqp", server, kind="kubernetes.io/tls"),
        _secret(broker, f"{name}-management", management, kind="kubernetes.io/basic-auth"),
        _secret(broker, f"{name}-observer", {"token": credentials.token.encode(), "ca.crt": ca}),
        config_map,
    ]


def _secret(broker: Broker, name: str, data: Mapping[str, bytes], kind: str = "Opaque") -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": child_metadata(broker, broker, name),
        "type": kind,
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def _bytes(secret: Manifest | None, key: str) -> bytes | None:
    encoded = text_at(secret, "data", key)
    if encoded is None:
        return None
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return None


def _text(secret: Manifest | None, key: str) -> str | None:
    """The text at `key`; None if it is missing, not ASCII, or too short to be a secret that the operator has made."""
    value = _bytes(secret, key)
    if value is None or len(value) < _TOKEN_BYTES:
        return None
    try:
        return value.decode("ascii")
    except UnicodeDecodeError:
        return None


def _pair(secret: Manifest | None, certificate: str, key: str) -> Pair | None:
    found, found_key = _bytes(secret, certificate), _bytes(secret, key)
    return None if found is None or found_key is None else Pair(found, found_key)
