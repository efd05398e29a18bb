"""One client connection: its transport, its SASL dialogue, its AMQP endpoint, and what the broker knows of its client.

The loop calls `receive` when there is something to read and `flush` when there is something to send. Must not decide
anything about messages, links or permissions. While output waits in the transport, the connection is blocked, and
queues pass it over.

Written for speed: `flush` and the plain branch of `receive` run for every batch; dispatch and publish read the fields
that they need for each batch from `Connection` itself, everything else stands in a record of its own.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Final, Protocol, assert_never

from penstock_amqp.endpoint.buffers import INPUT_VIEW, OUTPUT_BYTES, OUTPUT_VIEW
from penstock_amqp.endpoint.endpoint import Endpoint
from penstock_amqp.endpoint.engine import Line
from penstock_amqp.endpoint.events import Event
from penstock_amqp.endpoint.links import PartialMemory
from penstock_amqp.errors import WireError
from penstock_amqp.sasl.mechanisms import CredentialAnswer, LookUpKeys, Question, Verify
from penstock_amqp.sasl.server import Authenticated, Refused, Result, SaslServer
from penstock_broker.access.connection_client import NOT_OPENED, ConnectionLogin
from penstock_broker.access.listeners import Listener
from penstock_broker.access.read_progress import BULK_BYTES, LONG_READ, READ_BYTES, TURN_BUDGET, ReadProgress, has_long
from penstock_broker.access.transport import Transport
from penstock_core.identity import Identity

__all__ = ["Authenticator", "Connection", "Phase"]

MAX_EARLY_BYTES: Final = 1024 * 1024
"""What a peer may send behind its Open while that is not answered."""

MAX_BACKLOG_BYTES: Final = 4 * 1024 * 1024
"""Output that a peer may leave unread before we stop reading from it."""

_HALF: Final = OUTPUT_BYTES // 2
_NOTHING_CAME: Final = (-errno.EAGAIN, -errno.EWOULDBLOCK, -errno.EINTR)

HEARTBEAT: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
"""An empty AMQP frame."""


class Phase(Enum):
    """How far a connection is, from accept to close."""

    SASL = auto()
    OPENING = auto()
    """Logged in; its Open has not come, or is not answered."""
    OPEN = auto()
    LEAVING = auto()
    """It is lost, or its client has closed it, and it ends over several turns: `attach.connection_end`."""
    CLOSING = auto()
    """Our Close is under way; the socket is closed once it is sent."""
    GONE = auto()


_OPEN: Final = Phase.OPEN
"""An attribute of an enum's class takes long to find."""


class Authenticator(Protocol):
    """What answers the questions of SASL dialogues, at once or later: `access.logins`."""

    def ask(self, connection: Connection, question: Question) -> CredentialAnswer | None:
        """The answer; None if it comes later, by `Connection.answered`."""
        ...

    def finished(self, connection: Connection, result: Authenticated | Refused) -> None:
        """A dialogue is over."""
        ...

    def transport_failed(self, connection: Connection, error: WireError) -> None:
        """TLS or WebSocket of a connection has failed."""
        ...


