"""One client connection: its socket, what lies between socket and AMQP (TLS, SASL), its endpoint, and what it attached.

`receive` and `flush` are the two moves of the loop. Nothing here decides anything about messages. Output that the
socket does not take waits in `backlog`; while it does, the connection is blocked and queues pass it over.

Written for speed where it says so: `flush` and the plain branch of `receive` run for every batch.
"""

from __future__ import annotations

import contextlib
import socket
from enum import Enum, auto
from typing import Final, Protocol, assert_never

from penstock_amqp.endpoint.buffers import INPUT_VIEW, OUTPUT_VIEW
from penstock_amqp.endpoint.endpoint import Endpoint
from penstock_amqp.endpoint.events import Event
from penstock_amqp.errors import WireError
from penstock_amqp.sasl.mechanisms import CredentialAnswer, Find, Question, Verify
from penstock_amqp.sasl.server import Authenticated, Refused, Result, SaslServer
from penstock_amqp.transports.tls import Wrapping
from penstock_broker.access.listeners import ListeningPort
from penstock_broker.access.users import Proof
from penstock_core.connection_open import Enforcement
from penstock_core.identity import Identity
from penstock_core.permissions import Need
from penstock_core.reason import Refuse

__all__ = ["Connection", "Door", "Phase"]

BUDGET: Final = 64
"""What a connection may ask for in a turn, as `endpoint.events.weight` weighs it; the rest waits for the next turns.
What came at once beyond it is paid for by turns without.
"""

MAX_EARLY: Final = 1024 * 1024
"""What a peer may send behind its Open while that is not answered."""

MAX_BACKLOG: Final = 4 * 1024 * 1024
"""Output that a peer may leave unread before we stop reading from it."""


class Phase(Enum):
    """Where a connection is in its life."""

    SASL = auto()
    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()
    """Our Close is on its way; the socket goes once it is out."""
    GONE = auto()


class Door(Protocol):
    """What answers the questions of SASL dialogues, now or later: `events.logins`."""

    def ask(self, connection: Connection, question: Question) -> CredentialAnswer | None:
        """The answer; None if it comes later, by `Connection.answered`."""
        ...

    def ended(self, connection: Connection, result: Authenticated | Refused) -> None:
        """A dialogue is over."""
        ...

    def broken(self, connection: Connection, error: WireError) -> None:
        """What lies below a connection's dialogue has failed."""
        ...


