"""Ways to log in that our own client has no use for: SCRAM, EXTERNAL and bearer tokens."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# scramp ships no types.

from __future__ import annotations

from dataclasses import dataclass

from scramp import ScramClient

from penstock_amqp.sasl.client import ClientMechanism
from penstock_amqp.sasl.frames import Init
from penstock_amqp.types.values import Symbol

__all__ = ["ExternalLogin", "ScramLogin", "bearer_login"]


class ScramLogin(ClientMechanism):
    """A client of SCRAM, by the library's own client side."""

    def __init__(self, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
        self._mechanism = mechanism
        self._client = ScramClient([mechanism], user, password)
        self._rounds = 0
        self.is_proven = False
        """The server has shown that it knows the keys."""

    def init(self, hostname: str | None) -> Init:
        first = str(self._client.get_client_first()).encode()
        return Init(mechanism=Symbol(self._mechanism), initial_response=first, hostname=hostname)

    def respond(self, challenge: bytes) -> bytes:
        self._rounds += 1
        if self._rounds == 1:
            self._client.set_server_first(challenge.decode())
            return str(self._client.get_client_final()).encode()
        self._client.set_server_final(challenge.decode())
        self.is_proven = True
        return b""


@dataclass(frozen=True, slots=True)
class ExternalLogin:
    """Says only that TLS has said it."""

    mechanism: str = "EXTERNAL"
    response: bytes = b""

    def init(self, hostname: str | None) -> Init:
        return Init(mechanism=Symbol(self.mechanism), initial_response=self.response, hostname=hostname)

    def respond(self, challenge: bytes) -> bytes:
        return self.response


def bearer_login(user: str, token: str, mechanism: str = "XOAUTH2") -> ExternalLogin:
    """XOAUTH2 as the Qpid JMS client writes it, or OAUTHBEARER of RFC 7628."""
    head = f"user={user}" if mechanism == "XOAUTH2" else f"n,a={user},"
    return ExternalLogin(mechanism, f"{head}\x01auth=Bearer {token}\x01\x01".encode())
