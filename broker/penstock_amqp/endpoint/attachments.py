"""The sessions and links of one connection: begun and attached by the peer, found by what its frames name.

This module must not know queues or subscriptions. Source: AMQP 1.0 part 2, 2.5 and 2.6.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock_amqp.endpoint.buffers import FREED, MESSAGE_BYTES, Ptr
from penstock_amqp.endpoint.engine import Engine
from penstock_amqp.endpoint.events import Attached, Detached, Event, EventKind, SessionEnded
from penstock_amqp.endpoint.links import GATHERED_BYTES, InLink, OutLink, PartialMemory, Session
from penstock_amqp.endpoint.output_changes import PendingChanges
from penstock_amqp.endpoint.proton import deliveries, links
from penstock_amqp.frames import protocol_checks
from penstock_amqp.frames.input_gate import InputGate
from penstock_amqp.frames.input_tap import InputTap, TappedFlow

__all__ = ["SESSION_FRAMES", "Attachments", "take_up_to"]

SESSION_FRAMES: Final = 32_768
"""Incoming window of a session in frames. It is no limit (everything is read at once, and link credit is the limit), so
it is wide enough never to hold a sender back. It must stay above the credit of all links of a session: at a window of 0
the engine names detached links in its flows.
"""


def take_up_to(link: InLink, max_bytes: int) -> None:
    """Accept messages of up to `max_bytes` bytes on a link."""
    link.max_bytes = max_bytes
    link.read_bytes = min(max_bytes + 1, MESSAGE_BYTES)


class Attachments:
    """What the peer has begun and attached, by the engine's pointers and by the peer's channels and handles."""

    __slots__ = (
        "_by_handle",
        "_changes",
        "_ending",
        "_engine",
        "_gate",
        "_links",
        "_max_frame",
        "_max_message_bytes",
        "_memory",
        "_sessions",
        "_tap",
        "channels",
    )

    def __init__(
        self,
        engine: Engine,
        tap: InputTap,
        gate: InputGate,
        changes: PendingChanges,
        *,
        max_frame: int,
        max_message_bytes: int,
        max_sessions: int,
        incoming: PartialMemory | None,
    ) -> None:
        """`max_frame`: the longest frame that we accept, in bytes; `max_message_bytes`: the longest message that we
        accept on a link whose attach is not answered yet. `max_sessions`: those that there may be at once. `incoming`:
        see `Endpoint`.
        """
        self.channels = max_sessions
        """So many channels we may use; the peer's Open may allow fewer."""
        self._ending = 0
        """Sessions that the peer has ended, and whose channel is not free before their end is answered."""
        self._engine = engine
        self._tap = tap
        self._gate = gate
        self._changes = changes
        self._max_frame = max_frame
        self._max_message_bytes = max_message_bytes
        self._memory = PartialMemory(GATHERED_BYTES, incoming)
        self._links: dict[Ptr, InLink | OutLink] = {}
        self._sessions: dict[Ptr, Session] = {}
        self._by_handle: dict[tuple[int, int], InLink | OutLink] = {}
        """Links by the peer's channel and handle."""

    def begin(self, ptr: Ptr, *, is_open: bool) -> None:
        """The peer began a session: answer it. `is_open`: the peer's Open came before. Raises `ProtocolError`."""
        begin = self._tap.take_begin()
        channel = begin.channel
        protocol_checks.check_begin(channel, {each.channel for each in self._sessions.values()}, is_open=is_open)
        protocol_checks.check_channel_left(len(self._sessions) + self._ending, self.channels)
        self.set_window(ptr)
        session = Session(ptr, channel)
        session.handle_max = begin.handle_max
        self._sessions[ptr] = session
        self._hold_begins()
        self._changes.begin(session)
        self._engine.open_session(ptr)

    def set_window(self, session: Ptr) -> None:
        """Set the incoming window of a session. Setting it again makes the engine write a flow of the session.

        What came of a message behind the end of its link can't be read, and would make the window smaller for good.
        """
        links.set_session_capacity(session, SESSION_FRAMES * self._max_frame + links.unread_bytes(session))

    def attach(self, ptr: Ptr, peer_max_frame: int, out: list[Event]) -> None:
        """The peer attached a link. `peer_max_frame`: the longest frame that the peer accepts. Raises
        `ProtocolError`.
        """
        name = links.name_of(ptr)
        tapped = self._tap.take_attach(name)
        attach = tapped.attach
        before = self._by_handle.get((tapped.channel, attach.handle))
        protocol_checks.check_attach(tapped.channel, attach, handle_in_use=before is not None and before.keeps_handle)
        protocol_checks.check_reply_fits(tapped.channel, attach, peer_max_frame)
        session = self._sessions[links.session_of(ptr)]
        protocol_checks.check_handle_left(tapped.channel, len(session.links), session.handle_max)
        link = self._made(ptr, self._gate.attached(tapped.channel, name), session)
        link.engine_name = name
        if isinstance(link, InLink):
            take_up_to(link, self._max_message_bytes)  # some peers send before they have received any credit
            link.limit = attach.initial_delivery_count or 0
            self._engine.receivers[ptr] = link
        else:
            link.max_bytes = attach.max_message_size or 0
        session.links.append(link)
        self._links[ptr] = link
        self._engine.keep(link)
        link.remote = (tapped.channel, attach.handle)
        self._by_handle[link.remote] = link
        out.append((EventKind.OTHER, None, Attached(link, replace(attach, name=link.name))))

    def _made(self, ptr: Ptr, name: str, session: Session) -> InLink | OutLink:
        if links.is_sender(ptr):
            return OutLink(ptr, name, session)
        return InLink(ptr, name, session, self._memory)

    def detach(self, ptr: Ptr, *, closed: bool, out: list[Event]) -> None:
        """The peer detached or closed a link, which we may have freed before. Raises `DecodeError`."""
        self._tap.check_detaches()
        session = self._sessions.get(links.session_of(ptr))
        if session is not None:
            self._gate.detached(session.channel, links.name_of(ptr))
        link = self._links.get(ptr)
        if link is not None:
            link.keeps_handle = False
            out.append((EventKind.OTHER, None, Detached(link, closed, links.peer_error(ptr))))
        elif session is not None and links.unread_bytes(session.ptr) >= self._max_frame:
            self.set_window(session.ptr)

    def end(self, ptr: Ptr, out: list[Event]) -> None:
        """The peer ended a session."""
        session = self._sessions.pop(ptr)
        session.has_ended = True
        self._ending += 1
        self._hold_begins()
        self._gate.ended(session.channel)
        for link in session.links:
            link.keeps_handle = False
        out.append((EventKind.OTHER, None, SessionEnded(session)))

    @property
    def holds_begins(self) -> bool:
        """No channel is free to answer a Begin with, until the end of another session is answered."""
        return self._gate.holds_begins

    def ended(self) -> None:
        """The end of a session is answered."""
        self._ending -= 1
        self._hold_begins()

    def _hold_begins(self) -> None:
        self._gate.holds_begins = self._ending > 0 and len(self._sessions) + self._ending >= self.channels

    def forget(self, link: InLink | OutLink) -> None:
        """Remove a link that ends from all look-ups, here and in the engine."""
        link.is_open = False
        self._links.pop(link.ptr, None)
        if self._by_handle.get(link.remote) is link:  # the peer may have given the handle to another link
            del self._by_handle[link.remote]
        self._engine.forget(link)

    def at(self, ptr: Ptr) -> InLink | OutLink | None:
        """The link at this pointer."""
        return self._links.get(ptr)

    def at_handle(self, channel: int, handle: int) -> InLink | OutLink | None:
        """The link that the peer names by this channel and handle."""
        return self._by_handle.get((channel, handle))

    def leave_unanswered(self, delivery: Ptr) -> None:
        """This delivery, whose link is gone, is settled without an outcome: its sender does not hear of that."""
        session = self._sessions.get(links.session_of(deliveries.link_of(delivery)))
        if session is not None:
            self._changes.leave_unanswered(session)

    def named(self, tapped: TappedFlow) -> InLink | OutLink | None:
        """The link that a flow names."""
        handle = tapped.flow.handle
        return None if handle is None else self._by_handle.get((tapped.channel, handle))

    def session_on(self, channel: int) -> Session | None:
        """The session that the peer calls `channel`."""
        return next((each for each in self._sessions.values() if each.channel == channel), None)

    def local_channel(self, channel: int | None) -> int | None:
        """Our number for the session that the peer calls `channel`."""
        session = None if channel is None else self.session_on(channel)
        return None if session is None else session.local_channel

    def all_links(self) -> tuple[InLink | OutLink, ...]:
        """Every link that is attached."""
        return tuple(self._links.values())

    def holds_parts(self) -> bool:
        """Whether some message is coming in parts."""
        return self._memory.messages > 0

    def clear(self) -> None:
        """The connection is freed: drop the `context` of each link and session, and every pointer."""
        for link in self._links.values():
            link.is_open = False
            link.context = None
            link.ptr = FREED
        self._links.clear()
        self._changes.clear()
        self._by_handle.clear()
        for session in self._sessions.values():
            session.links = []
            session.context = None
            session.ptr = FREED
        self._sessions.clear()
