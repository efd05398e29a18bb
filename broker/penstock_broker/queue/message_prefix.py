"""What the first bytes of a message say: the same for all messages that begin so, which mostly are those of one sender.

Part of the forwarding path: a `MessagePrefix` is made when a message begins otherwise than the one before; after that a
message costs one `startswith` and one comparison of a byte. Must not know queues. Source: AMQP 1.0 part 3, 3.2.
"""

from __future__ import annotations

from typing import Final

from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import times
from penstock_amqp.messages.message_head import Head
from penstock_broker.queue.flags import GROUPED, LOOK_INSIDE, level_flags, properties_count

__all__ = ["NO_TIMES", "UNKNOWN", "MessagePrefix"]

NO_TIMES: Final = 8
"""A properties list with no more fields than this has no absolute expiry, and names no group."""

USUAL_COUNT: Final = 10
"""Fields that JMS clients write."""


class MessagePrefix:
    """How a message begins, up to where its properties begin to differ."""

    __slots__ = ("count_at", "delays", "durable", "flags", "head", "is_narrow", "prefix", "start", "ttl_us")

    def __init__(self, data: bytes, head: Head) -> None:
        """`data`: as it came, `head`: what `inspect` says of it."""
        self.head = head if head.start == head.header_end else head._replace(start=head.header_end)
        """What `inspect` says of it once it is forwarded."""
        self.start = head.header_end
        """Where the sections begin once it is forwarded: delivery-annotations are dropped."""
        self.durable = head.durable
        self.ttl_us = (head.ttl or 0) * 1000
        self.flags = level_flags(head)
        """The flags for its priority."""
        same, self.count_at = properties_count(data, head.start) if head.start == head.header_end else LOOK_INSIDE
        self.is_narrow = self.count_at > 1 and data[self.count_at - 2] == 0xC0
        """The properties are a list whose size is the byte before their count."""
        self.delays = times.may_wait(data, head.start, same or len(data))
        """The message-annotations may ask for a later delivery."""
        self.prefix = data[:same] if same else _NEVER
        """A message that begins so needs no other `MessagePrefix`."""

    def look(self, data: bytes) -> tuple[int, int]:
        """Read from a message with this prefix when it expires (milliseconds since the epoch, 0: it names no time), and
        the flags for its order. Raises `DecodeError` or `IndexError` if they can't be read.
        """
        count = data[self.count_at]
        if count <= NO_TIMES:
            return 0, self.flags
        if count == USUAL_COUNT and self.is_narrow:
            # As JMS clients write it, see `times.may_expire`: the creation time behind a null.
            end = self.count_at + data[self.count_at - 1]
            if data[end - 10] == 0x40 and data[end - 9] == 0x83 and data[end - 18] != 0x83:
                return 0, self.flags
        absolute, is_grouped = times.expiry_and_group(data, self.start)
        return absolute, self.flags | GROUPED if is_grouped else self.flags

    def look_safely(self, data: bytes) -> tuple[int, int]:
        """The same; of a message whose properties can't be read, these say nothing."""
        try:
            return self.look(data)
        except (DecodeError, IndexError):
            return 0, self.flags


_NEVER: Final = b"\xff"
"""No message begins so."""

UNKNOWN: Final = MessagePrefix(_NEVER, Head(False, 4, None, False, 0, 0, 0))
"""No message was seen yet."""
