"""What a broker takes less of where its process may have little memory. Pure."""

from __future__ import annotations

from typing import Final

from penstock_broker.settings.settings import BrokerSettings

__all__ = ["fitted"]

LITTLE_BYTES: Final = 512 * 1024 * 1024
FRAME_BYTES: Final = 16 * 1024
"""A connection that receives a long message takes about three times a frame in the engine: of 64 KiB, a thousand
connections would take as much as all messages may."""


def fitted(given: BrokerSettings, limit: int) -> BrokerSettings:
    """The settings with shorter frames if the process may have less than 512 MiB. `limit`: bytes that it may have."""
    if limit >= LITTLE_BYTES or given.max_frame_bytes <= FRAME_BYTES:
        return given
    return given.model_copy(update={"max_frame_bytes": FRAME_BYTES})
