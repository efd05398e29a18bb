"""A client's login by user and password, with the best mechanism that the server offers: SCRAM, else PLAIN.

With SCRAM the password never leaves the client, and a listener without TLS offers nothing else. The library scramp does
the exchange. Sans-I/O. Source: RFC 5802, RFC 7677.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# scramp ships no types.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final

from penstock_amqp.errors import SaslError
from penstock_amqp.sasl.client import ClientMechanism, Login, NotAuthenticated
from penstock_amqp.sasl.frames import Init, SaslCode
from penstock_amqp.types.values import Symbol

__all__ = ["PasswordLogin", "ScramLogin"]

SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """User and password, whatever the mechanism."""

    user: str
    password: str = field(repr=False)

    def among(self, offered: Sequence[str]) -> ClientMechanism:
        """The client's side of the best mechanism of those that the server offers; PLAIN if it offers none of ours."""
        for name in SCRAM:
            if name in offered and _has_scram():
                return ScramLogin(self.user, self.password, name)
        return Login(self.user, self.password)


class ScramLogin:
    """One exchange of SCRAM. `nonce`: the client's part, for tests; absent: random, by the library."""

    def __init__(self, user: str, password: str, mechanism: str, nonce: str | None = None) -> None:
        """Raises `NotAuthenticated` if SCRAM can't carry the name or the password, such as one of two lines."""
        from scramp import ScramClient, ScramException

        self._mechanism = mechanism
        try:
            self._client: Any = ScramClient([mechanism], user, password, c_nonce=nonce)
        except ScramException as error:
            raise NotAuthenticated(
                "the name or the password holds a character that no login has", SaslCode.AUTH
            ) from error
        self._began = False

    def init(self, hostname: str | None) -> Init:
        """The first message."""
        first = str(self._client.get_client_first()).encode()
        return Init(mechanism=Symbol(self._mechanism), initial_response=first, hostname=hostname)

    def respond(self, challenge: bytes) -> bytes:
        """The proof, and then, to the server's own proof, an empty response. Raises `SaslError` if that is wrong."""
        from scramp import ScramException

        try:
            if self._began:
                self._client.set_server_final(challenge.decode())
                return b""
            self._began = True
            self._client.set_server_first(challenge.decode())
            return str(self._client.get_client_final()).encode()
        except (ScramException, UnicodeDecodeError) as error:
            raise SaslError(f"the server's SCRAM message can't be used: {error}") from error


def _has_scram() -> bool:
    """The library belongs to the extra `broker`."""
    return find_spec("scramp") is not None
