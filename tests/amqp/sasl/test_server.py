"""The SASL dialogue of the server: bytes typed from part 5, refusals, bounds, any split and any bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_amqp.errors import SaslError
from penstock_amqp.sasl.frames import SaslCode
from penstock_amqp.sasl.mechanisms import (
    MECHANISMS,
    AcceptLogin,
    CredentialAnswer,
    Mechanism,
    RefuseLogin,
    SendChallenge,
    Step,
    Verdict,
    Verify,
)
from penstock_amqp.sasl.server import MAX_UNAUTHENTICATED, Authenticated, Refused, Result, SaslServer

AMQP = b"AMQP\x00\x01\x00\x00"
SASL = b"AMQP\x03\x01\x00\x00"
TLS = b"AMQP\x02\x01\x00\x00"

# sasl-mechanisms(array of symbols PLAIN, ANONYMOUS) on a SASL frame (type 01).
DRAWN_MECHANISMS = bytes.fromhex("00000022 02 01 0000 005340 c0 15 01 e0 12 02 a3") + bytes.fromhex(
    "05" + b"PLAIN".hex() + "09" + b"ANONYMOUS".hex()
)
DRAWN_OUTCOMES = {code: bytes.fromhex("00000010 02 01 0000 005344 c0 03 01 50") + bytes((code,)) for code in range(5)}


def drawn_init(mechanism: bytes, response: bytes | None) -> bytes:
    fields = b"\xa3" + bytes((len(mechanism),)) + mechanism
    fields += b"\x40" if response is None else b"\xa0" + bytes((len(response),)) + response
    body = b"\x00\x53\x41\xc0" + bytes((len(fields) + 1, 2)) + fields
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


def drawn_response(response: bytes) -> bytes:
    body = b"\x00\x53\x43\xc0" + bytes((len(response) + 3, 1, 0xA0, len(response))) + response
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


def server(*, without_sasl: bool = False) -> SaslServer:
    return SaslServer(MECHANISMS, without_sasl=without_sasl)


PLAIN_INIT = drawn_init(b"PLAIN", b"\x00alice\x00secret")


def test_anonymous_is_taken_at_once() -> None:
    sasl = server()
    assert sasl.feed(SASL) is None
    assert sasl.output() == SASL + DRAWN_MECHANISMS
    assert sasl.feed(drawn_init(b"ANONYMOUS", b"trace")) == Authenticated("anonymous", "ANONYMOUS", b"")
    assert sasl.output() == DRAWN_OUTCOMES[0]


def test_plain_asks_for_a_verdict_and_goes_on_with_what_came_behind() -> None:
    sasl = server()
    assert sasl.feed(SASL + PLAIN_INIT + AMQP + b"more") == Verify("PLAIN", "alice", b"secret")
    sasl.output()
    assert sasl.feed(b" and more") is None
    assert sasl.answer(Verdict.RIGHT) == Authenticated("alice", "PLAIN", AMQP + b"more and more")
    assert sasl.output() == DRAWN_OUTCOMES[0]


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        pytest.param(Verdict.WRONG, SaslCode.AUTH, id="wrong"),
        pytest.param(Verdict.UNKNOWN, SaslCode.SYS_TEMP, id="could-not-be-checked"),
    ],
)
def test_a_verdict_that_is_not_right_ends_the_dialogue(verdict: Verdict, code: SaslCode) -> None:
    sasl = server()
    sasl.feed(SASL + PLAIN_INIT)
    sasl.output()
    result = sasl.answer(verdict)
    assert isinstance(result, Refused)
    assert (result.code, result.user) == (code, "alice")
    assert sasl.output() == DRAWN_OUTCOMES[code]
    assert sasl.feed(AMQP) is None


def test_plain_without_an_initial_response_gets_an_empty_challenge() -> None:
    sasl = server()
    assert sasl.feed(SASL + drawn_init(b"PLAIN", None)) is None
    assert sasl.output() == SASL + DRAWN_MECHANISMS + bytes.fromhex("00000010 02 01 0000 005342 c0 03 01 a0 00")
    assert sasl.feed(drawn_response(b"alice\x00alice\x00secret")) == Verify("PLAIN", "alice", b"secret")


@pytest.mark.parametrize(
    ("init", "reason"),
    [
        pytest.param(drawn_init(b"SCRAM-SHA-1", b""), "not offered", id="mechanism-not-offered"),
        pytest.param(drawn_init(b"PLAIN", b"alice\x00secret"), "authzid NUL", id="two-parts"),
        pytest.param(drawn_init(b"PLAIN", b"\x00\x00secret"), "authzid NUL", id="no-user"),
        pytest.param(drawn_init(b"PLAIN", b"\x00alice\x00"), "authzid NUL", id="no-password"),
        pytest.param(drawn_init(b"PLAIN", b"\x00a\x00b\x00c"), "authzid NUL", id="four-parts"),
        pytest.param(drawn_init(b"PLAIN", b"bob\x00alice\x00x"), "another user", id="for-another-user"),
        pytest.param(drawn_init(b"PLAIN", b"\x00\xff\x00x"), "UTF-8", id="user-not-utf-8"),
    ],
)
def test_credentials_that_cannot_be_right_are_refused_as_wrong_ones(init: bytes, reason: str) -> None:
    sasl = server()
    result = sasl.feed(SASL + init)
    assert isinstance(result, Refused)
    assert result.code is SaslCode.AUTH
    assert reason in result.reason
    assert sasl.output() == SASL + DRAWN_MECHANISMS + DRAWN_OUTCOMES[1]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(AMQP, id="amqp-without-sasl"),
        pytest.param(TLS, id="tls-in-band"),
        pytest.param(b"AMQP\x00\x00\x09\x01", id="amqp-0-9-1"),
        pytest.param(b"AMQP\x03\x02\x00\x00", id="another-version-of-sasl"),
        pytest.param(b"GET / HTTP/1.1\r\n", id="http"),
        pytest.param(b"\x16\x03\x01", id="tls-hello"),
    ],
)
def test_another_header_is_answered_with_the_one_we_support(data: bytes) -> None:
    sasl = server()
    assert isinstance(sasl.feed(data), Refused)
    assert sasl.output() == SASL


def test_amqp_without_sasl_is_anonymous_where_that_is_allowed() -> None:
    sasl = server(without_sasl=True)
    assert sasl.feed(AMQP[:5]) is None
    assert sasl.feed(AMQP[5:] + b"open") == Authenticated("anonymous", None, AMQP + b"open")
    assert sasl.output() == b""


def test_sasl_is_possible_too_where_it_may_be_left_out() -> None:
    assert server(without_sasl=True).feed(SASL + PLAIN_INIT) == Verify("PLAIN", "alice", b"secret")


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\x00\x00\x00\x08\x02\x01\x00\x00", id="empty"),
        pytest.param(b"\x00\x00\x00\x08\x02\x00\x00\x00", id="amqp-frame"),
        pytest.param(drawn_response(b"x"), id="response-before-init"),
        pytest.param(b"\x00\x00\x40\x01\x02\x01\x00\x00", id="longer-than-we-take"),
        pytest.param(b"\x00\x00\x00\x04\x02\x01\x00\x00", id="shorter-than-its-header"),
        pytest.param(b"\x00\x00\x00\x0c\x02\x01\x00\x00\x00\x53\x41\x45", id="init-without-mechanism"),
    ],
)
def test_a_frame_that_breaks_the_dialogue_ends_it(frame: bytes) -> None:
    sasl = server()
    result = sasl.feed(SASL + frame)
    assert isinstance(result, Refused)
    assert result.code is SaslCode.SYS_PERM
    assert sasl.output() == SASL + DRAWN_MECHANISMS


def test_bytes_before_authentication_are_bounded_also_while_a_verdict_is_awaited() -> None:
    sasl = server()
    assert isinstance(sasl.feed(SASL + PLAIN_INIT), Verify)
    rest = MAX_UNAUTHENTICATED - len(SASL + PLAIN_INIT)
    assert sasl.feed(b"\x00" * rest) is None
    assert isinstance(sasl.feed(b"\x00"), Refused)


class Parrot:
    """Asks for ever."""

    def respond(self, message: bytes | None) -> Step:
        return SendChallenge(b"again")

    def answered(self, answer: CredentialAnswer) -> Step:
        return RefuseLogin("nothing was to be verified")


class AskAfterVerdict:
    """Like SCRAM: has a last word to say once the secret is known to be right."""

    def __init__(self) -> None:
        self._right = False

    def respond(self, message: bytes | None) -> Step:
        return AcceptLogin("alice") if self._right else Verify("X", "alice", b"")

    def answered(self, answer: CredentialAnswer) -> Step:
        self._right = True
        return SendChallenge(b"proof")


def with_mechanism(make: Callable[[], Mechanism]) -> SaslServer:
    return SaslServer({"X": make}, without_sasl=False)


def test_a_dialogue_has_a_bounded_number_of_rounds() -> None:
    sasl = with_mechanism(Parrot)
    assert sasl.feed(SASL + drawn_init(b"X", b"")) is None
    assert [sasl.feed(drawn_response(b"")) for _ in range(8)] == [None] * 8
    assert isinstance(sasl.feed(drawn_response(b"")), Refused)


def test_a_mechanism_can_ask_again_after_the_verdict() -> None:
    sasl = with_mechanism(AskAfterVerdict)
    # The response has come before the verdict.
    assert isinstance(sasl.feed(SASL + drawn_init(b"X", b"") + drawn_response(b"") + AMQP), Verify)
    assert sasl.answer(Verdict.RIGHT) == Authenticated("alice", "X", AMQP)


def test_a_verdict_nobody_asked_for_is_an_error_of_the_caller() -> None:
    with pytest.raises(SaslError):
        server().answer(Verdict.RIGHT)


def run(pieces: list[bytes]) -> tuple[list[Result], bytes]:
    """Feed `pieces`, answering each question with RIGHT."""
    sasl = server()
    results: list[Result] = []
    for piece in pieces:
        result = sasl.feed(piece)
        if isinstance(result, Verify):
            results.append(result)
            result = sasl.answer(Verdict.RIGHT)
        if result is not None:
            results.append(result)
    return results, sasl.output()


@given(st.lists(st.integers(1, 40), max_size=10))
def test_any_split_gives_the_same_dialogue(sizes: list[int]) -> None:
    stream = SASL + PLAIN_INIT
    pieces: list[bytes] = []
    at = 0
    for size in sizes:
        pieces.append(stream[at : at + size])
        at += size
    assert run([*pieces, stream[at:]]) == run([stream])


@given(st.lists(st.binary(max_size=60), max_size=6), st.booleans(), st.integers(0, 60))
def test_no_bytes_make_it_raise(pieces: list[bytes], after_header: bool, cut: int) -> None:
    run([SASL, PLAIN_INIT[:cut], *pieces] if after_header else pieces)
