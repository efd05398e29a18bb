"""SCRAM: the exchange of RFC 7677, what is refused, and what a stranger can't tell."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_amqp.sasl.credentials import fake_record, make_record
from penstock_amqp.sasl.mechanisms import AcceptLogin, LookUpKeys, RefuseLogin, ScramKeys, SendChallenge, Verdict
from penstock_amqp.sasl.scram import Scram, ScramError, salted_keys

# RFC 7677, section 3: user "user", password "pencil".
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

PENCIL = make_record("pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)


def keys(name: str = "SCRAM-SHA-256") -> ScramKeys:
    return PENCIL.keys[name]


def begun() -> Scram:
    scram = Scram("SCRAM-SHA-256", SERVER_NONCE)
    assert scram.respond(CLIENT_FIRST) == LookUpKeys("SCRAM-SHA-256", "user")
    assert scram.answered(keys()) == SendChallenge(SERVER_FIRST)
    return scram


def test_the_exchange_of_rfc_7677() -> None:
    scram = begun()
    assert scram.respond(CLIENT_FINAL) == SendChallenge(SERVER_FINAL)
    assert scram.respond(b"") == AcceptLogin("user")


def test_without_an_initial_response_an_empty_challenge_asks_for_one() -> None:
    scram = Scram("SCRAM-SHA-256", SERVER_NONCE)
    assert scram.respond(None) == SendChallenge(b"")
    assert scram.respond(CLIENT_FIRST) == LookUpKeys("SCRAM-SHA-256", "user")


def test_a_wrong_proof_is_refused() -> None:
    wrong = CLIENT_FINAL.replace(b"p=dHzb", b"p=eHzb")
    refused = begun().respond(wrong)
    assert isinstance(refused, RefuseLogin)
    assert refused.user == "user"


def test_keys_of_a_user_that_does_not_exist_fit_nothing() -> None:
    scram = Scram("SCRAM-SHA-256", SERVER_NONCE)
    scram.respond(CLIENT_FIRST)
    made_up = fake_record(b"k" * 32, "user", 4096)
    assert isinstance(scram.answered(made_up.keys["SCRAM-SHA-256"]), SendChallenge)
    assert isinstance(scram.respond(CLIENT_FINAL), RefuseLogin)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"n,a=ann,n=user,r=abc", id="for-another-user"),
        pytest.param(b"p=tls-unique,,n=user,r=abc", id="channel-binding"),
        pytest.param(b"n,,r=abc,n=user", id="wrong-order"),
        pytest.param(b"n,,m=x,n=user,r=abc", id="mandatory-extension"),
        pytest.param(b"n,,n=,r=abc", id="no-user"),
        pytest.param(b"n,,n=a=3,r=abc", id="bad-escape"),
        pytest.param(b"n,,n=\xff,r=abc", id="not-utf-8"),
        pytest.param(b"", id="empty"),
        pytest.param(b"n,,n=" + b"u" * 1024 + b",r=abc", id="too-long"),
    ],
)
def test_a_first_message_that_cannot_be_used_is_refused(first: bytes) -> None:
    assert isinstance(Scram("SCRAM-SHA-256").respond(first), RefuseLogin)


def test_bytes_behind_the_proof_are_refused() -> None:
    scram = begun()
    scram.respond(CLIENT_FINAL)
    assert isinstance(scram.respond(b"more"), RefuseLogin)


def test_a_verdict_is_no_answer_to_a_question_for_keys() -> None:
    scram = Scram("SCRAM-SHA-256")
    scram.respond(CLIENT_FIRST)
    assert isinstance(scram.answered(Verdict.RIGHT), RefuseLogin)


def test_another_nonce_in_the_last_message_is_refused() -> None:
    assert isinstance(begun().respond(CLIENT_FINAL.replace(b"r=rOpr", b"r=xOpr")), RefuseLogin)


@pytest.mark.parametrize("password", ["", "a\x00b", "p" * 1025])
def test_a_password_that_cannot_be_prepared_is_an_error(password: str) -> None:
    with pytest.raises(ScramError):
        salted_keys("SCRAM-SHA-256", password, b"s" * 16, 4096)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=80)), max_size=4))
@settings(max_examples=200)
def test_no_message_makes_it_raise(messages: list[bytes | None]) -> None:
    scram = Scram("SCRAM-SHA-256")
    for message in messages:
        step = scram.respond(message)
        if isinstance(step, LookUpKeys):
            step = scram.answered(keys())
        if isinstance(step, RefuseLogin):
            return


@given(st.text(max_size=40), st.text(max_size=40))
@settings(max_examples=200)
def test_no_text_makes_it_raise(first: str, final: str) -> None:
    scram = Scram("SCRAM-SHA-512")
    if isinstance(scram.respond(b"n,,n=" + first.encode() + b",r=abc"), LookUpKeys):
        scram.answered(keys("SCRAM-SHA-512"))
        assert isinstance(scram.respond(final.encode()), RefuseLogin)
