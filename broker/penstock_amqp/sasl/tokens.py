"""Checks signed tokens (JWT): signature, issuer, audience and times; returns the user and groups that a token names.

The library pyjwt does the work, with the algorithms that the settings list and no other, so that a token can't choose
how it is checked. A check takes about 100 us: call it on the thread of logins. The clock is an argument. Must not know
SASL or files. Sources: RFC 7519 (JWT), RFC 7517 (JWKS), RFC 8725 (known attacks and best practice).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from penstock_amqp.errors import TokenError

if TYPE_CHECKING:
    from jwt.types import Options

__all__ = [
    "MAX_TOKEN",
    "Bearer",
    "KeySet",
    "KeysError",
    "TokenRules",
    "check_token",
    "fingerprint",
    "issuer_of",
    "read_keys",
]

MAX_TOKEN: Final = 12 * 1024
"""Bytes; the limit of a SASL frame is only a little larger."""

_PEM: Final = b"-----BEGIN "


class KeysError(ValueError):
    """A key file that can't be used."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """Public keys, by the id that tokens name (`kid`). Keys without an id are tried for tokens whose `kid` is absent or
    not in `by_id`."""

    by_id: Mapping[str, Any]
    nameless: tuple[Any, ...]

    def holds(self, key: bytes) -> bool:
        """Whether the key with this `fingerprint` is in the set, under any id."""
        return any(fingerprint(each) == key for each in (*self.by_id.values(), *self.nameless))


def fingerprint(key: Any) -> bytes:
    """What identifies a public key: the hash of its SubjectPublicKeyInfo (RFC 5280, 4.1.2.7)."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).digest()


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token of one issuer has to contain."""

    issuer: str
    audiences: tuple[str, ...]
    algorithms: tuple[str, ...]
    user_claim: str = "sub"
    groups_claim: str | None = None
    leeway_seconds: int = 30


@dataclass(frozen=True, slots=True)
class Bearer:
    """What a valid token says: its user and groups, when it ends (seconds since the epoch, leeway included), and its
    key."""

    user: str
    groups: tuple[str, ...]
    ends: float
    key: bytes
    """Its `fingerprint`."""


def read_keys(content: bytes) -> KeySet:
    """Read a JWKS document, or public keys and certificates in PEM. Raises `KeysError`.

    Keys that are not for signatures, and shared secrets, are left out; a set without any key is an error.
    """
    try:
        keys = _pem_keys(content) if content.lstrip().startswith(_PEM) else _jwks_keys(content)
    except (ValueError, TypeError, jwt.PyJWTError) as error:
        raise KeysError(f"neither a JWKS document nor public keys in PEM: {error}") from error
    if not keys.by_id and not keys.nameless:
        raise KeysError("there is no key for signatures in it")
    return keys


def _jwks_keys(content: bytes) -> KeySet:
    document: object = json.loads(content)
    entries = cast(dict[str, object], document).get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise KeysError("it has no list `keys`")
    by_id: dict[str, Any] = {}
    nameless: list[Any] = []
    for entry in cast(list[object], entries):
        if not isinstance(entry, dict):
            continue
        values = cast(dict[str, Any], entry)
        # A shared secret in a file of public keys would let everyone who can read the file sign tokens.
        if values.get("use", "sig") != "sig" or values.get("kty") not in ("RSA", "EC", "OKP"):
            continue
        try:
            key = jwt.PyJWK(values).key
        except jwt.PyJWTError:
            continue  # a curve or algorithm that we don't know: tokens signed by it are refused
        name = values.get("kid")
        if isinstance(name, str):
            by_id[name] = key
        else:
            nameless.append(key)
    return KeySet(by_id, tuple(nameless))


def _pem_keys(content: bytes) -> KeySet:
    keys: list[Any] = []
    for part in content.split(_PEM)[1:]:
        pem = _PEM + part
        if part.startswith(b"CERTIFICATE"):
            keys.append(x509.load_pem_x509_certificate(pem).public_key())
        elif part.startswith((b"PUBLIC KEY", b"RSA PUBLIC KEY")):
            keys.append(serialization.load_pem_public_key(pem))
        else:
            raise KeysError("a part of it is no public key; never give a private one")
    return KeySet({}, tuple(keys))


def issuer_of(token: bytes) -> str:
    """The issuer that a token names, unchecked: only for finding the rules by which the token is then checked. Raises
    `TokenError`."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError) as error:
        raise TokenError("it is no signed token (JWT)") from error
    issuer = claims.get("iss")
    if not isinstance(issuer, str):
        raise TokenError("it names no issuer")
    return issuer


def check_token(token: bytes, rules: TokenRules, keys: KeySet, now: float) -> Bearer:
    """Check a token of `rules.issuer`; return what it says. `now`: seconds since the epoch. Raises `TokenError`."""
    if len(token) > MAX_TOKEN:
        raise TokenError(f"it is longer than {MAX_TOKEN} bytes")
    claims, key = _verified(token, rules, keys)
    expires, begins = claims.get("exp"), claims.get("nbf", 0)
    if not _is_number(expires) or not _is_number(begins):
        raise TokenError("its times (exp, nbf) are no numbers")
    if now >= expires + rules.leeway_seconds:
        raise TokenError("it has expired")
    if now < begins - rules.leeway_seconds:
        raise TokenError("it is not valid yet")
    user = claims.get(rules.user_claim)
    if not isinstance(user, str) or not user:
        raise TokenError(f"it has no {rules.user_claim!r}, which is the user name")
    return Bearer(user, _groups(claims, rules.groups_claim), float(expires) + rules.leeway_seconds, fingerprint(key))


def _verified(token: bytes, rules: TokenRules, keys: KeySet) -> tuple[dict[str, Any], Any]:
    """The claims, if signature, issuer and audience are right, and the key. The caller checks the times."""
    options: Options = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "require": ["exp", "iss", "aud"]}
    try:
        name = jwt.get_unverified_header(token).get("kid")
        candidates: Sequence[Any] = keys.nameless
        if isinstance(name, str) and name in keys.by_id:
            candidates = (keys.by_id[name],)
        elif name is None:
            candidates = (*keys.nameless, *keys.by_id.values())
        if not candidates:
            raise TokenError("it is signed by a key that we were not given")
        return _first_good(token, rules, candidates, options)
    except jwt.PyJWTError as error:
        raise TokenError(f"it is not good: {error}") from error
    except (ValueError, TypeError) as error:
        raise TokenError(f"it can't be read: {error}") from error


def _first_good(
    token: bytes, rules: TokenRules, candidates: Sequence[Any], options: Options
) -> tuple[dict[str, Any], Any]:
    failed: jwt.PyJWTError = jwt.InvalidSignatureError("no key fits")
    for key in candidates:
        try:
            algorithms, audiences = list(rules.algorithms), list(rules.audiences)
            return jwt.decode(token, key, algorithms, audience=audiences, issuer=rules.issuer, options=options), key
        except (jwt.InvalidSignatureError, jwt.InvalidKeyError) as error:
            failed = error
    raise failed


def _groups(claims: Mapping[str, Any], name: str | None) -> tuple[str, ...]:
    value = claims.get(name) if name is not None else None
    if isinstance(value, str):
        return (value,)
    return tuple(str(each) for each in cast(list[object], value)) if isinstance(value, list) else ()


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
