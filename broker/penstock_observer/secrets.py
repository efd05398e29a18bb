"""The tokens and the server certificate, read from mounted files that may be replaced while the observer runs.

The observer notices a replaced Secret by the modification time of the file. If the new content can't be used, that is
logged and the old one stays in use.
"""

from __future__ import annotations

import hmac
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock_api.failure import Misuse
from penstock_api.observer_tokens import (
    API_KEY_HEADER,
    FULL_TOKEN,
    SCALE_KEY,
    TOKEN_SCOPES,
    Scope,
    namespace_of,
    scale_token,
)

__all__ = ["Grant", "ServerCertificate", "TokenFile", "has_token"]

log = logging.getLogger(__name__)

SCHEME = "Bearer "


@dataclass(frozen=True, slots=True)
class Grant:
    """What the token of a request is good for."""

    scopes: frozenset[Scope]
    namespace: str | None = None
    """Only subscriptions of this namespace; None: all."""

    def allows(self, needed: Scope | None) -> bool:
        """Whether this is good for a scope; None: for everything."""
        return self.scopes == frozenset(Scope) if needed is None else needed in self.scopes


class TokenFile:
    """The tokens that requests may show: the one of the file, for everything, and those of the files beside it.

    Raises Misuse if the file can't be read or is empty at the start. Files beside it (`observer_tokens.TOKEN_SCOPES`
    and `SCALE_KEY`) may be missing, and may come and go while the observer runs.
    """

    def __init__(self, path: Path) -> None:
        self._full = _SecretFile(path)
        beside = (name for name in TOKEN_SCOPES if name != FULL_TOKEN)
        self._scoped = [(TOKEN_SCOPES[name], _SecretFile(path.with_name(name), optional=True)) for name in beside]
        self._scale_key = _SecretFile(path.with_name(SCALE_KEY), optional=True)
        try:
            self._full.read()
        except (OSError, ValueError) as error:
            raise Misuse(
                f"the token file {path} can't be used: {error}.", "Put one line with a token into it."
            ) from error

    def grant(self, headers: Mapping[str, str], queue_name: str | None = None) -> Grant | None:
        """What the token of these headers is good for; None if there is none, or nobody knows it.

        `queue_name`: the queue that is asked for, without which the token of one subscription can't be checked. Every
        wrong token takes the same time.
        """
        shown = _shown(headers)
        every = [(TOKEN_SCOPES[FULL_TOKEN], self._full.content()), *((s, file.content()) for s, file in self._scoped)]
        granted = [scopes for scopes, token in every if _same(token, shown)]
        if granted:
            return Grant(frozenset[Scope]().union(*granted))
        key, namespace = self._scale_key.content(), namespace_of(shown.decode(errors="replace"))
        if key and queue_name is not None and _same(scale_token(key, namespace, queue_name).encode(), shown):
            return Grant(frozenset({Scope.SCALE}), namespace)
        return None

    def allows(self, authorization: str | None, scope: Scope | None = None) -> bool:
        """Whether an Authorization header carries a token that is good for this scope, of all subscriptions; None: for
        everything.
        """
        found = self.grant({"Authorization": authorization or ""})
        return found is not None and found.allows(scope) and found.namespace is None


def has_token(headers: Mapping[str, str]) -> bool:
    """Whether a request shows any token, known or not."""
    return bool(_shown(headers))


def _shown(headers: Mapping[str, str]) -> bytes:
    """The token of a request, empty if there is none. The case of the scheme does not matter (RFC 9110, 11.1)."""
    given = headers.get("Authorization", "")
    if given[: len(SCHEME)].lower() == SCHEME.lower():
        return given[len(SCHEME) :].strip().encode(errors="surrogateescape")
    return headers.get(API_KEY_HEADER, "").strip().encode(errors="surrogateescape")


def _same(token: bytes, shown: bytes) -> bool:
    return hmac.compare_digest(token, shown) and bool(token)


class _SecretFile:
    """The content of one file, without white space around it; read again when the file changes."""

    def __init__(self, path: Path, *, optional: bool = False) -> None:
        self._path = path
        self._optional = optional
        self._seen_ns = 0
        self._content = b""

    def content(self) -> bytes:
        """The content now; empty if an optional file is missing."""
        try:
            if self._path.stat().st_mtime_ns != self._seen_ns:
                self.read()
        except FileNotFoundError as error:
            if self._optional:
                self._content, self._seen_ns = b"", 0
            else:
                self._complain(error)
        except (OSError, ValueError) as error:
            self._complain(error)
        return self._content

    def read(self) -> None:
        """Read the file. Raises OSError or ValueError, and keeps what was read before, if it can't be used."""
        seen_ns = self._path.stat().st_mtime_ns
        content = self._path.read_bytes().strip()
        if not content:
            raise ValueError("it is empty")
        self._content, self._seen_ns = content, seen_ns

    def _complain(self, error: Exception) -> None:
        log.error("the token file %s can't be read again: %s; what was known so far stays valid", self._path, error)


class ServerCertificate:
    """The TLS context of the HTTP server. Raises Misuse if certificate and key can't be loaded at the start."""

    def __init__(self, cert: Path, key: Path) -> None:
        self._cert = cert
        self._key = key
        self._seen_ns = 0
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._load()
        except OSError as error:  # ssl.SSLError is one
            raise Misuse(
                f"the certificate {cert} with key {key} can't be used: {error}.",
                "Give a PEM certificate chain and its key (--tls-cert, --tls-key).",
            ) from error

    def refresh(self) -> None:
        """Load the files again if they changed; connections made from then on see the new certificate."""
        try:
            if self._cert.stat().st_mtime_ns != self._seen_ns:
                self._load()
                log.info("the server certificate was loaded again")
        except OSError as error:
            log.error("the certificate %s can't be loaded again: %s; the old one stays in use", self._cert, error)

    def _load(self) -> None:
        seen_ns = self._cert.stat().st_mtime_ns
        self.context.load_cert_chain(self._cert, self._key)
        self._seen_ns = seen_ns
