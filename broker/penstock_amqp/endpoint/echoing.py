"""Answers what a flow asks for and the engine does not hear: echoes, and drains of credit that is used up already.

Must not know queues or subscriptions. Source: AMQP 1.0 part 2, 2.6.7, 2.6.10 and 2.7.4.
"""

from __future__ import annotations

from typing import Final

from penstock_amqp.endpoint import buffers
from penstock_amqp.endpoint.buffers import link_credit
from penstock_amqp.endpoint.events import Acquires, Event, EventKind
from penstock_amqp.endpoint.forwarding import MessageEngine
from penstock_amqp.endpoint.links import InLink, OutLink, Session
from penstock_amqp.frames import flow_echo, input_tap
from penstock_amqp.frames.frames import read_body, walk
from penstock_amqp.frames.performatives import Flow

__all__ = ["SESSION_FRAMES", "Echoer"]

SESSION_FRAMES: Final = 32_768
"""Incoming window of a session in frames. It bounds nothing (all is read at once, link credit is the bound), so it is
wide enough never to hold a sender back. It must stay above the credit of all links of a session: at a window of 0 the
engine names detached links in its flows."""

_TXN_ID: Final = "txn-id"
"""Property of a flow that asks to take messages within a transaction (part 4, 4.4.3)."""


class Echoer(MessageEngine):
    """The answering part of `endpoint.Endpoint`."""

    __slots__ = ()

    def _asked(self, link: InLink | OutLink | None, out: list[Event]) -> None:
        """A flow came: see what it asks that the engine does not hear."""
        if isinstance(link, OutLink) and link.drain:
            asked = [each for each in self._tap.drains() if self._named(each) is link]
            if link.credit <= 0:
                self._echoes += [each for each in asked if not each.flow.echo]
            elif asked:
                link.draining_flow = asked[-1]
        for tapped in self._tap.echoes():
            named = self._named(tapped)
            if isinstance(named, OutLink) and _TXN_ID in (tapped.flow.properties or {}):
                out.append((EventKind.OTHER, None, Acquires(named)))
            elif tapped.flow.echo:
                self._echoes.append(tapped)

    def _allows_more(self, link: OutLink) -> bool:
        """True if the link's last flow allows so much that the engine takes it for less than nothing."""
        flows = self._tap.performatives((Flow.CODE,))
        told = [
            each for at, each in flows if isinstance(each, Flow) and self._named(input_tap.TappedFlow(at, each)) is link
        ]
        return bool(told) and (told[-1].link_credit or 0) > flow_echo.MOST_CREDIT

    def _named(self, tapped: input_tap.TappedFlow) -> InLink | OutLink | None:
        """The link that a flow names."""
        handle = tapped.flow.handle
        return None if handle is None else self._by_handle.get((tapped.channel, handle))

    def drained(self, link: OutLink) -> None:
        """Nothing is left to send: give back the credit of a consumer that drains, once all is out.

        Of credit that the messages used up the engine says nothing, and credit below 0 it would take for a number to
        give back: it would count messages that it sent as not sent, and send others without credit.
        """
        if link in self.streams:
            self.streams[link].drains = True
            return
        asked, link.draining_flow = link.draining_flow, None
        if link_credit(link.ptr) > 0:
            buffers.link_drained(link.ptr)
            link.credit = 0
        elif asked is not None:
            self._echoes.append(asked)
        link.drain = False

    @property
    def has_echoes(self) -> bool:
        """True if the peer asked for our state: send `echoes` once `output` has nothing more."""
        return bool(self._echoes)

    def echoes(self) -> bytes:
        """The flow frames that the engine owes the peer: it does not see that they were asked for.

        A drain is answered behind what used its credit up, also if the session's window keeps that back.
        """
        asked, self._echoes = self._echoes, []
        return b"" if self.closed else b"".join(self._echo(tapped) for tapped in asked)

    def _echo(self, tapped: input_tap.TappedFlow) -> bytes:
        flow = tapped.flow
        session = self._session_on(tapped.channel)
        if session is None or session.local_channel is None:
            return b""
        if flow.handle is None:
            told = self._session_state(session)
            return b"" if told is None else flow_echo.echo_frame(flow, session.local_channel, told, None)
        link = self._named(tapped)
        if link is None or not link.is_open or link.local is None:
            return b""
        if flow.drain and buffers.session_outgoing_bytes(session.ptr):
            self._echoes.append(tapped)
            return b""
        told = self._session_state(session)
        state = flow_echo.LinkState(link.local[1], isinstance(link, OutLink), link.credit)
        return b"" if told is None else flow_echo.echo_frame(flow, session.local_channel, told, state)

    def _session_state(self, session: Session) -> Flow | None:
        """What the engine says of a session: setting its capacity anew makes it write a flow. None if it has failed."""
        buffers.session_set_incoming_capacity(session.ptr, SESSION_FRAMES * self.max_frame)
        written = buffers.OUTPUT_VIEW[: self.output()].tobytes()
        flows = [read_body(written[body:end], Flow)[0] for _, end, _, _, body in walk(written)]
        return flows[-1] if flows else None

    def _session_on(self, channel: int) -> Session | None:
        """The session that the peer calls `channel`."""
        return next((each for each in self._sessions.values() if each.channel == channel), None)

    def _local_channel(self, channel: int | None) -> int | None:
        """Our number for the session that the peer calls `channel`."""
        session = None if channel is None else self._session_on(channel)
        return None if session is None else session.local_channel
