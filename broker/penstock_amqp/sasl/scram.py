"""The server's side of SCRAM-SHA-256 and SCRAM-SHA-512; the library scramp does the exchange.

The mechanism asks for what is stored of the user (`Find`), and never sees a password. A user that does not exist is
answered from made-up keys, so that nothing is learned before the proof is wrong. The server's own proof is a last
challenge, answered by an empty response: clients of AMQP know no other place for it (proton-j has no additional-data).
Channel binding is not offered: the mechanisms with -PLUS are unknown to AMQP's clients.

Sources: RFC 5802, RFC 7677.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# scramp ships no types.

from __future__ import annotations

from typing import Final

from scramp import ScramException, ScramMechanism
from scramp.core import ScramServer

from penstock_amqp.sasl.mechanisms import Accept, Ask, CredentialAnswer, Find, Refuse, ScramKeys, Step

__all__ = ["MAX_MESSAGE", "Scram", "ScramError", "salted_keys"]

MAX_MESSAGE: Final = 1024
"""Bytes of one message of the exchange; preparing a longer name would take time on the loop."""


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
            return Ask(b"")
        if len(message) > MAX_MESSAGE:
            return Refuse(f"a SCRAM message of more than {MAX_MESSAGE} bytes", self._user or None)
        try:
            text = message.decode()
        except UnicodeDecodeError:
            return Refuse("a SCRAM message that is not UTF-8", self._user or None)
        if self._proven:
            return Accept(self._user) if not message else Refuse("bytes behind the proof", self._user)
        if self._server is None:
            return self._begin(text)
        return self._prove(self._server, text)

    def _begin(self, first: str) -> Step:
        """Find out who it is: the library wants the keys while it reads the message, and we don't have them yet."""
        names: list[str] = []
        try:
            self._mechanism.make_server(names.append).set_client_first(first)
        except ScramException as error:
            if not names:
                return Refuse(f"the first SCRAM message can't be used: {error}")
        self._first, self._user = first, names[0]
        return Find(self._name, self._user)

    def answered(self, answer: CredentialAnswer) -> Step:
        """Go on with the keys of the user."""
        if not isinstance(answer, ScramKeys):
            return Refuse("no keys were brought", self._user)
        self._server = self._mechanism.make_server(lambda _: _for_library(answer), s_nonce=self._nonce)
        try:
            self._server.set_client_first(self._first)
            return Ask(str(self._server.get_server_first()).encode())
        except ScramException as error:
            return Refuse(f"the first SCRAM message can't be used: {error}", self._user)

    def _prove(self, server: ScramServer, final: str) -> Step:
        try:
            server.set_client_final(final)
            proof = str(server.get_server_final()).encode()
        except ScramException as error:
            return Refuse(f"wrong user name or password ({error})", self._user)
        self._proven = True
        return Ask(proof)


def _for_library(keys: ScramKeys) -> tuple[bytes, bytes, bytes, int]:
    return keys.salt, keys.stored_key, keys.server_key, keys.rounds
