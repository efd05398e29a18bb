"""What flows ask for: credit and drains of consumers, and the flows that we owe the peer and the engine does not send.

Proton ignores `echo`, and does not answer a drain of credit that is used up already. Those flows are answered here,
after the engine's output. This module must not know queues or subscriptions. Source: AMQP 1.0 part 2, 2.6.7, 2.6.10 and
2.7.4; part 4, 4.4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from penstock_amqp.endpoint.attachments import Attachments
from penstock_amqp.endpoint.buffers import OUTPUT_VIEW, Ptr
from penstock_amqp.endpoint.engine import Engine
from penstock_amqp.endpoint.events import AcquisitionRequested, Event, EventKind, Flowed
from penstock_amqp.endpoint.links import AvailableCount, InLink, OutLink, Session
from penstock_amqp.endpoint.outgoing_streams import OutgoingStreams
from penstock_amqp.endpoint.proton import links
from penstock_amqp.endpoint.session_window import kept_back
from penstock_amqp.frames import flow_echo
from penstock_amqp.frames.frames import read_body, walk
from penstock_amqp.frames.input_tap import InputTap, TappedFlow
from penstock_amqp.frames.performatives import Flow
from penstock_amqp.types.values import Symbol, Value

__all__ = ["FlowAnswers"]

_FLOW_BYTES: Final = 32
"""About how long a flow is."""


class FlowAnswers:
    """Reads the flows of one connection, and holds those that are to be answered by a flow."""

    __slots__ = ("_attachments", "_engine", "_streams", "_tap", "owed")

    def __init__(self, engine: Engine, tap: InputTap, attachments: Attachments, streams: OutgoingStreams) -> None:
        self._engine = engine
        self._tap = tap
        self._attachments = attachments
        self._streams = streams
        self.owed: list[TappedFlow] = []
        """Flows that are to be answered after the engine's output."""

    def flowed(self, ptr: Ptr, out: list[Event]) -> None:
        """A flow came for the link at `ptr`."""
        link = self._attachments.at(ptr)
        if isinstance(link, OutLink):
            link.credit = links.credit_of(ptr)
            if link.credit < 0 and self._tap.is_current and self._allows_more(link):
                link.credit = flow_echo.MOST_CREDIT
            if self._streams.by_link:  # the engine counts a message that is sent in part as not sent
                link.credit -= self._streams.unsent(link)
            link.drain = links.peer_drains(ptr)
            out.append((EventKind.OTHER, None, Flowed(link)))
        if self._tap.is_current:
            self._note_questions(link, out)

    def _note_questions(self, link: InLink | OutLink | None, out: list[Event]) -> None:
        """Note what the flows of the chunk ask for and the engine ignores."""
        if isinstance(link, OutLink) and link.drain:
            asked = [each for each in self._tap.drains() if self._attachments.named(each) is link]
            if link.credit <= 0:
                self.owed += [each for each in asked if not each.flow.echo]
            elif asked:
                link.draining_flow = asked[-1]
        for tapped in self._tap.echoes():
            named, told = self._attachments.named(tapped), tapped.flow.properties
            if isinstance(named, OutLink) and told is not None:
                out.append((EventKind.OTHER, None, AcquisitionRequested(named, _transaction(told))))
            if tapped.flow.echo:
                self.owed.append(tapped)

    def note_echoes_of_sessions(self) -> None:
        """The chunk may hold flows of sessions, for which the engine raises no event."""
        self.owed += [each for each in self._tap.echoes_of_sessions() if each.flow.echo]
        if self.owed:
            self._keep_up()

    def _keep_up(self) -> None:
        """What is owed is answered by the credit that its link has then, and this is what the link's last flow has
        allowed: that flow says from where the credit counts.
        """
        allowed: dict[InLink | OutLink, Flow] = {}
        for channel, flow in self._tap.performatives((Flow.CODE,)):
            assert isinstance(flow, Flow)
            self._tap.decoded += _FLOW_BYTES
            named = self._attachments.named(TappedFlow(channel, flow))
            if isinstance(named, OutLink):
                allowed[named] = flow
        for place, asked in enumerate(self.owed if allowed else ()):
            last = allowed.get(link) if (link := self._attachments.named(asked)) is not None else None
            if last is not None:
                told = replace(last, echo=asked.flow.echo)
                self.owed[place] = TappedFlow(asked.channel, told)

    def _allows_more(self, link: OutLink) -> bool:
        """True if the link's last flow grants so much credit that the engine reads it as a negative number."""
        named = self._attachments.named
        flows = self._tap.performatives((Flow.CODE,))
        told = [each for at, each in flows if isinstance(each, Flow) and named(TappedFlow(at, each)) is link]
        return bool(told) and (told[-1].link_credit or 0) > flow_echo.MOST_CREDIT

    def drained(self, link: OutLink) -> bool:
        """No message is left for a consumer that drains: give its credit back, or, if the link sends a message in
        pieces, once all is sent. False: nothing is done, because messages of the link wait for the peer's session
        window, and the engine would not come back to a drain that is over; to be called again once the peer has sent
        something.

        The engine sends no flow for credit that the messages have used up, so that flow is written here. It must not be
        asked to give back credit below 0: it would count messages that it sent as not sent, and send others without
        credit.
        """
        if self._streams.drain_later(link):
            return True
        has_credit = links.credit_of(link.ptr) > 0
        if has_credit and links.queued(link.ptr):
            return False
        asked, link.draining_flow = link.draining_flow, None
        if has_credit:
            links.drained(link.ptr)
            link.credit = 0
        elif asked is not None:
            self.owed.append(asked)
        link.drain = False
        return True

    def take(self) -> bytes:
        """The flow frames that we owe the peer.

        A drain is answered after the messages that used its credit up, even if the session's window keeps these back.
        """
        owed, self.owed = self.owed, []
        return b"".join(self._answer(tapped) for tapped in owed)

    def clear(self) -> None:
        """The connection is closed: nothing is answered."""
        self.owed.clear()

    def _answer(self, tapped: TappedFlow) -> bytes:
        flow = tapped.flow
        session = self._attachments.session_on(tapped.channel)
        if session is None or session.local_channel is None:
            return b""
        if flow.handle is None:
            told = self._session_state(session)
            return b"" if told is None else flow_echo.echo_frame(flow, session.local_channel, told, None)
        link = self._attachments.named(tapped)
        if link is None or not link.is_open:
            return b""
        if link.local is None:  # the peer did not wait for the answer to its attach, which goes first
            self.owed.append(tapped)
            return b""
        # Of a message whose body is not with the engine it holds no byte, and of one that is sent in pieces no whole.
        is_sent = not (isinstance(link, OutLink) and links.queued(link.ptr))
        is_sent = is_sent and not kept_back(session, self._streams.by_link)
        drains = (
            isinstance(link, OutLink) and link.drain and link.credit > 0
        )  # the peer takes the answer for the end of it
        if flow.drain and (drains or not is_sent):
            self.owed.append(tapped)
            return b""
        told = self._session_state(session)
        waiting = link.context.available() if isinstance(link.context, AvailableCount) else None
        acquires_in = link.acquisition.txn_id if isinstance(link, OutLink) and link.acquisition is not None else None
        state = flow_echo.LinkCredit(
            link.local[1], isinstance(link, OutLink), _credit(link, flow), waiting, acquires_in
        )
        return b"" if told is None else flow_echo.echo_frame(flow, session.local_channel, told, state)

    def _session_state(self, session: Session) -> Flow | None:
        """The engine's state of a session: setting its capacity again makes the engine write a flow. None if it has
        failed.
        """
        self._attachments.set_window(session.ptr)
        written = OUTPUT_VIEW[: self._engine.output()].tobytes()
        flows = [read_body(written[body:end], Flow)[0] for _, end, _, _, body in walk(written)]
        return flows[-1] if flows else None


def _credit(link: InLink | OutLink, asked: Flow) -> int:
    """The credit of a link; of one on which the peer sends, what is left from the delivery-count that it asked with."""
    if isinstance(link, OutLink):
        return link.credit
    left = (link.limit - (asked.delivery_count or 0)) & 0xFFFF_FFFF
    return left if left < 1 << 31 else 0


def _transaction(properties: Mapping[Symbol, Value]) -> bytes | None:
    """The transaction that a flow's properties name; empty, which is the name of none, if it can't be read."""
    told = properties.get(flow_echo.TXN_ID)
    return told if told is None or isinstance(told, bytes) else b""
