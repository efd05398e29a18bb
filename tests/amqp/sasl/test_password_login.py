"""A login by password chooses the mechanism; SCRAM by the example of RFC 7677."""

from __future__ import annotations

import pytest

from penstock_amqp.errors import SaslError
from penstock_amqp.sasl.client import Login, NotAuthenticated
from penstock_amqp.sasl.password_login import PasswordLogin, ScramLogin


def example() -> ScramLogin:
    """The exchange of RFC 7677, section 3, up to the client's first message."""
    login = ScramLogin("user", "pencil", "SCRAM-SHA-256", nonce="rOprNGfwEbeRWgbNEkqO")
    assert login.init("h").initial_response == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    return login


CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def test_the_proof_is_that_of_the_rfc_and_the_servers_is_checked() -> None:
    login = example()
    assert login.respond(CHALLENGE) == PROOF
    assert login.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") == b""


def test_a_server_that_does_not_know_the_password_is_refused() -> None:
    login = example()
    login.respond(CHALLENGE)
    with pytest.raises(SaslError, match="can't be used"):
        login.respond(b"v=AAAATRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_a_server_that_leaves_out_the_nonce_is_refused() -> None:
    with pytest.raises(SaslError, match="can't be used"):
        example().respond(b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")


@pytest.mark.parametrize(
    ("offered", "mechanism"),
    [
        (["EXTERNAL", "SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"], "SCRAM-SHA-256"),
        (["PLAIN", "SCRAM-SHA-512"], "SCRAM-SHA-512"),
        (["PLAIN", "ANONYMOUS"], "PLAIN"),
        (["ANONYMOUS"], "PLAIN"),
    ],
)
def test_the_password_goes_over_the_network_only_if_there_is_no_other_way(offered: list[str], mechanism: str) -> None:
    assert PasswordLogin("ann", "s").among(offered).init(None).mechanism == mechanism


def test_plain_is_the_old_login() -> None:
    assert PasswordLogin("ann", "s").among(["PLAIN"]) == Login("ann", "s")


@pytest.mark.parametrize(("user", "password"), [("ann", "two\nlines"), ("a\tb", "pencil"), ("ann", "\udcff")])
def test_what_scram_can_not_carry_is_a_login_in_vain(user: str, password: str) -> None:
    with pytest.raises(NotAuthenticated, match="holds a character that no login has"):
        PasswordLogin(user, password).among(["SCRAM-SHA-256"])
