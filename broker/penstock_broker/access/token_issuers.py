"""The issuers whose tokens a broker accepts, with their keys as the files hold them now. Used on the login thread.

Must not know SASL or connections. Source: docs/reference/security.md.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TypeAlias

from penstock_amqp.errors import TokenError
from penstock_amqp.sasl.tokens import (
    Bearer,
    KeysError,
    KeySet,
    TokenRules,
    check_token,
    issuer_of,
    read_keys,
)
from penstock_api.failure import Misuse
from penstock_broker.settings.security import TokenIssuer

__all__ = ["TokenIssuers"]

logger = logging.getLogger(__name__)

MAX_FILE_BYTES = 1024 * 1024
_Stamp: TypeAlias = tuple[int, int, int] | None


class _Issuer:
    """One issuer. Its file is read again when it changes; if it can't be used, the keys stay as they were, and if it
    can't even be read, that is tried again each time.
    """

    def __init__(self, given: TokenIssuer) -> None:
        """Raises `Misuse` if the file can't be used."""
        self.rules = TokenRules(
            given.issuer,
            given.audiences,
            given.algorithms,
            given.user_claim,
            given.groups_claim,
            given.leeway_seconds,
        )
        self._path = given.keys_file
        self._stamp = _stamp(self._path)
        self._refused: tuple[_Stamp] | None = None
        """The stamp of a file that could not be used, which is told once."""
        try:
            self._keys = self._read()
        except (OSError, KeysError) as error:
            raise Misuse(
                f"The keys of issuer {given.issuer} in {self._path} can't be used: {error}.",
                "Give a JWKS document or public keys in PEM.",
            ) from error

    def _read(self) -> KeySet:
        with self._path.open("rb") as file:
            return read_keys(file.read(MAX_FILE_BYTES))

    def keys(self) -> KeySet:
        """The keys of the file as it is now."""
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            try:
                self._keys = self._read()
            except (OSError, KeysError) as error:
                if self._refused != (stamp,):
                    logger.error("Issuer %s keeps its old keys: %s: %s", self.rules.issuer, self._path, error)
                self._refused = (stamp,)
                if stamp is None or isinstance(error, KeysError):
                    self._stamp = stamp
            else:
                self._stamp, self._refused = stamp, None
        return self._keys


class TokenIssuers:
    """All issuers of a broker."""

    def __init__(self, given: tuple[TokenIssuer, ...]) -> None:
        """Raises `Misuse` if a file of keys can't be used."""
        self._issuers = [_Issuer(each) for each in given]

    def check(self, token: bytes, now: float) -> tuple[Bearer, str]:
        """Whose token it is, and its issuer. Raises `TokenError`. May read a file."""
        claimed = issuer_of(token)
        failed = TokenError("its issuer is not in the configuration")
        for issuer in self._issuers:
            if issuer.rules.issuer != claimed:
                continue
            try:
                return check_token(token, issuer.rules, issuer.keys(), now), claimed
            except TokenError as error:  # the same issuer may be there twice, with other audiences or keys
                failed = error
        raise failed

    def holds(self, issuer: str, key: bytes) -> bool:
        """Whether an issuer of this name still has the key of this fingerprint. May read a file."""
        return any(each.rules.issuer == issuer and each.keys().holds(key) for each in self._issuers)


def _stamp(path: Path) -> _Stamp:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
