"""Stored passwords: salted records for SCRAM and PLAIN, and a cache of the secrets that were verified recently.

A record holds what RFC 5802 lets a server hold: salt, rounds, StoredKey and ServerKey. None of them can be used to log
in. `make_record` and `fits` are slow on purpose (about 10 ms): call them on a thread, they release the interpreter
lock. `SecretCache` saves this time when a client reconnects with PLAIN, without keeping a password in memory.

Randomness is passed in as an argument. Sources: RFC 5802, RFC 7677 (SCRAM), RFC 8018 (PBKDF2); the text form is
PostgreSQL's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock_amqp.sasl.mechanisms import ScramKeys
from penstock_amqp.sasl.scram import ScramError, salted_keys

__all__ = [
    "MIN_ROUNDS",
    "ROUNDS",
    "SCRAM_MECHANISMS",
    "CredentialError",
    "CredentialRecord",
    "SecretCache",
    "fake_record",
    "fits",
    "format_record",
    "make_record",
    "parse_record",
    "user_salt",
]

SCRAM_MECHANISMS: Final = {"SCRAM-SHA-512": 64, "SCRAM-SHA-256": 32}
"""Names in the order of preference, and the bytes of their keys."""

ROUNDS: Final = 16_384
"""Rounds of PBKDF2, which a client has to compute too: about 8 ms in Python, 30 ms in a JVM."""
MIN_ROUNDS: Final = 4096
"""RFC 7677, section 4."""
MAX_ROUNDS: Final = 2_000_000
MIN_SALT_BYTES: Final = 12


class CredentialError(ValueError):
    """A stored password that can't be used; the message says what is wrong, without showing it."""


@dataclass(frozen=True, slots=True)
class CredentialRecord:
    """What is stored of one user: the keys of each mechanism that the user can log in with."""

    keys: Mapping[str, ScramKeys]


def make_record(password: str, salt: bytes, rounds: int = ROUNDS) -> CredentialRecord:
    """Hash a password for all mechanisms. `salt` must not be shared with another user. Raises `CredentialError`."""
    if len(salt) < MIN_SALT_BYTES:
        raise ValueError(f"a salt of {len(salt)} bytes where {MIN_SALT_BYTES} are wanted")
    try:
        return CredentialRecord(
            {name: ScramKeys(salt, rounds, *salted_keys(name, password, salt, rounds)) for name in _NAMES}
        )
    except ScramError as error:
        raise CredentialError(f"the password can't be used: {error}") from error


def fake_record(key: bytes, user: str, rounds: int = ROUNDS) -> CredentialRecord:
    """The record used for a user that does not exist: the same at each call, and no password matches it.

    `key`: random bytes of this broker, kept over restarts. With a new key the salts of users that do not exist would
    change at a restart, and a client could find out by that which users exist.
    """
    salt = user_salt(key, user)
    keys = {name: hmac.digest(key, b"no key" + salt, "sha512")[:size] for name, size in SCRAM_MECHANISMS.items()}
    return CredentialRecord({name: ScramKeys(salt, rounds, made, made) for name, made in keys.items()})


def user_salt(key: bytes, user: str) -> bytes:
    """The salt of a user whose password is stored in plain text, or who does not exist: a client cannot see which."""
    return hmac.digest(key, b"salt" + user.encode(), "sha256")[:16]


def fits(password: str, record: CredentialRecord) -> bool:
    """Whether this is the password of `record`; takes the same time for every wrong password."""
    name = next(iter(record.keys))
    keys = record.keys[name]
    try:
        stored_key, _ = salted_keys(name, password, keys.salt, keys.rounds)
    except ScramError:
        return False
    return hmac.compare_digest(stored_key, keys.stored_key)


_NAMES: Final = tuple(SCRAM_MECHANISMS)


# -- the text form --------------------------------------------------------------------------------------------------


def format_record(record: CredentialRecord) -> str:
    """One line per mechanism: `SCRAM-SHA-256$ROUNDS:SALT$STOREDKEY:SERVERKEY`, bytes in base64."""
    return "\n".join(
        f"{name}${keys.rounds}:{_text(keys.salt)}${_text(keys.stored_key)}:{_text(keys.server_key)}"
        for name, keys in record.keys.items()
    )


def parse_record(text: str) -> CredentialRecord | None:
    """Read what `format_record` writes; None if it is no record but a password. Raises `CredentialError`."""
    lines = text.splitlines()
    if not any(line.startswith(tuple(f"{name}$" for name in _NAMES)) for line in lines):
        return None
    keys: dict[str, ScramKeys] = {}
    for line in lines:
        match line.split("$"):
            case [name, settings, pair] if name in SCRAM_MECHANISMS:
                keys[name] = _keys(SCRAM_MECHANISMS[name], settings, pair)
            case _:
                raise CredentialError("a line is not MECHANISM$ROUNDS:SALT$STOREDKEY:SERVERKEY")
    return CredentialRecord({name: keys[name] for name in _NAMES if name in keys})


def _keys(size: int, settings: str, pair: str) -> ScramKeys:
    rounds, _, salt = settings.partition(":")
    stored, _, server = pair.partition(":")
    if not (rounds.isascii() and rounds.isdigit() and MIN_ROUNDS <= int(rounds) <= MAX_ROUNDS):
        raise CredentialError(f"the rounds are {rounds[:12]!r}, not between {MIN_ROUNDS} and {MAX_ROUNDS}")
    keys = ScramKeys(_bytes(salt), int(rounds), _bytes(stored), _bytes(server))
    if len(keys.salt) < MIN_SALT_BYTES or len(keys.stored_key) != size or len(keys.server_key) != size:
        raise CredentialError(f"a salt has at least {MIN_SALT_BYTES} bytes and the keys {size} each")
    return keys


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise CredentialError("a salt or key is not base64") from error


class SecretCache:
    """Remembers which secret of a user was verified, as a hash with a key that only this process has.

    The record is part of what is hashed: when it changes, the remembered secret no longer matches.
    """

    def __init__(self, key: bytes, capacity: int = 4096) -> None:
        """`key`: 32 random bytes of this process. `capacity`: number of users; the one that logged in longest ago is
        forgotten first."""
        self._key = key
        self._capacity = capacity
        self._seen: OrderedDict[str, bytes] = OrderedDict()

    def knows(self, user: str, secret: bytes, record: CredentialRecord) -> bool:
        """Whether `secret` was found to be that of `record` for this user before."""
        seen = self._seen.get(user)
        if seen is None or not hmac.compare_digest(seen, self._digest(user, secret, record)):
            return False
        self._seen.move_to_end(user)
        return True

    def remember(self, user: str, secret: bytes, record: CredentialRecord) -> None:
        """Note that `fits(secret, record)` was true for this user."""
        self._seen[user] = self._digest(user, secret, record)
        self._seen.move_to_end(user)
        while len(self._seen) > self._capacity:
            self._seen.popitem(last=False)

    def _digest(self, user: str, secret: bytes, record: CredentialRecord) -> bytes:
        # Each part is hashed to one length first, so that no two different triples are concatenated to the same bytes.
        parts = (user.encode(), secret, next(iter(record.keys.values())).stored_key)
        message = b"".join(hashlib.sha256(part).digest() for part in parts)
        return hmac.digest(self._key, message, "sha256")
