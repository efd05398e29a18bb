"""Messages that are sent in pieces: read from where they are stored while their links send them, never as a whole in
memory.

A link carries one delivery at a time, so what is sent behind a streamed message waits in its `Stream`; other links of
the session go on between its frames. If a peer settles a delivery before it has received all of it, the delivery is
aborted; so is one whose message turns out to be damaged, which its store says by EBADMSG, or whose transaction is
rolled back. What a link acquires in a transaction is sent here one by one, long or not, because each delivery has a
state. This module must not know where messages are stored. Source: AMQP 1.0 part 2, 2.6.12 to 2.6.14; part 4, 4.4.3.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.engine import Engine, Unsent
from penstock_amqp.endpoint.events import DATA, Entry, Event, EventKind, Held, Outcome, Settled
from penstock_amqp.endpoint.links import Acquisition, OutLink
from penstock_amqp.endpoint.proton import deliveries
from penstock_amqp.endpoint.proton.deliveries import NO_STATE
from penstock_amqp.endpoint.session_window import kept_back
from penstock_amqp.endpoint.transactional_states import TRANSACTIONAL
from penstock_amqp.messages.message_head import is_streamed, streamed

__all__ = ["LEAST_PIECE", "OutgoingStreams", "Stream", "Waiting"]

LEAST_PIECE: Final = 16_384
"""The least number of bytes of one stream per turn, however many others there are on its connection."""

Waiting = tuple[Entry, bytes, int]
"""What is to be sent behind a stream: the entry, the bytes to send for it, when it was handed over (microseconds)."""


class Stream:
    """The delivery that a link is sending in pieces."""

    __slots__ = ("_left", "_offset", "behind", "data", "delivery", "drains", "held")

    def __init__(self, delivery: Ptr, held: Held, data: bytes, behind: list[Waiting]) -> None:
        self.delivery = delivery
        self.held = held
        self.data = data
        self.behind = behind
        """What the link sends next."""
        self.drains = False
        """The link's credit is to be given back once all is sent."""
        self._offset = 0
        self._left = len(data)

    @property
    def is_sent(self) -> bool:
        """The engine has all of it."""
        return not self._left

    @property
    def has_begun(self) -> bool:
        """A part of it was sent to the peer."""
        return deliveries.unsent_bytes(self.delivery) < self._offset

    @property
    def is_settled_early(self) -> bool:
        """The peer has ended the delivery before it has all of it."""
        return deliveries.is_settled(self.delivery) or deliveries.remote_state(self.delivery) in deliveries.FINAL

    def send(self, link: OutLink, most: int) -> None:
        """Hand up to `most` bytes to the engine. Raises OSError if they can't be read."""
        piece = streamed(self.data).read(self._offset, min(most, self._left))
        deliveries.send_part(link.ptr, piece)
        self._offset += len(piece)
        self._left -= len(piece)

    def all_held(self) -> list[Held]:
        """What the link has taken over and not settled: this delivery and those behind it."""
        link = self.held[0]
        return [self.held, *((link, entry, now_us) for entry, _, now_us in self.behind)]


