"""How much transactions may hold on a broker, and for how long.

The configuration file has sizes in bytes, and the defaults. A resource has quantities, and leaves out what it does not
change. Source: docs/concepts/transactions.md.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from penstock_api import quantity, schema
from penstock_core.transaction_rules import TransactionLimits

__all__ = ["TransactionLimitsSpec", "TransactionSettings", "transaction_settings"]

SEGMENT_BYTES_PER_MESSAGE: Final = 256
"""A commit is one log record of at most half a segment, and takes less than half of these bytes per message."""


class TransactionSettings(schema.Spec):
    """How much transactions may hold, and for how long. A transaction that exceeds a limit is rolled back."""

    max_messages: int = Field(default=100_000, ge=1)
    """Messages sent and deliveries settled in one transaction; fewer if log segments are small."""
    max_bytes: quantity.SizeBytes | None = Field(default=None, ge=1024)
    """Bytes of messages sent in one transaction; absent: a quarter of a log segment, or the size of the largest message
    that is accepted, if that is more.
    """
    max_bytes_per_connection: quantity.SizeBytes = Field(default=256 * 1024 * 1024, ge=1024)
    """Bytes of messages sent in all open transactions of a connection."""
    max_bytes_in_memory: quantity.SizeBytes = Field(default=512 * 1024 * 1024, ge=1024)
    """Bytes of messages sent in all open transactions of all connections that are not in the log yet."""
    max_open_per_connection: int = Field(default=256, ge=1)
    max_age_seconds: int = Field(default=600, ge=0)
    """Counted from the first message sent or delivery settled in it; 0: no limit."""

    def check(self, segment_bytes: int) -> None:
        """Raise `ValueError` if a transaction could be larger than the log takes at once."""
        if (self.max_bytes or 0) > segment_bytes // 2:
            raise ValueError(
                f"transactions of {self.max_bytes} bytes don't fit log segments of {segment_bytes}: raise "
                "log.segmentBytes to twice transactions.maxBytes, or lower transactions.maxBytes"
            )

    def limits(self, segment_bytes: int, max_message_bytes: int) -> TransactionLimits:
        """The same as limits of `penstock_core`."""
        return TransactionLimits(
            messages=min(self.max_messages, segment_bytes // SEGMENT_BYTES_PER_MESSAGE),
            bytes=self.max_bytes or max(segment_bytes // 4, max_message_bytes),
            connection_bytes=self.max_bytes_per_connection,
            memory_bytes=self.max_bytes_in_memory,
            connection_open=self.max_open_per_connection,
            age_ms=self.max_age_seconds * 1000,
        )


_ONE: Final = ("must be 1Ki to 32Mi: a transaction has to fit half a segment of the log", "1Ki", "32Mi")
"""Bounds of one transaction. A Broker's spec doesn't change how long a segment is."""
_ALL: Final = ("must be at least 1Ki", "1Ki")

Size = Annotated[
    quantity.Quantity,
    Field(json_schema_extra=quantity.bounds_of_quantity(*_ONE)),
    AfterValidator(quantity.bounded_quantity(*_ONE)),
]
Total = Annotated[
    quantity.Quantity,
    Field(json_schema_extra=quantity.bounds_of_quantity(*_ALL)),
    AfterValidator(quantity.bounded_quantity(*_ALL)),
]


class TransactionLimitsSpec(schema.Spec):
    """What transactions may hold; one that exceeds a limit is rolled back, and its client is told which limit."""

    max_messages: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """Messages sent and deliveries settled in one transaction; left out: 100,000."""
    max_size: Size | None = None
    """Bytes of messages sent in one transaction; left out: 16Mi, or `maxMessageSize` if that is more."""
    max_size_per_connection: Total | None = None
    """Bytes of messages in all open transactions of a connection; left out: 256Mi."""
    max_size_in_memory: Total | None = None
    """Bytes of messages in all open transactions of all connections, as far as they are not in the log already; left
    out: 512Mi. Keep it well under the container's memory limit.
    """
    max_open_per_connection: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Open transactions of a connection; left out: 256."""
    max_age_seconds: Annotated[int, Field(ge=0, le=2**31)] | None = None
    """Longest time that a transaction may stay open after its first message; 0: no limit; left out: 600."""


_SIZES: Final = {
    "max_size": "maxBytes",
    "max_size_per_connection": "maxBytesPerConnection",
    "max_size_in_memory": "maxBytesInMemory",
}


def transaction_settings(limits: TransactionLimitsSpec) -> dict[str, object]:
    """The settings in the broker's configuration file; only those that are set."""
    settings = limits.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=set(_SIZES))
    for name, key in _SIZES.items():
        size = getattr(limits, name)
        if size is not None:
            settings[key] = quantity.quantity_bytes(size)
    return settings
