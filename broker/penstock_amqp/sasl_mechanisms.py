"""SASL mechanisms of the server: each one a small machine that turns what the client says into the next step.

A mechanism never checks a secret itself: it asks (`Verify`), and whoever runs the dialogue brings the verdict, because
hashing takes longer than the broker's loop may stand still. The table a listener offers is a mapping from name to
factory, in the order of preference, so that SCRAM, EXTERNAL (a factory that knows the TLS peer) and XOAUTH2 join by an
entry; `MECHANISMS` holds those that need nothing.

Must not know frames or users. Sources: RFC 4422 (SASL), RFC 4505 (ANONYMOUS), RFC 4616 (PLAIN).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol, TypeAlias

__all__ = [
    "ANONYMOUS_USER",
    "MECHANISMS",
    "Accept",
    "Ask",
    "Mechanism",
    "Refuse",
    "Step",
    "Table",
    "Verdict",
    "Verify",
]

ANONYMOUS_USER = "anonymous"
"""The user a connection has that did not say who it is."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Send this challenge and wait for the response."""

    challenge: bytes


@dataclass(frozen=True, slots=True)
class Verify:
    """Find out whether `secret` is that of `user`, and answer with a `Verdict`."""

    mechanism: str
    user: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Accept:
    """The client is `user`."""

    user: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The client is not who it says, or says it wrongly. `reason` is for our log; the client learns only "auth"."""

    reason: str
    user: str | None = None


Step: TypeAlias = Ask | Verify | Accept | Refuse


class Verdict(Enum):
    """What became of a `Verify`."""

    RIGHT = auto()
    WRONG = auto()
    UNKNOWN = auto()
    """Could not be found out now (the client may try again)."""


class Mechanism(Protocol):
    """One dialogue of one client."""

    def respond(self, message: bytes | None) -> Step:
        """Take the initial response (None: there was none) or the response to the last `Ask`."""
        ...

    def verified(self) -> Step:
        """Go on after the last `Verify` was answered with `RIGHT`."""
        ...


Table: TypeAlias = Mapping[str, Callable[[], Mechanism]]


class Anonymous:
    """RFC 4505. The trace information a client may send is not looked at."""

    def respond(self, message: bytes | None) -> Step:
        return Accept(ANONYMOUS_USER)

    def verified(self) -> Step:
        return Refuse("nothing was to be verified")


class Plain:
    """RFC 4616. Acting for another user (authzid) is not offered."""

    def __init__(self) -> None:
        self._user = ""

    def respond(self, message: bytes | None) -> Step:
        if message is None:
            return Ask(b"")
        match message.split(b"\x00"):
            case [authzid, authcid, secret] if authcid and secret:
                return self._verify(authzid, authcid, secret)
            case _:
                return Refuse("a PLAIN response is authzid NUL authcid NUL password")

    def _verify(self, authzid: bytes, authcid: bytes, secret: bytes) -> Step:
        try:
            self._user = authcid.decode()
        except UnicodeDecodeError:
            return Refuse("the user name of a PLAIN response is not UTF-8")
        if authzid not in (b"", authcid):
            return Refuse("acting for another user is not offered", self._user)
        return Verify("PLAIN", self._user, secret)

    def verified(self) -> Step:
        return Accept(self._user)


MECHANISMS: Table = {"PLAIN": Plain, "ANONYMOUS": Anonymous}