class OutgoingStreams:
    """The streams of one connection."""

    __slots__ = ("_engine", "by_link")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.by_link: dict[OutLink, Stream] = {}
        """Other parts may read it, but must not change it."""

    def begin(self, link: OutLink, unsent: Unsent, now_us: int) -> None:
        """Send in pieces what `Engine.send` left."""
        delivery, entry, rest = unsent
        behind = [(each, each[DATA], now_us) for each in rest]
        self.by_link[link] = Stream(delivery, (link, entry, now_us), entry[DATA], behind)

    def append(self, link: OutLink, entries: Iterable[Entry], now_us: int) -> None:
        """Send `entries` behind the link's stream."""
        self.by_link[link].behind += [(entry, entry[DATA], now_us) for entry in entries]

    def send_as(self, link: OutLink, entry: Entry, data: bytes, now_us: int) -> None:
        """Send `data` in the place of the entry's own bytes: at once, in pieces, or behind the link's stream."""
        if self.by_link and link in self.by_link:
            self.by_link[link].behind.append((entry, data, now_us))
            return
        if link.acquisition is not None:
            self._acquire(link.acquisition, (link, entry, now_us), data)
            return
        delivery = self._engine.send_as(link, entry, data, now_us)
        if delivery is not None:
            self.begin_as(link, delivery, entry, data, now_us)

    def begin_as(self, link: OutLink, delivery: Ptr, entry: Entry, data: bytes, now_us: int) -> None:
        """Send `data` in pieces in the place of the entry's own bytes; the engine has made its delivery."""
        self.by_link[link] = Stream(delivery, (link, entry, now_us), data, [])

    def send(self, link: OutLink, entries: Iterable[Entry], now_us: int) -> None:
        """Send `entries` on a link that acquires in a transaction."""
        for entry in entries:
            self.send_as(link, entry, entry[DATA], now_us)

    def _acquire(self, acquisition: Acquisition, held: Held, data: bytes) -> None:
        """Send `data`, at once or in pieces, with the state that names the transaction."""
        link = held[0]
        delivery = self._engine.begin(link)
        deliveries.set_state(delivery, acquisition.state)
        deliveries.update(delivery, TRANSACTIONAL)
        if not link.presettled:
            acquisition.unsettled[delivery] = held
            acquisition.lengths.pop(delivery, None)  # of an earlier one
            if len(data) > self._engine.frame_bytes:
                acquisition.lengths[delivery] = len(data)
        if len(data) > self._engine.frame_bytes and is_streamed(data):
            self.by_link[link] = Stream(delivery, held, data, [])
            return
        deliveries.send_part(link.ptr, data)
        self._engine.finish(delivery, held)

    def take_back(self, held: Held) -> list[Held]:
        """If `held` is being sent, send nothing more of it, and return it with what waits behind it. If nothing of it
        was sent yet, it is sent outside of the transaction.
        """
        stream = self.by_link.get(held[0])
        if stream is None or stream.held is not held:
            return []
        if not stream.has_begun:
            deliveries.update(stream.delivery, NO_STATE)
            return []
        del self.by_link[held[0]]
        deliveries.abort(stream.delivery)
        return stream.all_held()

    def unsent(self, link: OutLink) -> int:
        """How many messages have used the link's credit, but are still here, so that the engine counts them as not
        sent.
        """
        stream = self.by_link.get(link)
        return 0 if stream is None else 1 + len(stream.behind)

    def drain_later(self, link: OutLink) -> bool:
        """If the link has a stream, its credit is to be given back once all is sent; False if it has none."""
        stream = self.by_link.get(link)
        if stream is not None:
            stream.drains = True
        return stream is not None

    def advance(self, most: int, held_back: int, out: list[Event], drained: Callable[[OutLink], object]) -> bool:
        """Send about `most` bytes more; False if no stream made progress. A session for which the engine holds more
        than `held_back` bytes is skipped. `drained` gives a link's credit back. Raises OSError if a message can't be
        read; the connection can't be used any more then.
        """
        got_on = False
        for link, stream in tuple(self.by_link.items()):
            if stream.is_settled_early:
                self._cut(link, stream, out)
            elif kept_back(link.session, self.by_link) > held_back:
                continue
            else:
                if not self._send(link, stream, max(LEAST_PIECE, most // len(self.by_link)), out):
                    got_on = True
                    continue
            self._send_behind(link, stream)
            if stream.drains:
                drained(link)
            got_on = True
        return got_on

    def _send(self, link: OutLink, stream: Stream, most: int, out: list[Event]) -> bool:
        """Send up to `most` bytes; True if nothing more of this stream is to be sent."""
        try:
            stream.send(link, most)
        except OSError as error:
            if error.errno != errno.EBADMSG:
                raise
            if not link.presettled:
                out.append((EventKind.OTHER, None, Settled(stream.held, Outcome.DAMAGED)))
            deliveries.abort(stream.delivery)
            return True
        if stream.is_sent:
            self._engine.finish(stream.delivery, stream.held)
        return stream.is_sent

    def _cut(self, link: OutLink, stream: Stream, out: list[Event]) -> None:
        """The peer has settled a delivery of which it has only a part: report the outcome, and abort the rest."""
        delivery, held = stream.delivery, stream.held
        state = deliveries.remote_state(delivery)
        if state == deliveries.ACCEPTED:
            out.append((EventKind.ACCEPTED, link, [held]))
        elif not link.presettled:
            out.append((EventKind.OTHER, None, deliveries.outcome(delivery, state, held)))
        deliveries.abort(delivery)

    def _send_behind(self, link: OutLink, stream: Stream) -> None:
        """Send what waited behind the stream, up to the next one."""
        del self.by_link[link]
        for entry, data, now_us in stream.behind:
            self.send_as(link, entry, data, now_us)

    def forget(self, link: OutLink) -> None:
        """The link ends: nothing more is sent on it."""
        self.by_link.pop(link, None)

    def clear(self) -> None:
        """All links end."""
        self.by_link.clear()

    def all_held(self) -> Iterator[Held]:
        """What is being sent, or waits to be sent, and will have to be settled; per link the oldest first."""
        for link, stream in self.by_link.items():
            if not link.presettled:
                yield from stream.all_held()
