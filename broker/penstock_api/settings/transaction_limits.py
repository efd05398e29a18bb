"""How much transactions may hold on a Broker, and for how long: as people write it in its spec, and as the broker's
configuration has it. Source: docs/transactions.md.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from penstock_api.resources import base

__all__ = ["TransactionLimitsSpec", "transaction_settings"]

_ONE: Final = ("must be 1Ki to 32Mi: a transaction has to fit half a segment of the log", "1Ki", "32Mi")
"""Bounds of one transaction. A Broker's spec doesn't change how long a segment is."""
_ALL: Final = ("must be at least 1Ki", "1Ki")

Size = Annotated[
    base.Quantity,
    Field(json_schema_extra=base.bounds_of_quantity(*_ONE)),
    AfterValidator(base.bounded_quantity(*_ONE)),
]
Total = Annotated[
    base.Quantity,
    Field(json_schema_extra=base.bounds_of_quantity(*_ALL)),
    AfterValidator(base.bounded_quantity(*_ALL)),
]


class TransactionLimitsSpec(base.Spec):
    """What transactions may hold; one that goes over a limit is rolled back, and its client told which."""

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
    """From the first message on; 0: no limit; left out: 600."""


_SIZES: Final = {
    "max_size": "maxBytes",
    "max_size_per_connection": "maxBytesPerConnection",
    "max_size_in_memory": "maxBytesInMemory",
}


def transaction_settings(limits: TransactionLimitsSpec) -> dict[str, object]:
    """As the broker's configuration has it; only what is set."""
    settings = limits.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=set(_SIZES))
    for name, key in _SIZES.items():
        size = getattr(limits, name)
        if size is not None:
            settings[key] = base.quantity_bytes(size)
    return settings
