"""A message that is sent in pieces: read from where it is stored as its link gets on, never as a whole in memory.

A link carries one delivery at a time, so what is sent behind a stream waits in it; other links of the session go on
between its frames. A peer that settles a delivery before it has all of it gets the rest aborted. Must not know where
messages are stored. Source: AMQP 1.0 part 2, 2.6.12 to 2.6.14.
"""

from __future__ import annotations

from typing import Final

from penstock_amqp.endpoint import buffers
from penstock_amqp.endpoint.buffers import Ptr, delivery_remote_state, delivery_settled, link_send
from penstock_amqp.endpoint.events import Entry, Held
from penstock_amqp.endpoint.links import OutLink
from penstock_amqp.messages.message_head import streamed

__all__ = ["LEAST_PIECE", "Stream", "Waiting"]

LEAST_PIECE: Final = 16_384
"""Bytes of one stream per turn, however many others there are on its connection."""

_FINAL: Final = (buffers.ACCEPTED, buffers.REJECTED, buffers.RELEASED, buffers.MODIFIED)

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
    def is_settled_early(self) -> bool:
        """The peer has heard enough."""
        return delivery_settled(self.delivery) or delivery_remote_state(self.delivery) in _FINAL

    def send(self, link: OutLink, most: int) -> None:
        """Hand up to `most` bytes to the engine. Raises OSError if they can't be read."""
        piece = streamed(self.data).read(self._offset, min(most, self._left))
        link_send(link.ptr, piece, len(piece))
        self._offset += len(piece)
        self._left -= len(piece)

    def all_held(self) -> list[Held]:
        """What the link has taken over and not settled: this delivery and those behind it."""
        link = self.held[0]
        return [self.held, *((link, entry, now_us) for entry, _, now_us in self.behind)]
