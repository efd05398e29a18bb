"""Stored passwords, with the vector of RFC 7677, and the cache of secrets."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_amqp.sasl.credentials import (
    CredentialError,
    CredentialRecord,
    SecretCache,
    fake_record,
    fits,
    format_record,
    make_record,
    parse_record,
    user_salt,
)
from penstock_amqp.sasl.mechanisms import ScramKeys

SALT = bytes(range(16))
KEY = b"k" * 32

# PostgreSQL's documentation of pg_authid writes SCRAM records so; salt and rounds are those of RFC 7677, section 3, for
# the password "pencil". ServerKey is checked there: HMAC(ServerKey, AuthMessage) is the RFC's server signature.
PENCIL = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"


def test_a_record_is_written_as_lines_that_say_how_it_was_made() -> None:
    lines = format_record(make_record("pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)).splitlines()
    assert [line.split("$")[0] for line in lines] == ["SCRAM-SHA-512", "SCRAM-SHA-256"]
    assert lines[1].startswith(PENCIL)


def test_a_record_is_read_as_it_was_written() -> None:
    record = make_record("secret", SALT, 4096)
    assert parse_record(format_record(record) + "\n") == record


def test_a_record_of_one_mechanism_is_one() -> None:
    line = format_record(make_record("secret", SALT, 4096)).splitlines()[1]
    record = parse_record(line)
    assert record is not None
    assert list(record.keys) == ["SCRAM-SHA-256"]
    assert fits("secret", record)


def test_the_right_password_and_no_other_fits_its_record() -> None:
    record = make_record("sëcret", SALT, 4096)
    assert fits("sëcret", record)
    assert not fits("secret", record)
    assert not fits("", record)
    assert not fits("s\x00", record)


def test_the_salt_changes_the_record() -> None:
    assert make_record("secret", SALT, 4096) != make_record("secret", SALT[::-1], 4096)


@pytest.mark.parametrize("text", ["", "secret", "SCRAM", "SCRAM-SHA-1$4096:AAAA$AAAA:AAAA", "a\nb"])
def test_what_does_not_begin_like_a_record_is_a_password(text: str) -> None:
    assert parse_record(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==",
        "SCRAM-SHA-256$4095:W22ZaJ0SNY7soEsUEjb6gQ==$AAAA:AAAA",
        "SCRAM-SHA-256$9999999:W22ZaJ0SNY7soEsUEjb6gQ==$AAAA:AAAA",
        "SCRAM-SHA-256$x:W22ZaJ0SNY7soEsUEjb6gQ==$AAAA:AAAA",
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$AAAA:AAAA",
        "SCRAM-SHA-256$4096:***$AAAA:AAAA",
        "SCRAM-SHA-256$4096:AAAA$" + "A" * 43 + "=:" + "A" * 43 + "=",
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$" + "A" * 43 + "=:" + "A" * 43 + "=\npassword",
    ],
)
def test_a_record_that_cannot_be_used_is_an_error(text: str) -> None:
    with pytest.raises(CredentialError):
        parse_record(text)


def test_a_short_salt_is_refused() -> None:
    with pytest.raises(ValueError, match="salt"):
        make_record("secret", b"123")


def test_a_password_that_cannot_be_prepared_is_named_without_showing_it() -> None:
    with pytest.raises(CredentialError, match="can't be used") as error:
        make_record("bad\x07bell", SALT, 4096)
    assert "bell" not in str(error.value)


def test_a_user_that_does_not_exist_looks_the_same_each_time_and_like_one_that_does() -> None:
    fake = fake_record(KEY, "nobody", 4096)
    assert fake == fake_record(KEY, "nobody", 4096)
    assert fake != fake_record(KEY, "noone", 4096)
    assert fake != fake_record(b"x" * 32, "nobody", 4096)
    real = make_record("secret", user_salt(KEY, "nobody"), 4096)
    for name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        shown, meant = fake.keys[name], real.keys[name]
        assert (shown.salt, shown.rounds) == (meant.salt, meant.rounds)
        assert len(shown.stored_key) == len(meant.stored_key)
    assert not fits("secret", fake)


def record(word: str) -> CredentialRecord:
    """A record in which `word` stands for the key."""
    return CredentialRecord({"SCRAM-SHA-256": ScramKeys(SALT, 4096, word.encode(), b"")})


def test_the_cache_knows_only_what_was_found_right() -> None:
    cache = SecretCache(KEY)
    assert not cache.knows("alice", b"secret", record("stored"))
    cache.remember("alice", b"secret", record("stored"))
    assert cache.knows("alice", b"secret", record("stored"))
    assert not cache.knows("alice", b"other", record("stored"))
    assert not cache.knows("bob", b"secret", record("stored"))


def test_a_changed_password_makes_the_cache_forget() -> None:
    cache = SecretCache(KEY)
    cache.remember("alice", b"secret", record("stored"))
    assert not cache.knows("alice", b"secret", record("stored anew"))


def test_the_cache_forgets_who_was_not_seen_for_longest() -> None:
    cache = SecretCache(KEY, capacity=2)
    cache.remember("a", b"1", record("s"))
    cache.remember("b", b"2", record("s"))
    assert cache.knows("a", b"1", record("s"))
    cache.remember("c", b"3", record("s"))
    known = [cache.knows(user, secret, record("s")) for user, secret in (("a", b"1"), ("b", b"2"), ("c", b"3"))]
    assert known == [True, False, True]


triples = st.tuples(st.text(max_size=5), st.binary(max_size=5), st.text(max_size=5))


@given(triples, triples)
@settings(max_examples=50)
def test_two_triples_never_stand_for_each_other(one: tuple[str, bytes, str], other: tuple[str, bytes, str]) -> None:
    cache = SecretCache(KEY)
    cache.remember(one[0], one[1], record(one[2]))
    assert cache.knows(other[0], other[1], record(other[2])) is (one == other)
