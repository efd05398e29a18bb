"""SASL mechanisms of the server: each one a small machine that turns what the client says into the next step.

A mechanism never looks anything up itself: it asks (`Verify` a secret, `Find` the keys of a user), and whoever runs the
dialogue brings the answer, because hashing takes longer than the broker's loop may stand still. The table a listener
offers is a mapping from name to factory, in the order of preference.

Must not know frames or users. Sources: RFC 4422 (SASL, EXTERNAL), RFC 4505 (ANONYMOUS), RFC 4616 (PLAIN), RFC 7628
(OAUTHBEARER); XOAUTH2 is Google's form of it, which the Qpid JMS client and go-amqp speak.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol, TypeAlias

__all__ = [
    "ANONYMOUS_USER",
    "MAX_SECRET",
    "MECHANISMS",
    "Accept",
    "Ask",
    "Bearer",
    "CredentialAnswer",
    "External",
    "Find",
    "Identified",
    "Mechanism",
    "Question",
    "Refuse",
    "ScramKeys",
    "Step",
    "Table",
    "Verdict",
    "Verify",
    "Wrong",
]

ANONYMOUS_USER = "anonymous"
"""The user a connection has that did not say who it is."""

MAX_SECRET = 1024
"""Bytes of a PLAIN response."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Send this challenge and wait for the response."""

    challenge: bytes


@dataclass(frozen=True, slots=True)
class Verify:
    """Find out whether `secret` is that of `user`, and answer with a `Verdict` or, for a token, `Identified`."""

    mechanism: str
    user: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Find:
    """Bring the `ScramKeys` of `user` for this mechanism; made-up ones if there is no such user."""

    mechanism: str
    user: str


@dataclass(frozen=True, slots=True)
class Accept:
    """The client is `user`, and, if a token said so, a member of `groups`."""

    user: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """The client is not who it says, or says it wrongly. `reason` is for our log; the client learns only "auth"."""

    reason: str
    user: str | None = None


Question: TypeAlias = Verify | Find
Step: TypeAlias = Ask | Verify | Find | Accept | Refuse


class Verdict(Enum):
    """What became of a `Verify`."""

    RIGHT = auto()
    WRONG = auto()
    UNKNOWN = auto()
    """Could not be found out now (the client may try again)."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """Like `Verdict.WRONG`, with a reason for our log."""

    reason: str


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What a server keeps of one user for one mechanism (RFC 5802, section 3)."""

    salt: bytes
    rounds: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Identified:
    """The token is good, and says who its bearer is."""

    user: str
    groups: tuple[str, ...] = ()


CredentialAnswer: TypeAlias = Verdict | Wrong | ScramKeys | Identified


class Mechanism(Protocol):
    """One dialogue of one client."""

    def respond(self, message: bytes | None) -> Step:
        """Take the initial response (None: there was none) or the response to the last `Ask`."""
        ...

    def answered(self, answer: CredentialAnswer) -> Step:
        """Go on after the last question was answered, with anything but wrong and unknown."""
        ...


Table: TypeAlias = Mapping[str, Callable[[], Mechanism]]


class Anonymous:
    """RFC 4505. The trace information a client may send is not looked at."""

    def respond(self, message: bytes | None) -> Step:
        return Accept(ANONYMOUS_USER)

    def answered(self, answer: CredentialAnswer) -> Step:
        return Refuse("nothing was asked")


class Plain:
    """RFC 4616. Acting for another user (authzid) is not offered."""

    def __init__(self) -> None:
        self._user = ""

    def respond(self, message: bytes | None) -> Step:
        if message is None:
            return Ask(b"")
        if len(message) > MAX_SECRET:
            return Refuse(f"a PLAIN response of more than {MAX_SECRET} bytes")
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

    def answered(self, answer: CredentialAnswer) -> Step:
        return Accept(self._user)


class External:
    """RFC 4422, appendix A: who the TLS certificate says it is. `user` is its name there."""

    def __init__(self, user: str) -> None:
        self._user = user

    def respond(self, message: bytes | None) -> Step:
        if message is None:
            return Ask(b"")
        if message not in (b"", self._user.encode()):
            return Refuse("acting for another user than the certificate's is not offered", self._user)
        return Accept(self._user)

    def answered(self, answer: CredentialAnswer) -> Step:
        return Refuse("nothing was asked", self._user)


class Bearer:
    """XOAUTH2 and OAUTHBEARER: the response carries a token as `auth=Bearer TOKEN` among fields parted by 0x01."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._claimed: str | None = None

    def respond(self, message: bytes | None) -> Step:
        if message is None:
            return Ask(b"")
        try:
            first, *fields = message.decode().split("\x01")
        except UnicodeDecodeError:
            return Refuse(f"an {self._name} response that is not UTF-8")
        if self._name == "XOAUTH2":
            self._claimed = first.removeprefix("user=")
        scheme, _, token = next((each for each in fields if each.startswith("auth=")), "").partition(" ")
        if scheme.lower() != "auth=bearer" or not token:
            return Refuse(f"an {self._name} response without a bearer token", self._claimed)
        return Verify(self._name, self._claimed or "", token.encode())

    def answered(self, answer: CredentialAnswer) -> Step:
        if not isinstance(answer, Identified):
            return Refuse("the token was not looked at", self._claimed)
        return Accept(answer.user, answer.groups)


MECHANISMS: Table = {"PLAIN": Plain, "ANONYMOUS": Anonymous}
"""Those that need nothing."""
