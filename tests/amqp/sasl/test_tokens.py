"""Signed tokens: what lets in, and each way in which one does not."""

from __future__ import annotations

import base64
import json

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.token_signer import AUDIENCE, ISSUER, NOW, Signer

from penstock_amqp.errors import TokenError
from penstock_amqp.sasl.tokens import (
    MAX_TOKEN,
    Bearer,
    KeysError,
    TokenRules,
    check_token,
    fingerprint,
    issuer_of,
    read_keys,
)

RULES = TokenRules(ISSUER, (AUDIENCE,), ("RS256", "ES256"), groups_claim="groups")
SIGNER = Signer()
OTHER = Signer("ES256", "k2")
KEYS = read_keys(SIGNER.jwks(OTHER))
BILLING = "system:serviceaccount:shop:billing"


def check(token: bytes, now: float = NOW) -> Bearer:
    return check_token(token, RULES, KEYS, now)


def test_a_good_token_says_who_its_bearer_is() -> None:
    first, second = (fingerprint(KEYS.by_id[name]) for name in ("k1", "k2"))
    assert check(SIGNER.token()) == Bearer(BILLING, (), NOW + 3630, first)
    assert check(OTHER.token(groups=["a", "b"])) == Bearer(BILLING, ("a", "b"), NOW + 3630, second)
    assert check(SIGNER.token(aud=AUDIENCE, groups="one")).groups == ("one",)


def test_a_key_is_recognised_under_any_name_and_in_any_form() -> None:
    key = fingerprint(KEYS.by_id["k1"])
    assert read_keys(SIGNER.pem()).holds(key)
    assert read_keys(OTHER.jwks(SIGNER)).holds(key)
    assert not read_keys(OTHER.jwks()).holds(key)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        pytest.param({"iss": "https://evil"}, "issuer", id="another-issuer"),
        pytest.param({"iss": None}, "iss", id="no-issuer"),
        pytest.param({"aud": ["penstock.dev/shop/other"]}, "[Aa]udience", id="for-another-broker"),
        pytest.param({"aud": None}, "aud", id="for-nobody"),
        pytest.param({"exp": None}, "exp", id="without-end"),
        pytest.param({"exp": NOW - 31}, "expired", id="expired"),
        pytest.param({"exp": True}, "no numbers", id="end-is-no-number"),
        pytest.param({"exp": float("inf")}, "no numbers", id="endless"),
        pytest.param({"exp": float("nan")}, "no numbers", id="end-is-nothing"),
        pytest.param({"nbf": NOW + 31}, "not valid yet", id="not-yet"),
        pytest.param({"sub": None}, "'sub'", id="no-user"),
        pytest.param({"sub": ""}, "'sub'", id="empty-user"),
        pytest.param({"sub": 7}, "it", id="user-is-a-number"),
    ],
)
def test_a_token_that_says_something_else_lets_nobody_in(changed: dict[str, object], words: str) -> None:
    with pytest.raises(TokenError, match=words):
        check(SIGNER.token(**changed))


def test_clocks_may_be_apart_by_the_leeway() -> None:
    check(SIGNER.token(exp=NOW - 29))
    check(SIGNER.token(nbf=NOW + 29))


def test_the_clock_is_the_caller_s() -> None:
    with pytest.raises(TokenError, match="expired"):
        check(SIGNER.token(), now=NOW + 3700)


def test_a_signature_by_another_key_lets_nobody_in() -> None:
    with pytest.raises(TokenError):
        check(Signer("RS256", "k1").token())
    with pytest.raises(TokenError, match="not given"):
        check(Signer("RS256", "k3").token())


def unsigned(header: dict[str, object]) -> bytes:
    parts = (header, SIGNER.claims())
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join((*texts, b""))


def test_a_token_cannot_choose_how_it_is_checked() -> None:
    with pytest.raises(TokenError):
        check(unsigned({"alg": "none", "kid": "k1"}))
    with pytest.raises(TokenError):
        check(unsigned({"alg": "none"}))
    # Signed with the public key as if it were a shared secret (RFC 8725, section 2.1).
    shared = base64.urlsafe_b64encode(b"{}").decode()
    with pytest.raises(TokenError):
        check(jwt.encode(SIGNER.claims(), shared * 20, "HS256", headers={"kid": "k1"}).encode())
    strict = TokenRules(ISSUER, (AUDIENCE,), ("ES256",))
    with pytest.raises(TokenError):
        check_token(SIGNER.token(), strict, KEYS, NOW)


def test_a_changed_token_lets_nobody_in() -> None:
    head, body, signature = SIGNER.token().split(b".")
    admin = base64.urlsafe_b64encode(json.dumps(SIGNER.claims(sub="admin")).encode()).rstrip(b"=")
    with pytest.raises(TokenError):
        check(b".".join((head, admin, signature)))
    with pytest.raises(TokenError):
        check(b".".join((head, body, signature[::-1])))


def test_a_long_token_is_not_looked_at() -> None:
    with pytest.raises(TokenError, match="longer"):
        check(b"x" * (MAX_TOKEN + 1))


def test_keys_without_an_id_serve_tokens_that_name_one_or_none() -> None:
    signer = Signer("ES256", None)
    for keys in (read_keys(signer.pem()), read_keys(signer.jwks()), read_keys(signer.pem() + SIGNER.pem())):
        assert check_token(signer.token(), RULES, keys, NOW).user == BILLING
    named = read_keys(SIGNER.pem())
    assert check_token(SIGNER.token(), RULES, named, NOW).user == BILLING


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "k1"}]}',
        b'{"keys": [{"kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB"}]}',
        b'{"keys": "k1"}',
        b"-----BEGIN NOTHING-----\n",
        SIGNER.private_pem(),
    ],
)
def test_a_file_without_a_usable_public_key_is_an_error(content: bytes) -> None:
    with pytest.raises(KeysError):
        read_keys(content)


def test_a_key_of_an_unknown_kind_is_passed_over() -> None:
    document = json.loads(SIGNER.jwks())
    document["keys"] += [{"kty": "EC", "crv": "P-999", "kid": "odd"}, "text", {"kty": "LWE"}]
    assert check_token(SIGNER.token(), RULES, read_keys(json.dumps(document).encode()), NOW).user == BILLING


def test_the_issuer_is_read_without_a_key() -> None:
    assert issuer_of(SIGNER.token()) == ISSUER


@given(st.one_of(st.binary(max_size=100), st.text(max_size=60).map(str.encode)))
def test_bytes_that_are_no_token_raise_nothing_else(token: bytes) -> None:
    for attempt in (issuer_of, check):
        with pytest.raises(TokenError):
            attempt(token)
