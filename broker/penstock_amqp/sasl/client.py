"""The client's side of the SASL dialogue, with ANONYMOUS and PLAIN, for our own clients. Sans-I/O.

SCRAM is in `sasl.password_login`. Tests and measurements bring other mechanisms as further kinds of `ClientMechanism`.

Source: AMQP 1.0 part 5, section 5.3; RFC 4505, RFC 4616.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from penstock_amqp.errors import DecodeError, SaslError
from penstock_amqp.frames.frames import SASL_FRAME, SASL_HEADER, Frame, FrameReader, read_body
from penstock_amqp.sasl.frames import (
    Challenge,
    Init,
    Mechanisms,
    Response,
    SaslCode,
    SaslOutcome,
    SaslPerformative,
    sasl_frame,
)
from penstock_amqp.types.values import Symbol

__all__ = ["ClientMechanism", "Credentials", "Login", "NotAuthenticated", "SaslClient"]

_MAX_FRAME = 16 * 1024


class NotAuthenticated(SaslError):
    """The server refused the login. `code` says whether the credentials were wrong or the server has a problem
    itself."""

    def __init__(self, reason: str, code: SaslCode) -> None:
        super().__init__(reason)
        self.code = code


class ClientMechanism(Protocol):
    """The client's side of one SASL mechanism, for one dialogue."""

    def init(self, hostname: str | None) -> Init:
        """The first frame."""
        ...

    def respond(self, challenge: bytes) -> bytes:
        """The response to a challenge."""
        ...


@runtime_checkable
class Credentials(Protocol):
    """What a client can log in with by more than one mechanism."""

    def among(self, offered: Sequence[str]) -> ClientMechanism:
        """The client's side of one of the mechanisms that the server offers."""
        ...


@dataclass(frozen=True, slots=True)
class Login:
    """A user and password for PLAIN; without a user the mechanism is ANONYMOUS."""

    user: str | None = None
    password: str = field(default="", repr=False)

    def init(self, hostname: str | None) -> Init:
        if self.user is None:
            return Init(mechanism=Symbol("ANONYMOUS"), initial_response=b"", hostname=hostname)
        response = b"\x00" + self.user.encode() + b"\x00" + self.password.encode()
        return Init(mechanism=Symbol("PLAIN"), initial_response=response, hostname=hostname)

    def respond(self, challenge: bytes) -> bytes:
        """The response to a challenge; neither ANONYMOUS nor PLAIN gets one."""
        raise SaslError(f"a challenge of {len(challenge)} bytes came, and none was expected")


class SaslClient:
    """One dialogue: send `output` and feed the received bytes until `feed` returns the first bytes of AMQP."""

    def __init__(self, login: ClientMechanism | Credentials, hostname: str | None = None) -> None:
        self._given = login
        self._login: ClientMechanism = Login()
        self._hostname = hostname
        self._reader = FrameReader(_MAX_FRAME)
        self._start: bytes | None = b""
        self._output = bytearray(SASL_HEADER)

    def output(self) -> bytes:
        """Remove and return the bytes that are to be sent."""
        data = bytes(self._output)
        self._output.clear()
        return data

    def feed(self, data: bytes) -> bytes | None:
        """Process what the server sent. Returns the bytes after a successful dialogue, None while it continues.

        Raises `NotAuthenticated` if the server refuses the login, `SaslError` if it violates the protocol.
        """
        if self._start is not None:
            self._start += data
            if not SASL_HEADER.startswith(self._start[:8]):
                begins = self._start[:8].decode("latin-1")
                raise SaslError(f"the server begins with {begins!r}, not with the SASL header: it speaks no AMQP 1.0")
            if len(self._start) < 8:
                return None
            data, self._start = self._start[8:], None
        self._reader.add(data)
        try:
            while (frame := self._reader.next()) is not None:
                if self._step(frame):
                    return self._reader.rest
        except DecodeError as error:
            raise SaslError(str(error)) from error
        return None

    def _step(self, frame: Frame) -> bool:
        if frame.type != SASL_FRAME:
            raise SaslError(f"a frame of type {frame.type} in the SASL dialogue")
        performative, _ = read_body(frame.body, SaslPerformative)
        match performative:
            case Mechanisms():
                offered = performative.sasl_server_mechanisms
                self._login = self._given.among(offered) if isinstance(self._given, Credentials) else self._given
                init = self._login.init(self._hostname)
                if init.mechanism not in offered:
                    raise NotAuthenticated(f"{init.mechanism} is not offered ({', '.join(offered)})", SaslCode.AUTH)
                self._output += sasl_frame(init)
                return False
            case Challenge():
                response = self._login.respond(performative.challenge)
                self._output += sasl_frame(Response(response=response))
                return False
            case SaslOutcome():
                if performative.code == SaslCode.OK:
                    return True
                raise NotAuthenticated("the server does not take these credentials", _code(performative.code))
            case _:
                raise SaslError(f"{performative.NAME} was not expected from the server")


def _code(number: int) -> SaslCode:
    try:
        return SaslCode(number)
    except ValueError:
        return SaslCode.SYS
