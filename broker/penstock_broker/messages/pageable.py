"""Which messages a queue can leave in the log, by their bytes as they stand there: asked at a start, for each message.

They are those of which an entry says no more than the log does: without a delay, of normal priority, of no group. Each
costs one comparison if it begins like the one before. Whoever has it answer otherwise raises `DIGEST_VERSION`, because
digests keep the answers (docs/decisions/085-digests.md). Source: docs/decisions/082-paging.md.
"""

from __future__ import annotations

from penstock_amqp.messages.message_head import read_head
from penstock_broker.log import KEEP, CommonStart
from penstock_broker.queue.message_prefix import NO_TIMES, UNKNOWN, MessagePrefix
from penstock_core.message_times import expires_at

__all__ = ["PageableMessages"]


class PageableMessages:
    """Remembers how the last message began."""

    __slots__ = ("_beginning",)

    def __init__(self) -> None:
        self._beginning = UNKNOWN

    @property
    def common_start(self) -> CommonStart | None:
        """How messages begin that are like the one before: these may be left in the log, and never expire."""
        beginning = self._beginning
        if beginning.flags or beginning.ttl_us:
            return None
        return CommonStart(beginning.prefix, beginning.count_at, NO_TIMES)

    def expiry(self, data: bytes, start: int, end: int, arrival: int) -> int:
        """When the message expires that lies from `start` to `end`, microseconds since the epoch; 0: never. `KEEP` if
        the queue has to have it in memory. The record of the message asks for no delay.
        """
        beginning = self._beginning
        at = start + beginning.count_at
        if not data.startswith(beginning.prefix, start, end):
            payload = data[start:end]
            beginning = self._beginning = MessagePrefix(payload, read_head(payload))
            absolute, flags = beginning.look_safely(payload)
        elif at < end and data[at] <= NO_TIMES:
            absolute, flags = 0, beginning.flags
        else:
            absolute, flags = beginning.look_safely(data[start:end])
        if flags:
            return KEEP
        if not absolute and not beginning.ttl_us:
            return 0
        return expires_at(arrival, beginning.ttl_us // 1000, absolute)
