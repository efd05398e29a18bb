"""The server's side of SCRAM-SHA-256 and SCRAM-SHA-512; the library scramp does the exchange.

The mechanism asks for the stored keys of the user (`LookUpKeys`), and never sees a password. For a user that does not
exist it gets invented keys, so that a client cannot learn from the exchange which users exist. The server's own proof
is sent as a last challenge, which the client answers with an empty response: AMQP clients support no other way
(proton-j has no additional-data). Channel binding is not offered: AMQP clients do not implement the -PLUS mechanisms.

Sources: RFC 5802, RFC 7677.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# scramp ships no types.

from __future__ import annotations

from typing import Final

from scramp import ScramException, ScramMechanism
from scramp.core import ScramServer

from penstock_amqp.sasl.mechanisms import (
    AcceptLogin,
    CredentialAnswer,
    LookUpKeys,
    RefuseLogin,
    ScramKeys,
    SendChallenge,
    Step,
)

__all__ = ["MAX_MESSAGE", "Scram", "ScramError", "salted_keys"]

MAX_MESSAGE: Final = 1024
"""Bytes of one message of the exchange; SASLprep of a longer name would block the event loop for too long."""


class ScramError(ValueError):
    """A password or name that SASLprep does not allow."""


def salted_keys(mechanism: str, password: str, salt: bytes, rounds: int) -> tuple[bytes, bytes]:
    """StoredKey and ServerKey of a password. Slow on purpose. Raises `ScramError`."""
    if not 0 < len(password) <= MAX_MESSAGE:
        raise ScramError(f"it has {len(password)} characters, not between 1 and {MAX_MESSAGE}")
    try:
        made = ScramMechanism(mechanism).make_auth_info(password, iteration_count=rounds, salt=salt)
    except ScramException as error:
        raise ScramError(str(error)) from error
    stored_key, server_key = made[1], made[2]
    assert isinstance(stored_key, bytes) and isinstance(server_key, bytes)
    return stored_key, server_key


class Scram:
    """One exchange: client-first -> keys -> server-first, client-final -> server-final, empty response."""

    def __init__(self, name: str, nonce: str | None = None) -> None:
        """`nonce`: the server's part, for tests; absent: 128 random bits by scramp."""
        self._mechanism = ScramMechanism(name)
        self._name = name
        self._nonce = nonce
        self._first = ""
        self._user = ""
        self._server: ScramServer | None = None
        self._proven = False

    def respond(self, message: bytes | None) -> Step:
        """Take the next message of the client."""
        if message is None:
            return SendChallenge(b"")
        if len(message) > MAX_MESSAGE:
            return RefuseLogin(f"a SCRAM message of more than {MAX_MESSAGE} bytes", self._user or None)
        try:
            text = message.decode()
        except UnicodeDecodeError:
            return RefuseLogin("a SCRAM message that is not UTF-8", self._user or None)
        if self._proven:
            return AcceptLogin(self._user) if not message else RefuseLogin("bytes behind the proof", self._user)
        if self._server is None:
            return self._begin(text)
        return self._prove(self._server, text)

    def _begin(self, first: str) -> Step:
        """Read the user name from the first message. The library wants the keys while it reads the message, before we
        have them."""
        names: list[str] = []
        try:
            self._mechanism.make_server(names.append).set_client_first(first)
        except ScramException as error:
            if not names:
                return RefuseLogin(f"the first SCRAM message can't be used: {error}")
        self._first, self._user = first, names[0]
        return LookUpKeys(self._name, self._user)

    def answered(self, answer: CredentialAnswer) -> Step:
        """Go on with the keys of the user."""
        if not isinstance(answer, ScramKeys):
            return RefuseLogin("no keys were brought", self._user)
        self._server = self._mechanism.make_server(lambda _: _for_library(answer), s_nonce=self._nonce)
        try:
            self._server.set_client_first(self._first)
            return SendChallenge(str(self._server.get_server_first()).encode())
        except ScramException as error:
            return RefuseLogin(f"the first SCRAM message can't be used: {error}", self._user)

    def _prove(self, server: ScramServer, final: str) -> Step:
        try:
            server.set_client_final(final)
            proof = str(server.get_server_final()).encode()
        except ScramException as error:
            return RefuseLogin(f"wrong user name or password ({error})", self._user)
        self._proven = True
        return SendChallenge(proof)


def _for_library(keys: ScramKeys) -> tuple[bytes, bytes, bytes, int]:
    return keys.salt, keys.stored_key, keys.server_key, keys.rounds
