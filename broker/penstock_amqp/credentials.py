"""Passwords as they are stored, and which secrets were found right a moment ago.

Hashing is meant to be slow (some 50 ms): call `hash_password` and `verify_password` on a thread, they let go of the
interpreter lock. `SecretCache` spares clients that reconnect the wait, without keeping a password in memory.

Randomness comes as an argument. Sources: RFC 7914 (scrypt), RFC 8018 (PBKDF2).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections import OrderedDict
from typing import Final

__all__ = ["CredentialError", "SecretCache", "hash_password", "verify_password"]

SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
SCRYPT_LOG_N: Final = 14
"""16 MiB and some 50 ms for each hash."""
_MAX_LOG_N: Final = 17
_MAX_ROUNDS: Final = 2_000_000


class CredentialError(ValueError):
    """A stored hash that can't be read: it is not in the form that `hash_password` writes."""


def hash_password(password: str | bytes, salt: bytes) -> str:
    """Return `$scrypt$ln=14,r=8,p=1$SALT$HASH` (salt and hash in base64 without padding).

    `salt` is 16 random bytes, new for each password.
    """
    if len(salt) < SALT_BYTES:
        raise ValueError(f"a salt of {len(salt)} bytes where {SALT_BYTES} random ones are wanted")
    raw = _scrypt(_as_bytes(password), salt, SCRYPT_LOG_N, 8, 1)
    return f"$scrypt$ln={SCRYPT_LOG_N},r=8,p=1${_to_text(salt)}${_to_text(raw)}"


def verify_password(password: str | bytes, stored: str) -> bool:
    """Whether `stored` is the hash of `password`; takes the same time for every wrong one.

    Besides what `hash_password` writes, `$pbkdf2-sha256$i=ROUNDS$SALT$HASH` is understood. Raises `CredentialError`.
    """
    match stored.split("$"):
        case ["", "scrypt", settings, salt, expected]:
            numbers = _numbers(settings, ("ln", "r", "p"))
            if not (0 < numbers[0] <= _MAX_LOG_N and 0 < numbers[1] <= 32 and 0 < numbers[2] <= 4):
                raise CredentialError(f"a stored password costs more than is allowed: {settings}")
            raw = _scrypt(_as_bytes(password), _from_text(salt), *numbers)
        case ["", "pbkdf2-sha256", settings, salt, expected]:
            (rounds,) = _numbers(settings, ("i",))
            if not 0 < rounds <= _MAX_ROUNDS:
                raise CredentialError(f"a stored password costs more than is allowed: {settings}")
            raw = hashlib.pbkdf2_hmac("sha256", _as_bytes(password), _from_text(salt), rounds, HASH_BYTES)
        case _:
            raise CredentialError("a stored password is neither $scrypt$ nor $pbkdf2-sha256$")
    return hmac.compare_digest(raw, _from_text(expected))


def _scrypt(password: bytes, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    memory = 128 * r * ((1 << log_n) + p + 2)
    return hashlib.scrypt(password, salt=salt, n=1 << log_n, r=r, p=p, maxmem=memory + (1 << 20), dklen=HASH_BYTES)


def _numbers(settings: str, names: tuple[str, ...]) -> tuple[int, ...]:
    pairs = {name: number for name, _, number in (part.partition("=") for part in settings.split(","))}
    if tuple(pairs) != names or not all(number.isascii() and number.isdigit() for number in pairs.values()):
        raise CredentialError(f"the settings of a stored password are {','.join(names)}, not {settings!r}")
    return tuple(int(number) for number in pairs.values())


def _as_bytes(password: str | bytes) -> bytes:
    return password.encode() if isinstance(password, str) else password


def _to_text(raw: bytes) -> str:
    return base64.b64encode(raw).decode().rstrip("=")


def _from_text(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise CredentialError("the salt or hash of a stored password is not base64") from error


class SecretCache:
    """Remembers which secret of a user was found right, as a hash under a key that only this process has.

    A changed stored password makes what is remembered worthless, since it is part of what is hashed.
    """

    def __init__(self, key: bytes, capacity: int = 4096) -> None:
        """`key`: 32 random bytes of this process. `capacity`: users; who was not seen for longest is forgotten."""
        self._key = key
        self._capacity = capacity
        self._seen: OrderedDict[str, bytes] = OrderedDict()

    def knows(self, user: str, secret: bytes, stored: str) -> bool:
        """Whether `secret` was found to be that of `stored` for this user before."""
        seen = self._seen.get(user)
        if seen is None or not hmac.compare_digest(seen, self._digest(user, secret, stored)):
            return False
        self._seen.move_to_end(user)
        return True

    def remember(self, user: str, secret: bytes, stored: str) -> None:
        """Note that `verify_password(secret, stored)` was true for this user."""
        self._seen[user] = self._digest(user, secret, stored)
        self._seen.move_to_end(user)
        while len(self._seen) > self._capacity:
            self._seen.popitem(last=False)

    def _digest(self, user: str, secret: bytes, stored: str) -> bytes:
        # Each part is hashed to one length first, so that no two triples run together to the same bytes.
        parts = (user.encode(), secret, stored.encode())
        message = b"".join(hashlib.sha256(part).digest() for part in parts)
        return hmac.digest(self._key, message, "sha256")
