"""How much transactions may hold on a Broker, and for how long: as people write it in its spec, and as the broker's
configuration has it. Source: docs/transactions.md.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from penstock_api.resources import base

__all__ = ["TransactionLimits", "transaction_settings"]

_LEAST: Final = 1024
_MOST: Final = 32 * 1024 * 1024
"""Half a segment of the log, whose size a Broker's spec doesn't change."""


def _check_size(text: str) -> str:
    if not _LEAST <= base.quantity_bytes(text) <= _MOST:
        raise ValueError(f"{text!r} must be 1Ki to 32Mi: a transaction has to fit half a segment of the log")
    return text


def _check_total(text: str) -> str:
    if base.quantity_bytes(text) < _LEAST:
        raise ValueError(f"{text!r} must be at least 1Ki")
    return text


Size = Annotated[
    base.Quantity,
    Field(
        json_schema_extra=base.validations(
            base.IS_QUANTITY,
            base.cel(
                "!isQuantity(self) || (quantity(self).compareTo(quantity('1Ki')) >= 0 "
                "&& quantity(self).compareTo(quantity('32Mi')) <= 0)",
                "must be 1Ki to 32Mi: a transaction has to fit half a segment of the log",
            ),
        )
    ),
    AfterValidator(_check_size),
]
Total = Annotated[
    base.Quantity,
    Field(
        json_schema_extra=base.validations(
            base.IS_QUANTITY,
            base.cel("!isQuantity(self) || quantity(self).compareTo(quantity('1Ki')) >= 0", "must be at least 1Ki"),
        )
    ),
    AfterValidator(_check_total),
]


class TransactionLimits(base.Spec):
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


def transaction_settings(limits: TransactionLimits) -> dict[str, object]:
    """As the broker's configuration has it; only what is set."""
    settings = limits.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=set(_SIZES))
    for name, key in _SIZES.items():
        size = getattr(limits, name)
        if size is not None:
            settings[key] = base.quantity_bytes(size)
    return settings
