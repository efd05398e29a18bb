"""The server's SASL mechanisms: each is a small state machine that turns a client's message into the next step.

A mechanism never looks anything up itself: it returns a question (`Verify` a secret, `LookUpKeys` of a user), and the
caller passes the answer in later, because hashing would block the broker's event loop for too long. The mechanisms that
a listener offers are a mapping from name to factory, in the order of preference.

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
    "AcceptLogin",
    "CredentialAnswer",
    "External",
    "Identified",
    "LookUpKeys",
    "Mechanism",
    "OAuthBearer",
    "Question",
    "RefuseLogin",
    "ScramKeys",
    "SendChallenge",
    "Step",
    "Table",
    "Verdict",
    "Verify",
    "WrongCredentials",
]

ANONYMOUS_USER = "anonymous"
"""The user of a connection whose client did not give a user name."""

MAX_SECRET = 1024
"""Bytes of a PLAIN response."""


@dataclass(frozen=True, slots=True)
class SendChallenge:
    """Send this challenge and wait for the response."""

    challenge: bytes


@dataclass(frozen=True, slots=True)
class Verify:
    """Check whether `secret` is that of `user`, and answer with a `Verdict` or, for a token, `Identified`."""

    mechanism: str
    user: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class LookUpKeys:
    """Answer with the `ScramKeys` of `user` for this mechanism; with invented ones if there is no such user."""

    mechanism: str
    user: str


@dataclass(frozen=True, slots=True)
class AcceptLogin:
    """The client is `user`, and, if a token said so, a member of `groups`."""

    user: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RefuseLogin:
    """The login has failed, or the client's message is malformed. `reason` is for our log; the client learns only
    "auth"."""

    reason: str
    user: str | None = None


Question: TypeAlias = Verify | LookUpKeys
Step: TypeAlias = SendChallenge | Verify | LookUpKeys | AcceptLogin | RefuseLogin


class Verdict(Enum):
    """The result of a `Verify`."""

    RIGHT = auto()
    WRONG = auto()
    UNKNOWN = auto()
    """The check could not be done now (the client may try again)."""


@dataclass(frozen=True, slots=True)
class WrongCredentials:
    """Like `Verdict.WRONG`, with a reason for our log."""

    reason: str


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What a server stores for one user and one mechanism (RFC 5802, section 3)."""

    salt: bytes
    rounds: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Identified:
    """The token is valid, and names its user and groups."""

    user: str
    groups: tuple[str, ...] = ()


CredentialAnswer: TypeAlias = Verdict | WrongCredentials | ScramKeys | Identified


class Mechanism(Protocol):
    """One dialogue of one client."""

    def respond(self, message: bytes | None) -> Step:
        """Take the initial response (None: there was none) or the response to the last `SendChallenge`."""
        ...

    def answered(self, answer: CredentialAnswer) -> Step:
        """Continue after the last question was answered, with any answer except "wrong" and "unknown"."""
        ...


Table: TypeAlias = Mapping[str, Callable[[], Mechanism]]


class Anonymous:
    """RFC 4505. The trace information that a client may send is ignored."""

    def respond(self, message: bytes | None) -> Step:
        return AcceptLogin(ANONYMOUS_USER)

    def answered(self, answer: CredentialAnswer) -> Step:
        return RefuseLogin("nothing was asked")


class Plain:
    """RFC 4616. Acting for another user (authzid) is not offered."""

    def __init__(self) -> None:
        self._user = ""

    def respond(self, message: bytes | None) -> Step:
        if message is None:
            return SendChallenge(b"")
        if len(message) > MAX_SECRET:
            return RefuseLogin(f"a PLAIN response of more than {MAX_SECRET} bytes")
        match message.split(b"\x00"):
            case [authzid, authcid, secret] if authcid and secret:
                return self._verify(authzid, authcid, secret)
            case _:
                return RefuseLogin("a PLAIN response is authzid NUL authcid NUL password")

    def _verify(self, authzid: bytes, authcid: bytes, secret: bytes) -> Step:
        try:
            self._user = authcid.decode()
        except UnicodeDecodeError:
            return RefuseLogin("the user name of a PLAIN response is not UTF-8")
        if authzid not in (b"", authcid):
            return RefuseLogin("acting for another user is not offered", self._user)
        return Verify("PLAIN", self._user, secret)

    def answered(self, answer: CredentialAnswer) -> Step:
        return AcceptLogin(self._user)


class External:
    """RFC 4422, appendix A: the client logs in with its TLS certificate. `user` is the name in it."""

    def __init__(self, user: str) -> None:
        self._user = user

    def respond(self, message: bytes | None) -> Step:
        if message is None:
            return SendChallenge(b"")
        if message not in (b"", self._user.encode()):
            return RefuseLogin("acting for another user than the certificate's is not offered", self._user)
        return AcceptLogin(self._user)

    def answered(self, answer: CredentialAnswer) -> Step:
        return RefuseLogin("nothing was asked", self._user)


class OAuthBearer:
    """XOAUTH2 and OAUTHBEARER: the response carries a token as `auth=Bearer TOKEN` among fields separated by 0x01."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._claimed: str | None = None

    def respond(self, message: bytes | None) -> Step:
        if message is None:
            return SendChallenge(b"")
        try:
            first, *fields = message.decode().split("\x01")
        except UnicodeDecodeError:
            return RefuseLogin(f"an {self._name} response that is not UTF-8")
        if self._name == "XOAUTH2":
            self._claimed = first.removeprefix("user=")
        scheme, _, token = next((each for each in fields if each.startswith("auth=")), "").partition(" ")
        if scheme.lower() != "auth=bearer" or not token:
            return RefuseLogin(f"an {self._name} response without a bearer token", self._claimed)
        return Verify(self._name, self._claimed or "", token.encode())

    def answered(self, answer: CredentialAnswer) -> Step:
        if not isinstance(answer, Identified):
            return RefuseLogin("the token was not looked at", self._claimed)
        return AcceptLogin(answer.user, answer.groups)


MECHANISMS: Table = {"PLAIN": Plain, "ANONYMOUS": Anonymous}
"""The mechanisms that need no arguments."""
