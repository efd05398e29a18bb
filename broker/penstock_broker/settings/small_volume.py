"""The size of the log's files on a small volume, and the least volume that a broker can use. Pure."""

from __future__ import annotations

from typing import Final

from penstock_api.failure import CannotRun, Misuse
from penstock_broker.settings.settings import BrokerSettings

__all__ = ["LEAST_VOLUME", "fitted"]

MIB: Final = 1024 * 1024
LEAST_SEGMENT: Final = MIB
SEGMENTS: Final = 16
"""A volume has room for so many at least: one is written, three are in reserve, the others hold messages."""
LEAST_VOLUME: Final = 8 * LEAST_SEGMENT


def fitted(given: BrokerSettings, volume_bytes: int) -> BrokerSettings:
    """The settings with segments of at most a sixteenth of the volume, in whole MiB.

    `volume_bytes`: 0 if the volume does not tell its size. Raises CannotRun if it is too small for any log, and Misuse
    if transactions of the size that is set no longer fit a segment.
    """
    if not volume_bytes:
        return given
    if volume_bytes < LEAST_VOLUME:
        cause = f"The volume has {volume_bytes} bytes, and a broker needs at least {LEAST_VOLUME} (8 MiB)."
        raise CannotRun(cause, "Give the data folder a larger volume.")
    segment = max(volume_bytes // SEGMENTS // MIB * MIB, LEAST_SEGMENT)
    if segment >= given.log.segment_bytes:
        return given
    try:
        given.transactions.check(segment)
    except ValueError as error:
        cause = f"The volume has {volume_bytes} bytes, so that log segments have {segment}; {error}."
        raise Misuse(cause, "Lower transactions.maxBytes, or give the data folder a larger volume.") from error
    return given.model_copy(update={"log": given.log.model_copy(update={"segment_bytes": segment})})
