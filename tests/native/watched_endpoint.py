"""An endpoint with a user that answers everything at once, and notes all that can be seen of it.

Two of them, with different engines and the same input, have to note the same.
"""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from dataclasses import replace
from typing import Any

from penstock_amqp.endpoint import buffers
from penstock_amqp.endpoint.endpoint import Endpoint
from penstock_amqp.endpoint.events import (
    DATA,
    NUMBER,
    AcceptedUnsettled,
    AcquisitionRequested,
    Attached,
    ConnectionClosed,
    Detached,
    Entry,
    Event,
    EventKind,
    Flowed,
    Held,
    Opened,
    Other,
    SessionEnded,
    Settled,
    TooLarge,
)
from penstock_amqp.endpoint.input import UNBOUNDED
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_amqp.endpoint.proton.connection import ProtonConnection
from penstock_amqp.endpoint.proton.engine import ProtonEngine
from penstock_amqp.frames.frames import HEAD_BYTES
from penstock_amqp.frames.performatives import Close, Source, Target

__all__ = ["MAX_FRAME", "MAX_MESSAGE", "WatchedEndpoint"]

MAX_FRAME = 16_384
MAX_MESSAGE = 40_000
AT_ONCE = 3
"""Deliveries that a slice of a withdrawal looks at."""
SOCKET_BYTES = 100_000
"""So much fits a pair of sockets."""
SENT_BYTES = (0, 1, 100, 5000, 300, 20_000, 253)
"""Lengths of the messages that are sent, in turn; the number of the message comes before."""
_CLOSE = bytes((0x00, 0x53, Close.CODE))
_PLACE = re.compile(rb"A frame can't be read: [^)]*\(at byte \d+\)")
"""Said of a frame behind one at which proton fails. It depends on the pieces that proton gets, which are one byte
shorter if compiled code gives them."""


