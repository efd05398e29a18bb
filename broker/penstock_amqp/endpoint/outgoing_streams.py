"""Messages that are sent in pieces: read from where they are stored while their links send them, never as a whole in
memory.

A link carries one delivery at a time, so what is sent behind a streamed message waits in its `Stream`; other links of
the session go on between its frames. If a peer settles a delivery before it has received all of it, the delivery is
aborted; so is one whose message turns out to be damaged, which its store says by EBADMSG, or whose transaction is
rolled back. What a link acquires in a transaction is sent here one by one, long or not, because each delivery has a
state. If it is also sent settled, the next one waits until all of it has left: a rollback has to know what did.

This module must not know where messages are stored. Source: AMQP 1.0 part 2, 2.6.12 to 2.6.14; part 4, 4.4.3;
docs/decisions/143-acquired-and-sent-settled.md.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final

from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.engine import Engine, Unsent
from penstock_amqp.endpoint.events import DATA, Entry, Event, EventKind, Held, Outcome, Settled
from penstock_amqp.endpoint.links import Acquisition, OutLink
from penstock_amqp.endpoint.proton import deliveries, links
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

    __slots__ = (
        "_left",
        "_offset",
        "acquisition",
        "behind",
        "data",
        "delivery",
        "drains",
        "held",
        "is_settled",
        "returns",
    )

    def __init__(
        self, delivery: Ptr, held: Held, data: bytes, behind: list[Waiting], acquisition: Acquisition | None = None
    ) -> None:
        self.delivery = delivery
        self.held = held
        self.data = data
        self.behind = behind
        """What the link sends next."""
        self.acquisition = acquisition
        """The transaction in which the link acquires it, and what is behind it."""
        self.is_settled = False
        """The engine has all of it, as settled, and sends it even if we end the link: `delivery` is valid until then.
        """
        self.returns = False
        """The link ends, and takes what is sent settled out of its transaction: it returns with the link."""
        self.drains = False
        """The link's credit is to be given back once all is sent."""
        self._offset = 0
        self._left = len(data)

    @property
    def is_sent(self) -> bool:
        """The engine has all of it."""
        return not self._left

    @property
    def leaves_slowly(self) -> bool:
        """It is acquired and sent settled: it stays here until all of it has left the engine."""
        return self.acquisition is not None and self.held[0].presettled

    @property
    def has_left(self) -> bool:
        """The engine has sent all of it, as the last of its link."""
        return self.is_sent and not links.queued(self.held[0].ptr)

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
        size = min(most, self._left)
        if is_streamed(self.data):
            piece = streamed(self.data).read(self._offset, size)
        else:
            piece = self.data[self._offset : self._offset + size]
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
        self._send_in(link.acquisition, link, entry, data, now_us)

    def _send_in(self, acquisition: Acquisition | None, link: OutLink, entry: Entry, data: bytes, now_us: int) -> None:
        if self.by_link and link in self.by_link:
            self.by_link[link].behind.append((entry, data, now_us))
            return
        if acquisition is not None:
            self._acquire(acquisition, (link, entry, now_us), data)
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
        is_long = len(data) > self._engine.frame_bytes
        if not link.presettled:
            acquisition.unsettled[delivery] = held
            acquisition.lengths.pop(delivery, None)  # of an earlier one
            if is_long:
                acquisition.lengths[delivery] = len(data)
        if is_long and (link.presettled or is_streamed(data)):
            self.by_link[link] = Stream(delivery, held, data, [], acquisition)
            return
        deliveries.send_part(link.ptr, data)
        self._engine.finish(delivery, held)
        if link.presettled:
            self._engine.write()
            if links.queued(link.ptr):
                stream = self.by_link[link] = Stream(delivery, held, b"", [], acquisition)
                stream.is_settled = True

    def take_back_settled(
        self, acquisition: Acquisition, closing: Container[OutLink]
    ) -> Iterator[tuple[OutLink, list[Held], list[Held]]]:
        """A transaction is rolled back: what its links still had to send settled is not sent. For each of them: what is
        taken back, and what can't be, because the engine has all of it, or would not give back the credit: this is sent
        outside of the transaction, but for a message in pieces on a link that is `closing`, of which nothing would be
        sent any more.
        """
        for link, stream in tuple(self.by_link.items()):
            if stream.acquisition is not acquisition or not link.presettled:
                continue
            back, kept = stream.all_held()[1:], list[Held]()
            stream.behind = []
            if stream.has_left:
                self._leave(link, stream)
            elif stream.is_settled or not (stream.has_begun or link in closing):
                deliveries.update(stream.delivery, NO_STATE)
                kept.append(stream.held)
            else:
                deliveries.abort(stream.delivery)
                del self.by_link[link]
                back.insert(0, stream.held)
            yield link, back, kept

    def take_back_waiting(self, acquisition: Acquisition) -> Iterator[tuple[OutLink, list[Held]]]:
        """A transaction is committed: what waits behind what its links send settled was not sent by the discharge, and
        is not sent in it. For each of them: what is taken back. What was sent in part, or is in the engine, is sent.
        """
        for link, stream in self.by_link.items():
            if stream.acquisition is acquisition and link.presettled and stream.behind:
                back = stream.all_held()[1:]
                stream.behind = []
                yield link, back

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
        back = stream.all_held()
        deliveries.abort(stream.delivery)
        del self.by_link[held[0]]
        return back

    def unsent(self, link: OutLink) -> int:
        """How many messages have used the link's credit, but are still here, so that the engine counts them as not
        sent.
        """
        stream = self.by_link.get(link)
        return 0 if stream is None else len(stream.behind) + (not (stream.leaves_slowly and stream.is_sent))

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
            if stream.leaves_slowly and stream.is_sent:
                if not stream.has_left:
                    continue  # the peer's window is shut
                self._leave(link, stream)
            elif stream.is_settled_early:
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
        if stream.is_sent and stream.leaves_slowly:
            deliveries.advance(link.ptr)
            return False
        if stream.is_sent:
            self._engine.finish(stream.delivery, stream.held)
        return stream.is_sent

    def _leave(self, link: OutLink, stream: Stream) -> None:
        """All of what was acquired and sent settled has left."""
        if not stream.is_settled:
            deliveries.settle(stream.delivery)
            stream.is_settled = True

    def _cut(self, link: OutLink, stream: Stream, out: list[Event]) -> None:
        """The peer has settled a delivery of which it has only a part: report the outcome, and abort the rest."""
        delivery, held = stream.delivery, stream.held
        state = deliveries.remote_state(delivery)
        if link.presettled:
            pass  # it is settled as it is
        elif state == deliveries.ACCEPTED:
            out.append((EventKind.ACCEPTED, link, [held]))
        else:
            out.append((EventKind.OTHER, None, deliveries.outcome(delivery, state, held)))
        deliveries.abort(delivery)

    def _send_behind(self, link: OutLink, stream: Stream) -> None:
        """Send what waited behind the stream, up to the next one."""
        del self.by_link[link]
        acquisition = stream.acquisition
        if acquisition is not None and acquisition.is_over:
            acquisition = None
        for entry, data, now_us in stream.behind:
            self._send_in(acquisition, link, entry, data, now_us)

    def forget(self, link: OutLink) -> None:
        """The link ends: nothing more is sent on it."""
        self.by_link.pop(link, None)

    def clear(self) -> None:
        """All links end."""
        self.by_link.clear()

    def all_held(self) -> Iterator[Held]:
        """What is being sent, or waits to be sent, and will have to be settled, or was acquired in an open transaction;
        per link the oldest first.
        """
        for link in self.by_link:
            yield from self.held_by(link)

    def held_by(self, link: OutLink) -> list[Held]:
        """The same of one link."""
        stream = self.by_link.get(link)
        if stream is None:
            return []
        if not link.presettled:
            return stream.all_held()
        if not stream.returns and (stream.acquisition is None or stream.acquisition.is_over):
            return []
        is_sent = stream.has_left or (stream.is_settled and link.keeps_handle)
        return stream.all_held()[1 if is_sent else 0 :]

    def separate(self, link: OutLink) -> list[Held]:
        """The link is about to end: what `held_by` has now, it will have whatever becomes of the transaction."""
        held = self.held_by(link)
        if held and link.presettled:
            self.by_link[link].returns = True
        return held
