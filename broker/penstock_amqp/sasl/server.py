"""The server's side of what comes before AMQP on a connection: protocol headers and the SASL dialogue. Sans-I/O.

`SaslServer.feed` takes the received bytes and returns the next action, if there is one: check a secret or look up keys
(`Verify`, `LookUpKeys`, answered by `answer`), continue with AMQP (`Authenticated`, with the bytes that already belong
to it), or send what `output` holds and close (`Refused`). The memory that a client can occupy before it has logged in
is bounded. `feed` raises no exception, whatever the bytes are.

Must not know users, passwords or the engine. Sources: AMQP 1.0 part 2, 2.2 (headers), and part 5, 5.3 (SASL).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias, assert_never

from penstock_amqp.errors import DecodeError, SaslError
from penstock_amqp.frames.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, Frame, FrameReader, read_body
from penstock_amqp.sasl.frames import Challenge, Init, Mechanisms, Response, SaslCode, SaslOutcome, sasl_frame
from penstock_amqp.sasl.mechanisms import (
    ANONYMOUS_USER,
    AcceptLogin,
    CredentialAnswer,
    LookUpKeys,
    Mechanism,
    Question,
    RefuseLogin,
    SendChallenge,
    Step,
    Table,
    Verdict,
    Verify,
    WrongCredentials,
)
from penstock_amqp.types.values import Symbol

__all__ = ["MAX_FRAME", "MAX_ROUNDS", "MAX_UNAUTHENTICATED", "Authenticated", "Refused", "Result", "SaslServer"]

MAX_FRAME = 16 * 1024
"""Bytes of a SASL frame: an OAuth token fits. AMQP's limit of 512 bytes binds senders; a receiver may accept more."""

MAX_UNAUTHENTICATED = 64 * 1024
"""Bytes that are accepted from a client before it has logged in, including those that wait while a secret is
checked."""

MAX_ROUNDS = 8
"""Responses in one dialogue."""


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The client is `user`; `rest`: the bytes after the dialogue, which begin with the AMQP header.

    `mechanism` is None if the client left SASL out.
    """

    user: str
    mechanism: str | None
    rest: bytes
    groups: tuple[str, ...] = ()
    """The groups that the token names."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Send `output` and close. `reason` is for our log; `user` is the name that the client gave, if it gave one."""

    code: SaslCode
    reason: str
    user: str | None = None


Result: TypeAlias = Question | Authenticated | Refused | None


class _State(Enum):
    HEADER = auto()
    INIT = auto()
    RESPONSE = auto()
    VERDICT = auto()
    DONE = auto()


