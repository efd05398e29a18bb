"""The client's SASL dialogue against our own server's, and against servers that misbehave."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_amqp.errors import SaslError
from penstock_amqp.sasl.client import Login, NotAuthenticated, SaslClient
from penstock_amqp.sasl.frames import Mechanisms, SaslCode, SaslOutcome, sasl_frame
from penstock_amqp.sasl.mechanisms import MECHANISMS, Table, Verdict, Verify
from penstock_amqp.sasl.server import Authenticated, SaslServer
from penstock_amqp.types.values import Symbol

SASL = b"AMQP\x03\x01\x00\x00"


def dialogue(login: Login, verdict: Verdict = Verdict.RIGHT, table: Table = MECHANISMS) -> tuple[object, bytes | None]:
    """Run both sides until the client has an answer; return what the server came to and the client's rest."""
    client, server = SaslClient(login, "host"), SaslServer(table, without_sasl=False)
    rest = None
    result = None
    for _ in range(4):
        came = server.feed(client.output())
        if isinstance(came, Verify):
            assert (came.user, came.secret) == (login.user, login.password.encode())
            came = server.answer(verdict)
        result = came or result
        rest = client.feed(server.output())
        if rest is not None:
            break
    return result, rest


def test_anonymous() -> None:
    assert dialogue(Login()) == (Authenticated("anonymous", "ANONYMOUS", b""), b"")


def test_plain() -> None:
    assert dialogue(Login("alice", "sëcret")) == (Authenticated("alice", "PLAIN", b""), b"")


def test_a_wrong_password_is_told_with_its_code() -> None:
    with pytest.raises(NotAuthenticated) as caught:
        dialogue(Login("alice", "x"), Verdict.WRONG)
    assert caught.value.code is SaslCode.AUTH


def test_trouble_of_the_server_is_told_from_wrong_credentials() -> None:
    with pytest.raises(NotAuthenticated) as caught:
        dialogue(Login("alice", "x"), Verdict.UNKNOWN)
    assert caught.value.code is SaslCode.SYS_TEMP


def test_a_mechanism_that_is_not_offered_is_not_tried() -> None:
    with pytest.raises(NotAuthenticated, match=r"ANONYMOUS is not offered \(PLAIN\)"):
        dialogue(Login(), table={"PLAIN": MECHANISMS["PLAIN"]})


def test_the_password_is_not_shown() -> None:
    assert "hunter2" not in repr(Login("alice", "hunter2"))
    assert "hunter2" not in repr(Verify("PLAIN", "alice", b"hunter2"))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"HTTP/1.1 400", id="not-amqp"),
        pytest.param(b"AMQP\x00\x01\x00\x00", id="amqp-header"),
        pytest.param(SASL + b"\x00\x00\x00\x08\x02\x00\x00\x00", id="amqp-frame"),
        pytest.param(SASL + b"\x00\x00\x00\x08\x02\x01\x00\x00", id="empty-frame"),
        pytest.param(SASL + b"\x7f\x00\x00\x08\x02\x01\x00\x00", id="giant-frame"),
    ],
)
def test_a_server_that_breaks_the_dialogue_is_an_error(data: bytes) -> None:
    with pytest.raises(SaslError):
        SaslClient(Login()).feed(data)


def test_an_outcome_code_nobody_knows_is_the_servers_trouble() -> None:
    client = SaslClient(Login())
    client.feed(SASL + sasl_frame(Mechanisms(sasl_server_mechanisms=(Symbol("ANONYMOUS"),))))
    with pytest.raises(NotAuthenticated) as caught:
        client.feed(sasl_frame(SaslOutcome(code=77)))
    assert caught.value.code is SaslCode.SYS


@given(st.binary(max_size=80), st.booleans())
def test_no_bytes_make_it_raise_anything_else(data: bytes, after_header: bool) -> None:
    client = SaslClient(Login())
    with contextlib.suppress(SaslError):
        client.feed((SASL if after_header else b"") + data)
