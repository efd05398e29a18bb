"""The two links of a request client, for requests and for replies: their state, and the frames that they send.

Used by `connection` only, which knows when to call the methods. Sans-I/O. Source: AMQP 1.0 part 2, 2.5.6 (session
window), 2.6.7 (credit), 2.6.12 (deliveries).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from penstock_amqp.errors import DecodeError
from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import Accepted, Disposition, Flow, Transfer

__all__ = ["ReplyLink", "RequestLink"]

_SERIAL = 0xFFFF_FFFF
"""Sequence numbers are 32 bits and wrap (2.8.10)."""
_HEAD_BYTES = 64
"""Room in a frame for its header and the transfer performative."""


@dataclass(slots=True)
class _Request:
    """A message that was not yet sent completely."""

    number: int
    pieces: deque[bytes]
    begun: bool = False


class RequestLink:
    """The link for requests. A request is sent when the link has credit, and the session window has room for its
    frames."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._waiting: deque[_Request] = deque()
        self._unsettled: dict[int, int] = {}
        self._next_number = 0
        self._next_delivery_id = 0
        self._window = 0
        self.next_outgoing_id = 0
        self.delivery_count = 0
        self.credit = 0

    def add(self, payload: bytes, max_frame_size: int) -> int:
        """Put a message in the queue; return the number that identifies it."""
        size = max_frame_size - _HEAD_BYTES
        pieces = deque(payload[at : at + size] for at in range(0, len(payload), size))
        number = self._next_number
        self._next_number += 1
        self._waiting.append(_Request(number, pieces))
        return number

    def forget(self, number: int) -> None:
        """Remove a message from the queue, unless a part of it was already sent."""
        self._waiting = deque(request for request in self._waiting if request.begun or request.number != number)

    def begin(self, incoming_window: int) -> None:
        """The peer began the session and accepts that many frames."""
        self._window = incoming_window

    def flow(self, flow: Flow) -> None:
        """The peer sent its session window."""
        first = flow.next_incoming_id or 0
        self._window = (first + flow.incoming_window - self.next_outgoing_id) & _SERIAL

    def grant(self, flow: Flow) -> bool:
        """The peer sent the credit of this link; return whether it asks for a drain."""
        if flow.link_credit is not None:
            credit = (flow.delivery_count or 0) + flow.link_credit - self.delivery_count
            self.credit = max(credit if credit < 2**31 else credit - 2**32, 0)
        return bool(flow.drain)

    def drain(self) -> None:
        """Use up the credit that is left."""
        self.delivery_count = (self.delivery_count + self.credit) & _SERIAL
        self.credit = 0

    def leave(self) -> Iterator[bytes]:
        """Yield the frames that may be sent now."""
        while self._waiting and self._window:
            request = self._waiting[0]
            if not request.begun and not self.credit:
                return
            yield self._transfer(request)
            self._window -= 1
            self.next_outgoing_id = (self.next_outgoing_id + 1) & _SERIAL
            if not request.pieces:
                self._waiting.popleft()

    def _transfer(self, request: _Request) -> bytes:
        piece = request.pieces.popleft()
        more = True if request.pieces else None
        if request.begun:
            return encode_frame(Transfer(handle=self._handle, more=more), payload=piece)
        delivery_id = self._next_delivery_id
        request.begun = True
        self._unsettled[delivery_id] = request.number
        self._next_delivery_id = (delivery_id + 1) & _SERIAL
        self.delivery_count = (self.delivery_count + 1) & _SERIAL
        self.credit -= 1
        tag = delivery_id.to_bytes(4)
        head = Transfer(handle=self._handle, delivery_id=delivery_id, delivery_tag=tag, message_format=0, more=more)
        return encode_frame(head, payload=piece)

    def settle(self, disposition: Disposition) -> list[int]:
        """Forget the deliveries that the peer settled or gave an outcome; return the numbers of their messages."""
        last = disposition.first if disposition.last is None else disposition.last
        # Walks what is unsettled, not the range: the range is the peer's word alone.
        length = (last - disposition.first) & _SERIAL
        ids = [each for each in self._unsettled if (each - disposition.first) & _SERIAL <= length]
        return [self._unsettled.pop(each) for each in ids]


class ReplyLink:
    """The link for replies."""

    def __init__(self, handle: int, credit: int, max_message_size: int) -> None:
        self._handle = handle
        self._full_credit = credit
        self._max_message_size = max_message_size
        self._parts: list[bytes] = []
        self._size = 0
        self._delivery_id: int | None = None
        self._settled = False
        self._to_settle: list[int] = []
        self.unsettled = 0
        """How many deliveries have come that wait, or waited, for `settle`."""
        self.next_incoming_id = 0
        self.delivery_count = 0
        self.credit = credit

    def begin(self, next_outgoing_id: int) -> None:
        """The peer began the session; its first frame has this number."""
        self.next_incoming_id = next_outgoing_id

    def attach(self, initial_delivery_count: int | None) -> None:
        """The peer attached; its delivery-count starts with this number."""
        self.delivery_count = initial_delivery_count or 0

    def transfer(self, transfer: Transfer, payload: bytes) -> bytes | None:
        """Process one frame of a reply; return the reply when it is complete.

        Raises `DecodeError` if the reply is too long or has no delivery-id.
        """
        self.next_incoming_id = (self.next_incoming_id + 1) & _SERIAL
        if self._delivery_id is None:
            if transfer.delivery_id is None:
                raise DecodeError("a delivery without delivery-id", 0)
            self._delivery_id = transfer.delivery_id
        self._settled = self._settled or bool(transfer.settled)
        self._parts.append(payload)
        self._size += len(payload)
        if self._size > self._max_message_size:
            raise DecodeError(f"an answer of more than {self._max_message_size} bytes", 0)
        if transfer.more and not transfer.aborted:
            return None
        return self._complete(aborted=bool(transfer.aborted))

    def _complete(self, *, aborted: bool) -> bytes | None:
        message = b"".join(self._parts)
        if not self._settled and not aborted and self._delivery_id is not None:
            self._to_settle.append(self._delivery_id)
            self.unsettled += 1
        self._parts, self._size, self._delivery_id, self._settled = [], 0, None, False
        self.delivery_count = (self.delivery_count + 1) & _SERIAL
        self.credit -= 1
        return None if aborted else message

    def settle(self, until: int | None = None) -> Iterator[bytes]:
        """Yield the frames that settle the deliveries since the last call, one frame for each range of ids; with
        `until`, an earlier value of `unsettled`, only what had come then."""
        later = 0 if until is None else self.unsettled - until
        at = max(len(self._to_settle) - later, 0)
        ids, self._to_settle = self._to_settle[:at], self._to_settle[at:]
        while ids:
            first = last = ids.pop(0)
            while ids and ids[0] == last + 1:
                last = ids.pop(0)
            yield encode_frame(Disposition(role=True, first=first, last=last, settled=True, state=Accepted()))

    def top_up(self) -> bool:
        """Give full credit again if half of it is used; return whether a flow has to be sent to the peer."""
        if self.credit * 2 > self._full_credit:
            return False
        self.credit = self._full_credit
        return True
