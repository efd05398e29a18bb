"""The bearer token and the server certificate, read from mounted files that may be replaced while the observer runs.

The observer notices a replaced Secret by the modification time of the file. If the new content can't be used, that is
logged and the old one stays in use.
"""

from __future__ import annotations

import hmac
import logging
import ssl
from pathlib import Path

from penstock_api.failure import Misuse

__all__ = ["ServerCertificate", "TokenFile"]

log = logging.getLogger(__name__)

SCHEME = "Bearer "


class TokenFile:
    """The token that requests must show. Raises Misuse if the file can't be read or is empty at the start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen_ns = 0
        self._token = b""
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise Misuse(
                f"the token file {path} can't be used: {error}.", "Put one line with a token into it."
            ) from error

    def allows(self, authorization: str | None) -> bool:
        """True if an Authorization header carries the token; takes the same time for every wrong one."""
        self._refresh()
        given = authorization or ""
        if given[: len(SCHEME)].lower() != SCHEME.lower():
            return False
        return hmac.compare_digest(given[len(SCHEME) :].strip().encode(), self._token)

    def _refresh(self) -> None:
        try:
            if self._path.stat().st_mtime_ns != self._seen_ns:
                self._read()
        except (OSError, ValueError) as error:
            log.error(
                "the token file %s can't be read again: %s; the token known so far stays valid", self._path, error
            )

    def _read(self) -> None:
        seen_ns = self._path.stat().st_mtime_ns
        token = self._path.read_bytes().strip()
        if not token:
            raise ValueError("it is empty")
        self._token, self._seen_ns = token, seen_ns


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
