"""The messages of one connection on proton's C engine, in Python: the `Engine` of `endpoint.engine`.

Written for speed: `drain`, `send` and `accept` carry every message.

Rules of proton 0.40 that hold here: an incoming delivery is advanced as soon as it is read, or its link stands still
while the accept is deferred; addresses are reused, so a pointer leaves its dict before the object is freed;
`pn_event_delivery` is NULL for events of other kinds, which saves asking for the kind; proton raises flows for our own
transfers. This module must not know sessions, attaches, queues or subscriptions. Source: AMQP 1.0 part 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from penstock_amqp.endpoint.buffers import FREED, MESSAGE, NULL, OUTPUT, OUTPUT_BYTES, Ptr, at, unpack
from penstock_amqp.endpoint.engine import BareKind, Notice, NoticeKind, Pushed, SocketEngine, Unsent
from penstock_amqp.endpoint.events import DATA, Arrival, Entry, Event, EventKind, Held
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_amqp.endpoint.proton import ffi
from penstock_amqp.endpoint.proton.connection import ProtonConnection
from penstock_amqp.endpoint.proton.ffi import (
    ACCEPTED,
    TAG,
    TAG_VIEW,
    collector_peek,
    delivery,
    delivery_link,
    delivery_partial,
    delivery_pending,
    delivery_readable,
    delivery_remote_state,
    delivery_settle,
    delivery_settled,
    delivery_update,
    event_delivery,
    event_type,
    link_advance,
    link_credit,
    link_current,
    link_is_sender,
    link_recv,
    link_send,
    pop_event,
    transport_peek,
    transport_pop,
)
from penstock_amqp.frames.input_tap import InputTap
from penstock_amqp.messages.message_head import is_streamed
from penstock_amqp.messages.transaction_types import TransactionalState

__all__ = ["NOTICES", "ProtonEngine"]

SESSIONS_AT_ONCE: Final = 16
"""Sessions that are opened before proton writes. With no channel left, proton would never write again."""

MANY_SENT: Final = 10_000
"""More messages than this have been sent: the memory of their deliveries, which proton keeps for later ones, takes
milliseconds to free."""

# Names of the module cost less than members of an enum, which are looked up in its class each time.
_MESSAGES: Final = EventKind.MESSAGES
_ACCEPTED_RUN: Final = EventKind.ACCEPTED
_TRANSACTIONAL: Final = TransactionalState.CODE
_ARRIVAL: Final = NoticeKind.ARRIVAL
_OUTCOME: Final = NoticeKind.OUTCOME


def _no_pointer(_: Ptr) -> Ptr:
    return NULL


NOTICES: Final[dict[int, tuple[BareKind, Callable[[Ptr], Ptr]]]] = {
    ffi.LINK_FLOW: (NoticeKind.FLOW, ffi.event_link),
    ffi.LINK_REMOTE_OPEN: (NoticeKind.LINK_OPENED, ffi.event_link),
    ffi.LINK_REMOTE_DETACH: (NoticeKind.LINK_DETACHED, ffi.event_link),
    ffi.LINK_REMOTE_CLOSE: (NoticeKind.LINK_CLOSED, ffi.event_link),
    ffi.SESSION_REMOTE_OPEN: (NoticeKind.SESSION_OPENED, ffi.event_session),
    ffi.SESSION_REMOTE_CLOSE: (NoticeKind.SESSION_CLOSED, ffi.event_session),
    ffi.CONNECTION_REMOTE_OPEN: (NoticeKind.CONNECTION_OPENED, _no_pointer),
    ffi.CONNECTION_REMOTE_CLOSE: (NoticeKind.CONNECTION_CLOSED, _no_pointer),
    ffi.TRANSPORT_ERROR: (NoticeKind.FAILED, _no_pointer),
    ffi.TRANSPORT_TAIL_CLOSED: (NoticeKind.FAILED, _no_pointer),
}
"""Events of proton's that are handed to the user, and the function that gives the pointer of the notice."""


