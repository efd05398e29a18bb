"""A client's login by a signed token, such as that of a Kubernetes ServiceAccount: the mechanism XOAUTH2.

Whoever reads the token can log in with it until it expires, so a caller sends it over TLS only. Sans-I/O. Source: the
mechanism as Google describes it ("OAuth 2.0 Mechanism"), which Qpid JMS and rhea have, too; RFC 7628 is its successor.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock_amqp.sasl.frames import Init
from penstock_amqp.types.values import Symbol

__all__ = ["TokenLogin"]


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """One token. The user is whom the token names."""

    token: str = field(repr=False)

    def init(self, hostname: str | None) -> Init:
        """The first frame."""
        response = f"user=\x01auth=Bearer {self.token}\x01\x01"
        return Init(mechanism=Symbol("XOAUTH2"), initial_response=response.encode(), hostname=hostname)

    def respond(self, challenge: bytes) -> bytes:
        """The empty response to the challenge by which a server says why it refuses; the refusal follows."""
        return b"\x01"