class SaslServer:
    """The dialogue with one client.

    `mechanisms` are offered in their order; if there are none, every client that uses SASL is refused. With
    `without_sasl`, a client that begins with the AMQP header at once is accepted as anonymous.
    """

    def __init__(self, mechanisms: Table, *, without_sasl: bool) -> None:
        self._mechanisms = mechanisms
        self._without_sasl = without_sasl
        self._state = _State.HEADER
        self._start = b""
        self._reader = FrameReader(MAX_FRAME)
        self._output = bytearray()
        self._taken = 0
        self._rounds = 0
        self._name = ""
        self._user = ""
        self._mechanism: Mechanism | None = None

    def output(self) -> bytes:
        """Remove and return the bytes that are to be sent."""
        data = bytes(self._output)
        self._output.clear()
        return data

    def feed(self, data: bytes) -> Result:
        """Process what the client sent. Not to be called after `Authenticated` or `Refused`."""
        if self._state is _State.DONE:
            return None
        self._taken += len(data)
        if self._taken > MAX_UNAUTHENTICATED:
            return self._refuse(SaslCode.SYS_PERM, f"more than {MAX_UNAUTHENTICATED} bytes before authentication")
        if self._state is not _State.HEADER:
            self._reader.add(data)
        elif (result := self._header(data)) is not None:
            return result
        return self._advance()

    def answer(self, answer: CredentialAnswer) -> Result:
        """Pass in the answer to the last question. Raises `SaslError` if there is no open question."""
        if self._state is not _State.VERDICT or self._mechanism is None:
            raise SaslError("an answer came that nobody asked for")
        if answer is Verdict.WRONG:
            return self._refuse(SaslCode.AUTH, "wrong user name or password", self._user)
        if isinstance(answer, WrongCredentials):
            return self._refuse(SaslCode.AUTH, answer.reason, self._user)
        if answer is Verdict.UNKNOWN:
            return self._refuse(SaslCode.SYS_TEMP, "the secret could not be checked", self._user)
        return self._take(self._mechanism.answered(answer)) or self._advance()

    def _advance(self) -> Result:
        """Process frames for as long as it is the client's turn."""
        try:
            while self._state in (_State.INIT, _State.RESPONSE) and (frame := self._reader.next()) is not None:
                if (result := self._dialogue(frame)) is not None:
                    return result
        except (DecodeError, SaslError) as error:
            self._state = _State.DONE  # a peer that does not speak SASL gets no SASL outcome
            return Refused(SaslCode.SYS_PERM, str(error))
        return None

    def _header(self, data: bytes) -> Result:
        """Check the first eight bytes: for an unknown header, a server sends one that it supports, and closes (2.2)."""
        self._start += data
        header = self._start[:8]
        if header == AMQP_HEADER and self._without_sasl:
            self._state = _State.DONE
            return Authenticated(ANONYMOUS_USER, None, self._start)
        if header == SASL_HEADER:
            self._state = _State.INIT
            self._reader.add(self._start[8:])
            names = tuple(Symbol(name) for name in self._mechanisms)
            self._output += SASL_HEADER + sasl_frame(Mechanisms(sasl_server_mechanisms=names))
            return None
        if len(header) < 8 and (SASL_HEADER.startswith(header) or AMQP_HEADER.startswith(header)):
            return None
        self._output += SASL_HEADER
        self._state = _State.DONE
        return Refused(SaslCode.SYS_PERM, f"the connection begins with {header!r}, not with the SASL header")

    def _dialogue(self, frame: Frame) -> Result:
        if frame.type != SASL_FRAME:
            raise SaslError(f"a frame of type {frame.type} in the SASL dialogue")
        if self._state is _State.INIT:
            init, _ = read_body(frame.body, Init)
            return self._begin(init)
        response, _ = read_body(frame.body, Response)
        self._rounds += 1
        if self._rounds > MAX_ROUNDS or self._mechanism is None:
            raise SaslError(f"more than {MAX_ROUNDS} responses")
        return self._take(self._mechanism.respond(response.response))

    def _begin(self, init: Init) -> Result:
        factory = self._mechanisms.get(init.mechanism)
        if factory is None:
            return self._refuse(SaslCode.AUTH, f"mechanism {init.mechanism!r} is not offered")
        self._name = str(init.mechanism)
        self._mechanism = factory()
        return self._take(self._mechanism.respond(init.initial_response))

    def _take(self, step: Step) -> Result:
        match step:
            case SendChallenge():
                self._output += sasl_frame(Challenge(challenge=step.challenge))
                self._state = _State.RESPONSE
                return None
            case Verify() | LookUpKeys():
                self._user = step.user
                self._state = _State.VERDICT
                return step
            case AcceptLogin():
                self._output += sasl_frame(SaslOutcome(code=SaslCode.OK))
                self._state = _State.DONE
                return Authenticated(step.user, self._name, self._reader.rest, step.groups)
            case RefuseLogin():
                return self._refuse(SaslCode.AUTH, step.reason, step.user)
            case _:
                assert_never(step)

    def _refuse(self, code: SaslCode, reason: str, user: str | None = None) -> Refused:
        if self._state is not _State.HEADER:
            self._output += sasl_frame(SaslOutcome(code=code))
        self._state = _State.DONE
        return Refused(code, reason, user)