class ProtonEngine:
    """Carries the messages of a `ProtonConnection`. One call at a time over all engines of the process."""

    __slots__ = (
        "_collector",
        "_has_notice",
        "_kept",
        "_tag",
        "_transport",
        "aside",
        "frame_bytes",
        "has_failed",
        "has_recalled",
        "push",
        "receivers",
        "room",
        "told",
        "unconfirmed",
        "unsettled",
        "unwritten_sessions",
    )

    def __init__(self, connection: ProtonConnection) -> None:
        """Whoever made `connection` frees it, once the engine is not used any more."""
        self._transport = connection.transport
        self._collector = connection.collector
        self._tag: int = 0
        self._has_notice = False
        """The first event of the collector is the notice that `drain` returned."""
        self._kept: set[Ptr] = set()
        """Links on whose objects we hold on."""
        # Proton's functions themselves: a long message pushes hundreds of pieces.
        self.room: partial[int] = partial(ffi.transport_capacity, connection.transport)
        self.push: partial[int] = partial(ffi.transport_push, connection.transport)
        self.receivers: dict[Ptr, InLink] = {}
        self.unsettled: dict[Ptr, Held] = {}
        self.aside: dict[Ptr, Held | None] = {}
        self.has_recalled = False
        self.unconfirmed: dict[Ptr, InLink] = {}
        self.frame_bytes = 0
        self.unwritten_sessions = 0
        self.has_failed = False
        self.told: Any = None

    def sockets(self) -> SocketEngine | None:
        """See `Engine.sockets`."""
        return None

    def free(self) -> None:
        """The connection is about to be freed: forget every pointer."""
        for kept in self._kept:
            ffi.decref(kept)
        self._kept.clear()
        self._transport = self._collector = FREED
        self.room = partial(ffi.transport_capacity, FREED)
        self.push = partial(ffi.transport_push, FREED)
        self.receivers.clear()
        self.unsettled.clear()
        self.aside.clear()
        self.unconfirmed.clear()

    def drain(self, out: list[Event]) -> Notice | None:
        """Append the events of the pushed bytes to `out` up to the next notice, and return the notice; None if there is
        none.
        """
        collector = self._collector
        receivers = self.receivers
        take_unsettled = self.unsettled.pop
        batch_link: InLink | None = None
        batch: list[Arrival] = []
        held_link: OutLink | None = None
        held_batch: list[Held] = []
        if self._has_notice:
            self._has_notice = False
            pop_event(collector)
        if out:
            last = out[-1]  # go on with the batch of the call before, if nothing else came between
            if last[0] is _MESSAGES and not last[1].unproven:
                batch_link, batch = last[1], last[2]
            elif last[0] is _ACCEPTED_RUN:
                held_link, held_batch = last[1], last[2]
        while event := collector_peek(collector):
            received = event_delivery(event)
            if not received:
                notice = NOTICES.get(event_type(event))
                if notice is not None:
                    self._has_notice = True
                    return notice[0], notice[1](event), None
            elif held := take_unsettled(received, None):
                if delivery_remote_state(received) != ACCEPTED or not delivery_settled(received):
                    self._has_notice = True
                    return _OUTCOME, received, held
                if held[0] is held_link:
                    delivery_settle(received)
                    held_batch.append(held)
                else:
                    delivery_settle(received)
                    held_link, held_batch, batch_link = held[0], [held], None
                    out.append((_ACCEPTED_RUN, held_link, held_batch))
            elif delivery_readable(received):
                link = receivers.get(delivery_link(received))
                is_in_parts = delivery_partial(received) or (link is not None and link.partial.delivery is not None)
                if link is None or link.unproven or is_in_parts or link_credit(link.ptr) <= 0:
                    self._has_notice = True
                    return _ARRIVAL, received, 0
                size = link_recv(link.ptr, MESSAGE, link.read_bytes)
                if size >= link.read_bytes or size < 0:
                    self._has_notice = True
                    return _ARRIVAL, received, max(size, 0)
                data = unpack(MESSAGE, size)
                link_advance(link.ptr)
                if link is not batch_link:
                    batch_link, batch, held_link = link, [], None
                    out.append((_MESSAGES, link, batch))
                batch.append((received, data, delivery_settled(received)))
            elif self.aside and self.aside.get(received) is not None:
                self.recall(received)
                continue  # it is in `unsettled` now
            elif self.unconfirmed and received in self.unconfirmed:
                self._has_notice = True
                return NoticeKind.STATE, received, None
            elif link_is_sender(to := delivery_link(received)) and (
                delivery_pending(received) or link_current(to) == received
            ):
                self._has_notice = True
                return NoticeKind.ASTRAY, received, None
            elif not link_is_sender(to) and delivery_remote_state(received) == _TRANSACTIONAL:
                self._has_notice = True
                return NoticeKind.CONTINUED, received, None
            pop_event(collector)
        return None

    def push_plain(self, start: int, size: int, tap: InputTap, out: list[Event]) -> Pushed | None:
        """Nothing is taken: `push` and `drain` do all."""
        return None

    def keep_told(self) -> None:
        """Nothing is told: `drain` does all."""

    def send(self, link: OutLink, entries: Iterable[Entry], now_us: int) -> Unsent | None:
        """Send `entries`, at most as many as the link's credit, which the caller counts down; None if all are sent."""
        ptr = link.ptr
        tag = self._tag
        unsettled = self.unsettled
        presettled = link.presettled
        most = self.frame_bytes
        rest = iter(entries)
        for entry in rest:
            tag = (tag + 1) & 0xFFFFFFFF
            TAG_VIEW[0] = tag
            sent = delivery(ptr, TAG)
            data = entry[DATA]
            size = len(data)
            if size > most and is_streamed(data):
                self._tag = tag
                return sent, entry, list(rest)
            link_send(ptr, data, size)
            link_advance(ptr)
            if presettled:
                delivery_settle(sent)
            else:
                unsettled[sent] = (link, entry, now_us)
        self._tag = tag
        return None

    def send_as(self, link: OutLink, entry: Entry, data: bytes, now_us: int) -> Ptr | None:
        """Send `data` in the place of the entry's own bytes. If it is streamed, nothing is sent, and its delivery is
        returned.
        """
        self._tag = (self._tag + 1) & 0xFFFFFFFF
        TAG_VIEW[0] = self._tag
        sent = delivery(link.ptr, TAG)
        if len(data) > self.frame_bytes and is_streamed(data):
            return sent
        link_send(link.ptr, data, len(data))
        link_advance(link.ptr)  # as `finish` does, without a call for each message
        if link.presettled:
            delivery_settle(sent)
        else:
            self._hold(sent, (link, entry, now_us))
        return None

    def begin(self, link: OutLink) -> Ptr:
        """See `Engine.begin`."""
        self._tag = (self._tag + 1) & 0xFFFFFFFF
        TAG_VIEW[0] = self._tag
        return delivery(link.ptr, TAG)

    def _hold(self, delivery: Ptr, held: Held) -> None:
        """The delivery was sent, or is recalled: it is in `unsettled` from now on."""
        self.unsettled[delivery] = held

    def recall(self, delivery: Ptr) -> None:
        """If the delivery is in `aside`, put it back into `unsettled`."""
        held = self.aside.get(delivery)
        if held is not None:
            self.aside[delivery] = None
            self._hold(delivery, held)
            self.has_recalled = True

    @property
    def has_sent_many(self) -> bool:
        """True if proton may keep the memory of very many deliveries, which it then frees all at once."""
        return self._tag > MANY_SENT

    def finish(self, delivery: Ptr, held: Held) -> None:
        """All bytes of a message are with the engine: treat its delivery as `send` treats others."""
        link = held[0]
        link_advance(link.ptr)
        if link.presettled:
            delivery_settle(delivery)
        else:
            self._hold(delivery, held)

    def accept(self, deliveries: Iterable[Ptr]) -> None:
        """Accept and settle deliveries that were received."""
        for received in deliveries:
            delivery_update(received, ACCEPTED)
            delivery_settle(received)

    def settle(self, deliveries: Iterable[Ptr]) -> None:
        """Settle deliveries without an outcome."""
        for received in deliveries:
            delivery_settle(received)

    def drop(self, deliveries: Iterable[Ptr]) -> None:
        """See `Engine.drop`. Where the peer still has the link, proton would wait for what was not sent of it before it
        writes our detach.
        """
        for sent in deliveries:
            ffi.delivery_abort(sent)

    def credit(self, link: InLink, count: int) -> None:
        """Let the peer send `count` messages more."""
        ffi.link_flow(link.ptr, count)

    def keep(self, link: InLink | OutLink) -> None:
        """Hold on to the object of a link until `forget` or `free`."""
        ffi.incref(link.ptr)
        self._kept.add(link.ptr)

    def forget(self, link: InLink | OutLink) -> None:
        """Drop every pointer that belongs to a link, which is about to be freed."""
        if link.ptr in self._kept:
            self._kept.remove(link.ptr)
            ffi.decref(link.ptr)
        if isinstance(link, InLink):
            self.receivers.pop(link.ptr, None)
            for ptr in [ptr for ptr, each in self.unconfirmed.items() if each is link]:
                del self.unconfirmed[ptr]
        elif ffi.link_unsettled(link.ptr):
            ended = [ptr for ptr, held in self.unsettled.items() if held[0] is link]
            for ptr in ended:
                del self.unsettled[ptr]
            for ptr, held in self.aside.items():
                if held is not None and held[0] is link:
                    self.aside[ptr] = None
                    ended.append(ptr)
            if not link.keeps_handle and ffi.link_queued(link.ptr):
                self.drop(ended)

    def open_session(self, session: Ptr) -> None:
        """Answer a Begin. It is written with the next output, or before the engine runs out of channels."""
        ffi.session_open(session)
        self.unwritten_sessions += 1
        if self.unwritten_sessions >= SESSIONS_AT_ONCE:
            # Sessions that ended meanwhile keep their channels until proton has written their End.
            transport_peek(self._transport, OUTPUT, 0)
            self.unwritten_sessions = 0

    def write(self) -> None:
        """Put what is to be sent into frames now, for `output`."""
        transport_peek(self._transport, OUTPUT, 0)
        self.unwritten_sessions = 0
        self._pass_over_own()

    def output(self) -> int:
        """Move what is to be sent into `buffers.OUTPUT`; return how many bytes. If they fill more than half of it,
        there may be more.
        """
        transport = self._transport
        filled = 0
        while filled < OUTPUT_BYTES:
            size = transport_peek(transport, at(OUTPUT, filled), OUTPUT_BYTES - filled)
            if size <= 0:
                self.has_failed = size < 0
                break
            transport_pop(transport, size)
            filled += size
        self.unwritten_sessions = 0
        self._pass_over_own()
        return filled

    def _pass_over_own(self) -> None:
        """Drop the flow events that proton raises for our own transfers: every flow that `drain` finds must be the
        peer's.
        """
        collector = self._collector
        self._has_notice = False
        while (event := collector_peek(collector)) and event_type(event) != ffi.TRANSPORT_ERROR:
            pop_event(collector)
