"""What the configuration says of transactions: the key `transactions`.

Source: issue 4 ("Limits on size and age"); docs/transactions.md.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from penstock_broker.settings.security import Model
from penstock_core.transaction_rules import TransactionLimits

__all__ = ["TransactionSettings"]


SEGMENT_BYTES_PER_MESSAGE: Final = 256
"""A commit is one record, of at most half a segment; this is more than twice what it takes per message."""


class TransactionSettings(Model):
    """How much transactions may hold, and for how long. What goes over a limit is rolled back."""

    max_messages: int = Field(default=100_000, ge=1)
    """Messages sent and deliveries settled in one transaction; fewer if log segments are small."""
    max_bytes: int | None = Field(default=None, ge=1024)
    """Messages sent in one transaction; absent: a quarter of a log segment, or the longest message if that is more."""
    max_bytes_per_connection: int = Field(default=256 * 1024 * 1024, ge=1024)
    """Messages sent in all open transactions of a connection."""
    max_bytes_in_memory: int = Field(default=512 * 1024 * 1024, ge=1024)
    """Of messages sent in all open transactions of all connections, what is not in the log already."""
    max_open_per_connection: int = Field(default=256, ge=1)
    max_age_seconds: int = Field(default=600, ge=0)
    """From the first message sent, or delivery settled, in it; 0: no limit."""

    def check(self, segment_bytes: int) -> None:
        """Raise `ValueError` if a transaction could be larger than the log takes at once."""
        if (self.max_bytes or 0) > segment_bytes // 2:
            raise ValueError(
                f"transactions of {self.max_bytes} bytes don't fit log segments of {segment_bytes}: raise "
                "log.segmentBytes to twice transactions.maxBytes, or lower that"
            )

    def limits(self, segment_bytes: int, max_message_bytes: int) -> TransactionLimits:
        """The same in the terms of the rules."""
        return TransactionLimits(
            messages=min(self.max_messages, segment_bytes // SEGMENT_BYTES_PER_MESSAGE),
            bytes=self.max_bytes or max(segment_bytes // 4, max_message_bytes),
            connection_bytes=self.max_bytes_per_connection,
            memory_bytes=self.max_bytes_in_memory,
            connection_open=self.max_open_per_connection,
            age_ms=self.max_age_seconds * 1000,
        )