class Connection:
    """A connection that the loop serves. Fields are public to the modules of the broker."""

    __slots__ = (
        "authenticator",
        "client",
        "dropped_ms",
        "due_ms",
        "ending",
        "endpoint",
        "is_blocked",
        "is_congested",
        "is_dirty",
        "light_line",
        "line",
        "listener",
        "login",
        "number",
        "opened_us",
        "phase",
        "reading",
        "sessions",
        "subscriptions",
        "temporary",
        "transactions",
        "transport",
        "turn_bytes",
    )

    def __init__(
        self,
        number: int,
        transport: Transport,
        listener: Listener,
        authenticator: Authenticator,
        login: ConnectionLogin,
        incoming: PartialMemory | None = None,
    ) -> None:
        """`incoming`: what all connections have of messages of which some parts are still to come."""
        self.number = number
        self.transport = transport
        self.listener = listener
        self.authenticator = authenticator
        self.login = login
        self.endpoint = Endpoint(
            max_frame=listener.max_frame,
            idle_timeout_ms=listener.idle_timeout_ms,
            max_message_bytes=listener.max_message_bytes,
            max_sessions=listener.max_sessions,
            incoming=incoming,
        )
        self.phase = Phase.SASL
        self.client = NOT_OPENED
        self.opened_us = 0
        """When we answered the Open, microseconds since the epoch."""
        self.reading = ReadProgress()
        self.due_ms = 0
        """When the endpoint wants its next tick, milliseconds of the monotonic clock."""
        self.dropped_ms = 0
        """When it is dropped if its peer has not taken our Close; 0: there is none, or it was just sent."""
        self.is_blocked = False
        """Output waits in the transport: the socket takes no more now."""
        self.is_congested = False
        """A peer's session window held messages back when a queue last looked."""
        self.is_dirty = False
        """It is in the broker's list of connections to flush."""
        self.line: Line | None = None
        """How it is read and flushed together with others: of a plain socket, once the answer to the Open is sent."""
        self.light_line: Line | None = None
        """Its line, if its last read brought little, which was wholly taken in: so will the next, probably."""
        self.turn_bytes = 0
        """Message bytes handed to the endpoint since the last flush."""
        self.transactions: object = None
        """Its open transactions, see `state.open_transactions`; None unless it has attached a coordinator link."""
        self.ending: Iterator[None] | None = None
        """The steps of its end that are left, see `attach.connection_end`."""
        self.sessions = 0
        """Sessions numbered so far."""
        self.subscriptions: set[Identity] = set()
        """Subscriptions that remember this connection, or one of its sessions, as a user."""
        self.temporary: set[str] = set()
        """Names of the temporary queues and topics that its links made."""

    # -- input --------------------------------------------------------------------------------------------------------

    def receive(self, out: list[Event], most: int = READ_BYTES) -> bool:
        """Go on with what was read, or read once from the socket; False if there is nothing more to expect from it.

        `most`: bytes of a read, if messages are short.
        """
        reading = self.reading
        self.light_line = None
        if reading.debt > 0:
            reading.debt -= TURN_BUDGET
            return True
        transport = self.transport
        is_plain = transport.wrapping is None
        if (reading.unread or not is_plain) and self.has_unread:
            return self._go_on_reading(out)
        if reading.has_long:
            most *= LONG_READ
        endpoint = self.endpoint
        if is_plain and endpoint.input.is_quiet and endpoint.sockets is not None:
            return self.was_read(endpoint.sockets.read_plain(transport.fd, most, endpoint.input.tap, out), most, out)
        try:
            size = transport.sock.recv_into(INPUT_VIEW, most)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        if size == 0:
            return False
        reading.is_bulk = size >= BULK_BYTES
        if is_plain and self.login.is_authenticated:
            taken = endpoint.receive(size, out, TURN_BUDGET)
            reading.debt = -endpoint.input.left
            is_sound = True
            if taken < size:
                reading.unread += INPUT_VIEW[taken:size].tobytes()
                is_sound = not self._sent_too_much_early
        else:
            is_sound = self._receive_wrapped(INPUT_VIEW[:size].tobytes(), out)
        if size == most and self.login.is_authenticated:
            reading.has_long = not reading.unread and has_long(size, out, reading.has_long)
        return is_sound

    def was_read(self, read: int | tuple[int, object], most: int, out: list[Event]) -> bool:
        """Go on with what `SocketEngine.read_plain` returned for at most so many bytes; as `receive`."""
        reading, input = self.reading, self.endpoint.input
        self.light_line = None
        size = input.go_on(read, out, TURN_BUDGET)
        if size <= 0:
            return size in _NOTHING_CAME
        reading.is_bulk = size >= BULK_BYTES
        reading.debt = -input.left
        if input.taken < size:
            reading.unread += INPUT_VIEW[input.taken : size].tobytes()
        if size == most:
            reading.has_long = not reading.unread and has_long(size, out, reading.has_long)
        if input.is_quiet and not (reading.is_bulk or reading.has_long):
            self.light_line = self.line
        return True

    @property
    def _sent_too_much_early(self) -> bool:
        return self.endpoint.is_awaited and len(self.reading.unread) > MAX_EARLY_BYTES

    @property
    def has_unread(self) -> bool:
        """Something that came waits for its turn: `receive` goes on with it."""
        endpoint = self.endpoint
        is_held = endpoint.is_awaited or endpoint.input.awaits_end
        return (bool(self.reading.unread) or self.transport.has_more) and not is_held

    def _go_on_reading(self, out: list[Event]) -> bool:
        reading = self.reading
        if not reading.unread:
            return self._receive_wrapped(b"", out)
        data, reading.unread = reading.unread, b""
        self._receive_amqp(data, out)
        return not self.transport.has_ended

    def _receive_amqp(self, data: bytes, out: list[Event]) -> None:
        self.reading.unread += data[self.endpoint.receive_bytes(data, out, TURN_BUDGET) :]
        self.reading.debt = -self.endpoint.input.left

    def _receive_wrapped(self, data: bytes, out: list[Event]) -> bool:
        """Go on with bytes of TLS, WebSocket or SASL from the socket, or with those that TLS or WebSocket have kept."""
        try:
            data = self.transport.unwrap(data)
        except WireError as error:
            self.authenticator.transport_failed(self, error)  # logged before the peer gets the error
            self.transport.send_failure()
            return False
        finally:
            self.is_blocked = bool(self.transport.backlog)
        if self.login.is_authenticated:
            self._receive_amqp(data, out)
        elif data and not self._receive_sasl(data, out):
            return False
        return not self.transport.has_ended and not self._sent_too_much_early

    # -- the SASL dialogue --------------------------------------------------------------------------------------------

    def _receive_sasl(self, data: bytes, out: list[Event]) -> bool:
        dialogue = self.login.dialogue
        if dialogue is None:
            mechanisms = self.listener.table(self.transport.peer_certificate)
            dialogue = self.login.dialogue = SaslServer(mechanisms, without_sasl="ANONYMOUS" in mechanisms)
        return self._go_on(dialogue, dialogue.feed(data), out)

    def answered(self, answer: CredentialAnswer, out: list[Event]) -> bool:
        """The question of the dialogue was answered; False if the socket is broken."""
        dialogue = self.login.dialogue
        return dialogue is None or self._go_on(dialogue, dialogue.answer(answer), out)

    def _go_on(self, dialogue: SaslServer, result: Result, out: list[Event]) -> bool:
        while isinstance(result, Verify | LookUpKeys):
            answer = self.authenticator.ask(self, result)
            if answer is None:
                break
            result = dialogue.answer(answer)
        if isinstance(result, Authenticated | Refused):
            self.authenticator.finished(self, result)
        is_sound = self._write(dialogue.output())
        login = self.login
        match result:
            case Authenticated():
                login.user, login.groups = result.user, frozenset(result.groups)
                login.dialogue, login.is_authenticated = None, True
                self.phase = Phase.OPENING
                self.transport.authenticated()
                self._receive_amqp(result.rest, out)
            case Refused():
                login.dialogue = None
                self.phase = Phase.CLOSING
            case Verify() | LookUpKeys() | None:
                pass
            case _:
                assert_never(result)
        return is_sound

    # -- output -------------------------------------------------------------------------------------------------------

    def flush(self) -> bool:
        """Send what there is to send; False if the socket is broken. Sets `is_blocked`."""
        self.is_dirty = False
        self.turn_bytes = 0
        transport, endpoint = self.transport, self.endpoint
        if transport.backlog and not transport.send_backlog():
            return False
        if endpoint.changes.are_pending and not transport.write(endpoint.rewritten_output()):
            return False
        size = OUTPUT_BYTES
        if endpoint.sockets is not None and transport.wrapping is None and not transport.backlog:
            left = endpoint.sockets.send_output(transport.fd)
            if left is None and not endpoint.flows.owed:  # nearly always
                self.is_blocked = False
                return True
            if left is not None:
                return self.keep(left)
            size = 0
        return self._send_rest(size)

    def keep(self, left: tuple[int, int]) -> bool:
        """Go on as `flush`, behind a call of `SocketEngine.send_output` that returned this."""
        size, sent = left
        if not self.transport.sent(OUTPUT_VIEW[:size], sent):
            return self._drop_output()
        return self._send_rest(size)

    def _send_rest(self, size: int) -> bool:
        """`size`: bytes of the output that was taken last."""
        transport, endpoint = self.transport, self.endpoint
        while size > _HALF and (size := endpoint.output()):
            if not transport.send(OUTPUT_VIEW[:size]):
                return self._drop_output()
        owed = endpoint.flows.owed
        if (owed or endpoint.engine.has_failed) and (
            endpoint.broken or (owed and not transport.write(endpoint.echoes()))
        ):
            return False
        self.is_blocked = bool(transport.backlog)
        return True

    def _drop_output(self) -> bool:
        """The socket is broken: the rest of the output may begin within a frame, where nothing can be rewritten."""
        while self.endpoint.output():
            pass
        return False

    def _write(self, data: bytes) -> bool:
        is_sound = self.transport.write(data)
        self.is_blocked = bool(self.transport.backlog)
        return is_sound

    def send_heartbeat(self) -> None:
        """Send an empty frame, which the kernel of a live peer acknowledges (see `Transport.is_acknowledged`).

        Source: docs/decisions/013-container-uniqueness.md.
        """
        self._write(HEARTBEAT)

    def free(self, free_endpoint: Callable[[Connection], None] | None = None) -> None:
        """Give everything back but the socket. `free_endpoint`: has the endpoint freed, now or later."""
        self.phase = Phase.GONE
        self.line = self.light_line = None
        self.reading.unread = b""
        if free_endpoint is not None:
            free_endpoint(self)
        else:
            self.endpoint.free()
        self.subscriptions.clear()
