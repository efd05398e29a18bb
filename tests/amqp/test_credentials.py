"""Stored passwords, with the test vectors of the RFCs, and the cache of secrets."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_amqp.credentials import CredentialError, SecretCache, hash_password, verify_password

SALT = bytes(range(16))


def text(raw: bytes) -> str:
    return base64.b64encode(raw).decode().rstrip("=")


# RFC 7914, section 12, third vector: scrypt("pleaseletmein", "SodiumChloride", N=16384, r=8, p=1), its first 32 bytes.
RFC_7914 = bytes.fromhex("7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2")
# RFC 7914, section 11, second vector: PBKDF2-HMAC-SHA-256("Password", "NaCl", 80000), its first 32 bytes.
RFC_PBKDF2 = bytes.fromhex("4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56")


def test_a_hash_is_written_in_one_line_that_says_how_it_was_made() -> None:
    stored = hash_password("secret", SALT)
    assert stored.startswith("$scrypt$ln=14,r=8,p=1$AAECAwQFBgcICQoLDA0ODw$")
    assert stored.isascii()


def test_the_right_password_and_no_other_fits_its_hash() -> None:
    stored = hash_password("sëcret", SALT)
    assert verify_password("sëcret", stored)
    assert verify_password("sëcret".encode(), stored)
    assert not verify_password("secret", stored)
    assert not verify_password("", stored)


def test_the_salt_changes_the_hash() -> None:
    assert hash_password("secret", SALT) != hash_password("secret", SALT[::-1])


@pytest.mark.parametrize(
    ("password", "stored"),
    [
        pytest.param("pleaseletmein", f"$scrypt$ln=14,r=8,p=1${text(b'SodiumChloride')}${text(RFC_7914)}", id="scrypt"),
        pytest.param("Password", f"$pbkdf2-sha256$i=80000${text(b'NaCl')}${text(RFC_PBKDF2)}", id="pbkdf2"),
    ],
)
def test_the_vectors_of_the_rfc_are_verified(password: str, stored: str) -> None:
    assert verify_password(password, stored)
    assert not verify_password(password + "x", stored)


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "secret",
        "$2b$12$abcdefghijklmnopqrstuv",
        "$scrypt$ln=14,r=8$AAAA$AAAA",
        "$scrypt$ln=14,r=8,p=x$AAAA$AAAA",
        "$scrypt$ln=-1,r=8,p=1$AAAA$AAAA",
        "$scrypt$ln=30,r=8,p=1$AAAA$AAAA",
        "$scrypt$ln=14,r=8,p=1$A*AA$AAAA",
        "$pbkdf2-sha256$i=0$AAAA$AAAA",
        "$pbkdf2-sha256$i=99999999$AAAA$AAAA",
    ],
)
def test_what_is_not_a_stored_password_is_an_error(stored: str) -> None:
    with pytest.raises(CredentialError):
        verify_password("x", stored)


def test_a_short_salt_is_refused() -> None:
    with pytest.raises(ValueError, match="salt"):
        hash_password("secret", b"123")


def test_the_cache_knows_only_what_was_found_right() -> None:
    cache = SecretCache(b"k" * 32)
    assert not cache.knows("alice", b"secret", "stored")
    cache.remember("alice", b"secret", "stored")
    assert cache.knows("alice", b"secret", "stored")
    assert not cache.knows("alice", b"other", "stored")
    assert not cache.knows("bob", b"secret", "stored")


def test_a_changed_password_makes_the_cache_forget() -> None:
    cache = SecretCache(b"k" * 32)
    cache.remember("alice", b"secret", "stored")
    assert not cache.knows("alice", b"secret", "stored anew")


def test_the_cache_forgets_who_was_not_seen_for_longest() -> None:
    cache = SecretCache(b"k" * 32, capacity=2)
    cache.remember("a", b"1", "s")
    cache.remember("b", b"2", "s")
    assert cache.knows("a", b"1", "s")
    cache.remember("c", b"3", "s")
    assert [cache.knows(user, secret, "s") for user, secret in (("a", b"1"), ("b", b"2"), ("c", b"3"))] == [
        True,
        False,
        True,
    ]


triples = st.tuples(st.text(max_size=5), st.binary(max_size=5), st.text(max_size=5))


@given(triples, triples)
@settings(max_examples=50)
def test_two_triples_never_stand_for_each_other(one: tuple[str, bytes, str], other: tuple[str, bytes, str]) -> None:
    cache = SecretCache(b"k" * 32)
    cache.remember(*one)
    assert cache.knows(*other) is (one == other)
