"""What an endpoint sends: deliveries in batches, and long ones in pieces.

Written for speed: `send` carries every message. Must not know queues or subscriptions. Source: AMQP 1.0 part 2, 2.6.12.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from penstock_amqp.endpoint import buffers, terms
from penstock_amqp.endpoint.buffers import (
    ACCEPTED,
    TAG,
    TAG_VIEW,
    Ptr,
    delivery,
    delivery_remote_state,
    delivery_settle,
    link_advance,
    link_send,
)
from penstock_amqp.endpoint.events import Entry, Event, EventKind, Held
from penstock_amqp.endpoint.links import OutLink
from penstock_amqp.endpoint.streams import LEAST_PIECE, Stream
from penstock_amqp.messages.message_head import is_streamed

__all__ = ["Sender"]


class Sender(ABC):
    """The sending half of `endpoint.forwarding.MessageEngine`."""

    __slots__ = ("_one_frame", "_tag", "streams", "unsettled")

    def __init__(self) -> None:
        self.unsettled: dict[Ptr, Held] = {}
        """Deliveries sent and not settled, by the engine's pointer."""
        self.streams: dict[OutLink, Stream] = {}
        """Messages that links are sending in pieces, others wait behind them: call `advance_streams`."""
        self._tag = 0
        self._one_frame = 0
        """Longest message that surely fits one frame of the peer's."""

    def send(self, link: OutLink, entries: Iterable[Entry], now_us: int) -> None:
        """Send `entries`, at most as many as the link's credit, which is the caller's to count down."""
        if self.streams and link in self.streams:
            self.streams[link].behind += [(entry, entry[1], now_us) for entry in entries]
            return
        ptr = link.ptr
        tag = self._tag
        unsettled = self.unsettled
        presettled = link.presettled
        most = self._one_frame
        rest = iter(entries)
        for entry in rest:
            tag = (tag + 1) & 0xFFFFFFFF
            TAG_VIEW[0] = tag
            sent = delivery(ptr, TAG)
            data = entry[1]
            size = len(data)
            if size > most and is_streamed(data):
                behind = [(each, each[1], now_us) for each in rest]
                self.streams[link] = Stream(sent, (link, entry, now_us), data, behind)
                continue
            link_send(ptr, data, size)
            link_advance(ptr)
            if presettled:
                delivery_settle(sent)
            else:
                unsettled[sent] = (link, entry, now_us)
        self._tag = tag

    def send_as(self, link: OutLink, entry: Entry, data: bytes, now_us: int) -> None:
        """Send `data` in the place of the entry's own bytes (a rewritten header)."""
        if self.streams and link in self.streams:
            self.streams[link].behind.append((entry, data, now_us))
            return
        self._tag = (self._tag + 1) & 0xFFFFFFFF
        TAG_VIEW[0] = self._tag
        sent = delivery(link.ptr, TAG)
        if len(data) > self._one_frame and is_streamed(data):
            self.streams[link] = Stream(sent, (link, entry, now_us), data, [])
            return
        link_send(link.ptr, data, len(data))
        link_advance(link.ptr)
        if link.presettled:
            delivery_settle(sent)
        else:
            self.unsettled[sent] = (link, entry, now_us)

    def advance_streams(self, most: int, held_back: int, out: list[Event]) -> bool:
        """Send about `most` bytes more of the messages that go out in pieces; False if none could get on.

        A session for which the engine holds more than `held_back` bytes is passed over. Raises OSError if a message
        can't be read: the connection is of no use then.
        """
        got_on = False
        for link, stream in tuple(self.streams.items()):
            if stream.is_settled_early:
                self._cut_stream(link, stream, out)
            elif buffers.session_outgoing_bytes(link.session.ptr) > held_back:
                continue
            else:
                stream.send(link, max(LEAST_PIECE, most // len(self.streams)))
                if stream.is_sent:
                    self._end_stream(link, stream)
            got_on = True
        return got_on

    def _cut_stream(self, link: OutLink, stream: Stream, out: list[Event]) -> None:
        """The peer settled what it has only a part of."""
        sent, held = stream.delivery, stream.held
        state = delivery_remote_state(sent)
        if state == ACCEPTED:
            out.append((EventKind.ACCEPTED, link, [held]))
        elif not link.presettled:
            out.append((EventKind.OTHER, None, terms.settled(sent, state, held)))
        buffers.delivery_abort(sent)
        self._after_stream(link, stream)

    def _end_stream(self, link: OutLink, stream: Stream) -> None:
        link_advance(link.ptr)
        if link.presettled:
            delivery_settle(stream.delivery)
        else:
            self.unsettled[stream.delivery] = stream.held
        self._after_stream(link, stream)

    def _after_stream(self, link: OutLink, stream: Stream) -> None:
        """Send what waited behind the stream, up to the next one."""
        del self.streams[link]
        for entry, data, now_us in stream.behind:
            self.send_as(link, entry, data, now_us)
        if stream.drains:
            self.drained(link)

    def is_congested(self, link: OutLink, limit: int) -> bool:
        """True if nothing should be handed over for this link now: the engine holds more than `limit` bytes that the
        peer's session window keeps back, or a message is being sent in pieces.
        """
        if self.streams and link in self.streams:
            return True
        return buffers.session_outgoing_bytes(link.session.ptr) > limit

    def all_held(self) -> Iterator[Held]:
        """All that was sent, or is being sent, and is not settled; per link the oldest first."""
        yield from self.unsettled.values()
        for link, stream in self.streams.items():
            if not link.presettled:
                yield from stream.all_held()

    def held_by(self, link: OutLink) -> list[Held]:
        """The link's unsettled deliveries, oldest first."""
        if not buffers.link_unsettled(link.ptr) and link not in self.streams:
            return []  # others of the connection may have very many
        return [held for held in self.all_held() if held[0] is link]

    @abstractmethod
    def drained(self, link: OutLink) -> None:
        """Nothing is left to send: give back the credit of a consumer that drains."""