class Connection:
    """A connection that the loop serves. Fields are public to the modules of the broker."""

    __slots__ = (
        "asks_sole",
        "attached",
        "backlog",
        "container_id",
        "debt",
        "door",
        "due_ms",
        "endpoint",
        "enforcement",
        "events_mask",
        "fd",
        "granted",
        "granted_version",
        "groups",
        "has_opened",
        "hostname",
        "in_lobby",
        "is_behind",
        "is_blocked",
        "is_congested",
        "is_counted",
        "is_dirty",
        "is_held",
        "is_known",
        "login_ms",
        "number",
        "opened_us",
        "peer",
        "phase",
        "port",
        "proof",
        "properties",
        "sasl",
        "sessions",
        "sock",
        "temporary",
        "tls",
        "transactions",
        "turn_bytes",
        "unread",
        "user",
    )

    def __init__(
        self, number: int, sock: socket.socket, peer: str, port: ListeningPort, door: Door, tls: Wrapping | None
    ) -> None:
        self.number = number
        self.sock = sock
        self.fd = sock.fileno()
        self.peer = peer
        self.port = port
        self.door = door
        self.tls = tls
        self.is_known = False
        """Its dialogue is over: what comes is AMQP."""
        self.sasl: SaslServer | None = None
        """The dialogue, from the first byte on."""
        self.endpoint = Endpoint(
            max_frame=port.max_frame,
            idle_timeout_ms=port.idle_timeout_ms,
            max_message_bytes=port.max_message_bytes,
            max_sessions=port.max_sessions,
        )
        self.phase = Phase.SASL
        self.backlog = b""
        """Bytes that the socket did not take yet."""
        self.is_blocked = False
        self.is_behind = False
        """It is in the loop's list of connections with something unread."""
        self.is_held = False
        """It is not read until the log has synced what it brought."""
        self.is_congested = False
        """A peer's session window held messages back when a queue last looked."""
        self.is_dirty = False
        """It is in the broker's list of connections to flush."""
        self.turn_bytes = 0
        """Message bytes handed to the endpoint since the last flush."""
        self.debt = 0
        """What it asked for beyond its budget, at once: as many turns pass before it is read again."""
        self.unread = b""
        """AMQP bytes that came and wait for their turn; nothing is read from the socket meanwhile."""
        self.events_mask = 0
        self.in_lobby = False
        """Its descriptor is in the lobby's poll, not in the loop's."""
        self.is_counted = False
        """It is one of the open connections that `connection_limits` counts."""
        self.user = ""
        self.groups: frozenset[str] = frozenset()
        """What the user's token said; those of the settings come with the permissions."""
        self.granted: dict[Need, Refuse | None] = {}
        """What `permissions` answered, by its version of then."""
        self.granted_version = 0
        self.proof: Proof | None = None
        """What its login stands on; None if nothing can take that away."""
        self.container_id = ""
        self.hostname = ""
        self.properties: dict[str, str] = {}
        self.opened_us = 0
        self.due_ms = 0
        """When the endpoint wants its next tick (monotonic)."""
        self.login_ms = 0
        """When it has to be open at the latest."""
        self.has_opened = False
        """The peer's Open came."""
        self.asks_sole = False
        self.enforcement: Enforcement | None = None
        self.sessions = 0
        """Sessions numbered so far."""
        self.transactions: object = None
        """Its open transactions, see `state.open_transactions`; None unless it has attached a coordinator link."""
        self.attached: set[Identity] = set()
        """Subscriptions that remember this connection or one of its sessions as a user."""

        self.temporary: set[str] = set()
        """Names of the temporary queues and topics that its links made."""

    def receive(self, out: list[Event]) -> bool:
        """Go on with what was read, or read once from the socket; False if there is nothing more to expect from it."""
        if self.debt > 0:
            self.debt -= BUDGET
            return True
        if self.has_unread:
            return self._go_on_reading(out)
        try:
            size = self.sock.recv_into(INPUT_VIEW)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        if size == 0:
            return False
        if self.tls is None and self.is_known:
            taken = self.endpoint.receive(size, out, BUDGET)
            self.debt = -self.endpoint.left
            if taken < size:
                self.unread += INPUT_VIEW[taken:size].tobytes()
            return not self._says_too_much_early
        return self._receive_wrapped(INPUT_VIEW[:size].tobytes(), out)

    @property
    def _says_too_much_early(self) -> bool:
        return self.endpoint.is_awaited and len(self.unread) > MAX_EARLY

    @property
    def has_unread(self) -> bool:
        """Something that came waits for its turn: `receive` goes on with it."""
        if self.endpoint.is_awaited:
            return False
        return bool(self.unread) or (self.tls is not None and self.tls.has_more)

    def _go_on_reading(self, out: list[Event]) -> bool:
        if not self.unread:
            return self._receive_wrapped(b"", out)
        data, self.unread = self.unread, b""
        self._take(data, out)
        return self.tls is None or not self.tls.has_ended

    def _take(self, data: bytes, out: list[Event]) -> None:
        self.unread += data[self.endpoint.receive_bytes(data, out, BUDGET) :]
        self.debt = -self.endpoint.left

    def _receive_wrapped(self, data: bytes, out: list[Event]) -> bool:
        if self.tls is not None:
            try:
                data = self.tls.feed(data)
            except WireError as error:
                self.door.broken(self, error)
                with contextlib.suppress(WireError):  # what lies below may be broken too
                    self.backlog += self.tls.output()
                self._send_backlog()
                return False
            self.backlog += self.tls.output()
            self._send_backlog()
        if self.is_known:
            self._take(data, out)
        elif data and not self._dialogue(data, out):
            return False
        return (self.tls is None or not self.tls.has_ended) and not self._says_too_much_early

    def _dialogue(self, data: bytes, out: list[Event]) -> bool:
        if self.sasl is None:
            table = self.port.table(self.tls.peer_certificate if self.tls is not None else None)
            self.sasl = SaslServer(table, without_sasl="ANONYMOUS" in table)
        return self._go_on(self.sasl, self.sasl.feed(data), out)

    def answered(self, answer: CredentialAnswer, out: list[Event]) -> bool:
        """The question of the dialogue was answered; False if the socket is broken."""
        return self.sasl is None or self._go_on(self.sasl, self.sasl.answer(answer), out)

    def _go_on(self, sasl: SaslServer, result: Result, out: list[Event]) -> bool:
        while isinstance(result, Verify | Find):
            answer = self.door.ask(self, result)
            if answer is None:
                break
            result = sasl.answer(answer)
        if isinstance(result, Authenticated | Refused):
            self.door.ended(self, result)
        is_sound = self._write(sasl.output())
        match result:
            case Authenticated():
                self.user, self.groups = result.user, frozenset(result.groups)
                self.sasl, self.is_known = None, True
                self.phase = Phase.OPENING
                if self.tls is not None:
                    self.tls.known()
                self._take(result.rest, out)
            case Refused():
                self.sasl = None
                self.phase = Phase.CLOSING
            case Verify() | Find() | None:
                pass
            case _:
                assert_never(result)
        return is_sound

    @property
    def peer_host(self) -> str:
        """The peer's network address, without its port."""
        return self.peer.rpartition(":")[0] or self.peer

    def flush(self) -> bool:
        """Send what there is to send; False if the socket is broken. Sets `is_blocked`."""
        self.is_dirty = False
        self.turn_bytes = 0
        if self.backlog and not self._send_backlog():
            return False
        endpoint = self.endpoint
        if endpoint.needs_rewriting and not self._write(endpoint.rewritten_output()):
            return False
        while size := endpoint.output():
            if self.tls is not None or self.backlog:
                if not self._write(OUTPUT_VIEW[:size].tobytes()):
                    return False
                continue
            try:
                sent = self.sock.send(OUTPUT_VIEW[:size])
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                return False
            if sent < size:
                self.backlog = OUTPUT_VIEW[sent:size].tobytes()
        if endpoint.broken:
            return False
        if endpoint.has_echoes and not self._write(endpoint.echoes()):
            return False
        self.is_blocked = bool(self.backlog)
        return True

    def _write(self, data: bytes) -> bool:
        """Send bytes of AMQP or SASL behind what waits already; False if the socket is broken."""
        if self.tls is not None:
            self.tls.send(data)
            data = self.tls.output()
        self.backlog += data
        return self._send_backlog()

    def _send_backlog(self) -> bool:
        try:
            sent = self.sock.send(self.backlog) if self.backlog else 0
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            return False
        self.backlog = self.backlog[sent:]
        self.is_blocked = bool(self.backlog)
        return True

    def send_heartbeat(self) -> None:
        """An empty frame, which a live peer's kernel acknowledges (decision 13's probe)."""
        self._write(b"\x00\x00\x00\x08\x02\x00\x00\x00")

    def free(self) -> None:
        """Close the socket and give everything back."""
        if self.tls is not None and self.phase is Phase.CLOSING and not self.backlog:
            self.tls.close()
            with contextlib.suppress(OSError, WireError):  # a farewell is not worth waiting for
                self.sock.send(self.tls.output())
        self.phase = Phase.GONE
        self.unread = b""
        self.endpoint.free()
        self.attached.clear()
        self.sock.close()
