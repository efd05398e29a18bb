"""The Secrets of a Broker: CA, server certificate, management password, tokens of the observer.

What is there and still good is kept. Time and random text are arguments; only the private keys that `certificates`
makes are different at each call. Source: docs/decisions/059-credentials.md, docs/decisions/070-observer-tokens.md.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from penstock_api.observer_tokens import FULL_TOKEN, MESSAGES_TOKEN, SCALE_KEY, TOKEN_SCOPES
from penstock_api.resources import Broker
from penstock_operator import names
from penstock_operator.children import authority, certificates
from penstock_operator.children.authority import Authority
from penstock_operator.children.certificates import Pair
from penstock_operator.children.metadata import child_metadata
from penstock_operator.children.secret_data import bytes_at
from penstock_operator.manifest import Manifest

__all__ = ["MANAGEMENT_USER", "SECRETS", "Credentials", "hosts_of", "manifests", "renew"]

SECRETS: Final = ("ca", "amqp", "management", "observer", "observer-scrape", "observer-lag", "observer-messages")
"""The Secrets of a Broker: their names after `<broker>-`. The last one is made only if its page shows messages."""

MANAGEMENT_USER: Final = "operator"
_TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """All secrets of one Broker."""

    authority: Authority
    server: Pair
    """The certificate of management, observer and, by default, the listeners for clients."""
    password: str
    """Password of the management user."""
    observer: Mapping[str, str]
    """The tokens of the observer, and the key of the tokens of subscriptions, by the names of their files."""
    is_narrow: bool
    """Whether Prometheus and the lag job get tokens of their own; else they get the one for everything, which is the
    only one that the observer of an earlier release knows.
    """

    @property
    def ca(self) -> Pair:
        """The CA that signs."""
        return self.authority.current

    @property
    def trusted(self) -> bytes:
        """What everybody who connects trusts, PEM; for a year after a rotation also the CA of before."""
        return self.authority.trusted

    @property
    def scale_key(self) -> bytes:
        """The key of the tokens of single subscriptions."""
        return self.observer[SCALE_KEY].encode()

    def users_of_the_observer(self) -> Iterator[tuple[str, str]]:
        """Who has a Secret with one token of the observer, and that token."""
        for user, name in (("scrape", "scrape.token"), ("lag", "lag.token")):
            yield user, self.observer[name if self.is_narrow else FULL_TOKEN]
        if MESSAGES_TOKEN in self.observer:
            yield "messages", self.observer[MESSAGES_TOKEN]


def hosts_of(
    broker: Broker, cluster_domain: str, used_by: Iterable[str] = (), outside: Iterable[str] = ()
) -> tuple[str, ...]:
    """The names and IP addresses in the server certificate: all Services of the namespaces that may have an Exchange of
    this Broker, what the spec names, and `outside`, what a load balancer has given.

    Of a Broker that all namespaces may use, those are meant whose resources do (`used_by`). The names are wildcards, so
    that a new Exchange needs no new certificate. They give the Broker no power over other Services: only clients of
    this Broker trust its CA.
    """
    name, home = broker.metadata.name, broker.metadata.namespace
    named = {*broker.spec.allowed_namespaces, *(used_by if "*" in broker.spec.allowed_namespaces else ())}
    allowed = sorted(named - {"*", home})
    hosts = [f"{name}-amqp.{home}.svc", "localhost"]
    for namespace in (home, *allowed):
        hosts += [f"*.{namespace}.svc", f"*.{namespace}.svc.{cluster_domain}"]
    hosts += [f"*.{name}-pods.{home}.svc", f"*.{name}-pods.{home}.svc.{cluster_domain}"]
    return tuple(dict.fromkeys((*hosts, *broker.spec.tls.names, *outside)))


def renew(
    observed: Mapping[str, Manifest | None],
    broker: Broker,
    hosts: Sequence[str],
    now: datetime,
    random_text: Callable[[int], str],
    knows_scopes: bool | None = None,
) -> Credentials:
    """The credentials to use now: those of `observed` (Secrets by name) that are still good, new ones for the rest.

    `random_text(n)`: text made of `n` random bytes, such as `secrets.token_urlsafe`. `knows_scopes`: whether the
    running observer has accepted (True) or refused (False) a narrower token; None: it has not been asked, and what was
    handed out stays.
    """
    name = broker.metadata.name
    wanted_rotation = broker.metadata.annotations.get(names.ROTATE_CA, "")
    ca = authority.renewed(observed.get(f"{name}-ca"), f"Penstock Broker {broker.key}", wanted_rotation, now)
    server = _server(observed.get(f"{name}-amqp"))
    if server is None or certificates.server_is_due(server, ca.current, hosts, now):
        server = certificates.make_server(ca.current, hosts, now)
    secret = observed.get(f"{name}-observer")
    files = (*TOKEN_SCOPES, SCALE_KEY, *((MESSAGES_TOKEN,) if broker.spec.page.show_messages else ()))
    tokens = {key: _text(secret, key) or random_text(_TOKEN_BYTES) for key in files}
    if knows_scopes is None:
        handed_out = _text(observed.get(f"{name}-observer-lag"), "token")
        knows_scopes = handed_out is not None and handed_out != tokens[FULL_TOKEN]
    return Credentials(
        authority=ca,
        server=server,
        password=_text(observed.get(f"{name}-management"), "password") or random_text(_TOKEN_BYTES),
        observer=tokens,
        is_narrow=knows_scopes,
    )


def manifests(broker: Broker, credentials: Credentials, client_trust: bytes | None = None) -> list[Manifest]:
    """The Secrets, and the ConfigMap from which clients take the CA. No pod mounts the CA's key.

    `client_trust`: what clients are to trust, PEM, if they see a certificate that is not the operator's.
    """
    name = broker.metadata.name
    ca = credentials.trusted
    config_map: Manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(broker, broker, f"{name}-ca"),
        "data": {"ca.crt": (ca if client_trust is None else client_trust).decode()},
    }
    chain = credentials.authority.chain(credentials.server.certificate)
    server = {"tls.crt": chain, "tls.key": credentials.server.key, "ca.crt": ca}
    management = {"username": MANAGEMENT_USER.encode(), "password": credentials.password.encode()}
    return [
        _secret(broker, f"{name}-ca", credentials.authority.secret_data()),
        _secret(broker, f"{name}-amqp", server, kind="kubernetes.io/tls"),
        _secret(broker, f"{name}-management", management, kind="kubernetes.io/basic-auth"),
        _secret(
            broker,
            f"{name}-observer",
            {**{key: text.encode() for key, text in credentials.observer.items()}, "ca.crt": ca},
        ),
        *(
            _secret(broker, f"{name}-observer-{user}", {"token": token.encode(), "ca.crt": ca})
            for user, token in credentials.users_of_the_observer()
        ),
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


def _text(secret: Manifest | None, key: str) -> str | None:
    """The text at `key`; None if it is missing, not ASCII, or too short to be a secret that the operator has made."""
    value = bytes_at(secret, key)
    if value is None or len(value) < _TOKEN_BYTES:
        return None
    try:
        return value.decode("ascii")
    except UnicodeDecodeError:
        return None


def _server(secret: Manifest | None) -> Pair | None:
    """The server's certificate, without what follows it in the chain, and its key."""
    chain, key = bytes_at(secret, "tls.crt"), bytes_at(secret, "tls.key")
    return None if chain is None or key is None else Pair(certificates.first_of(chain), key)