class WatchedEndpoint:
    """`notes` has what was told since the last `feed` began."""

    def __init__(self, kind: type[ProtonEngine], *, over_socket: bool = False) -> None:
        """`over_socket`: what may be read from, and written to, a socket by the engine itself is."""
        made: list[ProtonEngine] = []

        def make(connection: ProtonConnection) -> ProtonEngine:
            made.append(kind(connection))
            return made[0]

        self.endpoint = Endpoint(max_frame=MAX_FRAME, max_message_bytes=MAX_MESSAGE, make_engine=make)
        self.engine = made[0]
        self._ours, self._theirs = socket.socketpair()
        for sock in (self._ours, self._theirs):
            sock.setblocking(False)
        self._is_over_socket = over_socket
        self.read_quietly = 0
        """Bytes of reads of which the endpoint told at once."""
        self.notes: list[Any] = []
        self.is_over = self._has_broken_off = False
        self._sent = 0
        self._leaving: list[OutLink] = []
        self._unread = b""

    def free(self) -> None:
        self.endpoint.free()
        self._ours.close()
        self._theirs.close()

    def feed(self, data: bytes) -> list[Any]:
        """Give it more bytes, answer what it tells, and return what was seen."""
        self.notes = []
        self._unread += data
        while not self.is_over:
            events: list[Event] = []
            try:
                taken = self._receive(events)
            except Exception as error:
                self.is_over = True
                self.notes.append((type(error).__name__, str(error)))
                break
            self._unread = self._unread[taken:]
            self._look(events)
            self._withdraw()
            self._output()
            if not taken or not self._unread:
                break
        return self.notes

    def _receive(self, events: list[Event]) -> int:
        """Give the endpoint what is unread, or let it read that from a socket; how many bytes it took."""
        part = self.endpoint.input
        if not self._is_over_socket or not part.is_quiet or not 0 < len(self._unread) <= SOCKET_BYTES:
            return self.endpoint.receive_bytes(self._unread, events)
        assert self._theirs.send(self._unread) == len(self._unread)
        sockets = self.endpoint.sockets
        assert sockets is not None
        came: list[list[Event]] = []
        line = sockets.line(self._ours.fileno())
        read = sockets.read_together([line], SOCKET_BYTES, SOCKET_BYTES, came)
        events += came[0]
        if read is None:
            assert [event[0] in (EventKind.MESSAGES, EventKind.ACCEPTED) for event in events] == [True]
            self.read_quietly += len(self._unread)
            return len(self._unread)
        assert part.go_on(read, events, UNBOUNDED) == len(self._unread)
        if part.is_quiet:
            self.read_quietly += part.taken
        return part.taken

    @property
    def has_broken_off(self) -> bool:
        """The last `feed` ended the connection with an error."""
        return self._has_broken_off

    def _look(self, events: list[Event]) -> None:
        for event in events:
            if event[0] is EventKind.MESSAGES:
                link = event[1]
                self.notes.append(("messages", link.name, [(data, settled) for _, data, settled in event[2]]))
                if link.is_open:
                    self.endpoint.accept([delivery for delivery, _, settled in event[2] if not settled])
                    self.endpoint.settle([delivery for delivery, _, settled in event[2] if settled])
            elif event[0] is EventKind.ACCEPTED:
                self.notes.append(("accepted", event[1].name, list(map(_told, event[2]))))
            else:
                self._answer(event[2])
        tap = self.endpoint.input.tap
        held = b"".join(tap._held)  # pyright: ignore[reportPrivateUsage]
        assert len(held) == tap.held
        kept = self.endpoint.input._gate.kept  # pyright: ignore[reportPrivateUsage]
        self.notes.append(("left", held + kept + self._unread))  # who has which part of it depends on the pieces
        self.notes.append(("unsettled", list(map(_told, self.engine.unsettled.values()))))
        self.notes.append(("owed", len(self.endpoint.flows.owed)))
        self.notes.append(("counts", len(self.engine.unconfirmed), len(self.engine.aside), len(self.engine.receivers)))

    def _answer(self, other: Other) -> None:
        endpoint = self.endpoint
        match other:
            case Opened():
                self.notes.append(other)
                endpoint.open("broker", (), {})
            case Attached(link, attach):
                self.notes.append(("attached", link.name, attach))
                self._output()
                second = attach.rcv_settle_mode == 1
                if isinstance(link, InLink):
                    endpoint.attach_reply(link, source=None, target=Target(address="t"), settles_second=second)
                    endpoint.credit(link, 1000)
                else:
                    settled = attach.snd_settle_mode == 1
                    endpoint.attach_reply(
                        link,
                        source=Source(address="q"),
                        target=Target(),
                        settles_second=second,
                        sends_settled=settled,
                    )
            case Flowed(link):
                self.notes.append(("flowed", link.name, link.credit, link.drain))
                self._send(link)
            case Detached(link, closed, error):
                self.notes.append(("detached", link.name, closed, error))
                if isinstance(link, OutLink) and endpoint.unsettled.count_on(link) > AT_ONCE:
                    endpoint.unsettled.withdraw(link)
                    self._leaving.append(link)
                else:
                    endpoint.detach(link, closed=closed)
            case SessionEnded(session):
                self.notes.append(("ended", session.channel))
                self._leaving = [link for link in self._leaving if link.session is not session]
                endpoint.end(session)
            case AcceptedUnsettled(held):
                self.notes.append(("accepted unsettled", _told(held)))
                endpoint.unsettled.confirm(other)
            case Settled(held):
                told = replace(other, held=(None, (), 0), delivery=None)  # type: ignore[arg-type]
                self.notes.append((told, _told(held), other.delivery is None))
                if other.delivery is not None:
                    endpoint.unsettled.confirm(other)
            case TooLarge(link):
                self.notes.append(("too large", link.name))
                endpoint.detach(link, closed=True)
            case ConnectionClosed(error):
                self._has_broken_off = error is not None
                self.notes.append(
                    ("closed", error and (error.condition, _PLACE.sub(b"", (error.description or "").encode())))
                )
                self.is_over = True
            case AcquisitionRequested(link, txn_id):
                self.notes.append(("acquisition", link.name, txn_id))
            case _:
                self.notes.append(type(other).__name__)

    def _send(self, link: OutLink) -> None:
        entries: list[Entry] = []
        while link.credit > 0 and len(entries) < 200:
            self._sent += 1
            data = b"%d " % self._sent + bytes(SENT_BYTES[self._sent % len(SENT_BYTES)])
            entries.append((self._sent, data, 0, 0, 0))
            link.credit -= 1
        self.endpoint.send(link, entries, self._sent)
        if link.drain:
            self.endpoint.drained(link)

    def _withdraw(self) -> None:
        if self._leaving:
            step = self.endpoint.unsettled.withdrawn(AT_ONCE)
            self.notes.append(("withdrawn", list(map(_told, step.held)), [link.name for link in step.links]))
            for link in step.links:
                self._leaving.remove(link)
                self.endpoint.detach(link, closed=True)

    def _output(self) -> None:
        written: list[bytes] = []
        if self.endpoint.changes.are_pending:
            written.append(self.endpoint.rewritten_output())
        if self._is_over_socket:
            self._send_output(written)
        while size := self.endpoint.output():
            written.append(buffers.OUTPUT_VIEW[:size].tobytes())
        self.notes.append(
            (_without_place(b"".join(written)), self.engine.has_failed, self.endpoint.closed, self.endpoint.broken)
        )

    def _send_output(self, written: list[bytes]) -> None:
        sockets = self.endpoint.sockets
        assert sockets is not None
        left: tuple[int, int] | None = (1, 0)
        while left is not None and left[0]:
            found = sockets.send_outputs([sockets.line(self._ours.fileno())])
            left = None if found is None else found[1]
            with suppress(BlockingIOError):
                while part := self._theirs.recv(1 << 20):
                    written.append(part)
            if left is not None:
                written.append(buffers.OUTPUT_VIEW[max(left[1], 0) : left[0]].tobytes())


def _without_place(written: bytes) -> bytes:
    """What was written, up to a Close that names such a place."""
    return written[: written.index(_CLOSE) - HEAD_BYTES] if _PLACE.search(written) else written


def _told(held: Held) -> tuple[str, int, bytes, int]:
    link, entry, sent = held
    return link.name, entry[NUMBER], entry[DATA], sent
