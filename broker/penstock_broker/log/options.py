"""How a log is kept."""

from dataclasses import dataclass

from penstock_broker.log.disk.syncers import SyncChoice
from penstock_broker.log.recovery.record_reader import KEPT_BYTES

__all__ = ["LARGEST_SEGMENT", "SEGMENT_UNIT", "SMALLEST_SEGMENT", "LogOptions"]

SMALLEST_SEGMENT = 16 * 1024
"""Bytes."""
LARGEST_SEGMENT = 4 * 1024 * 1024 * 1024
"""Bytes. The header of a block says in 32 bits where in its segment it begins."""
SEGMENT_UNIT = 4096
"""Segments are a multiple of so many bytes."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log is kept. ValueError if the segment size can't work."""

    segment_bytes: int = 64 * 1024 * 1024
    reserve: int = 2
    """Spare segments that only acks, topology and compaction may use."""
    spare: int = 1
    """Spare segments that are kept ready besides those of the reserve."""
    inline_bytes: int = 1024 * 1024
    """A longer payload whose body came in parts stays in the segments; see `LargePayload`."""
    sync: SyncChoice = SyncChoice.AUTO
    kept_bytes: int = KEPT_BYTES
    """If live messages take more memory than this at a start, bodies are left in the log; see `Recovered.paged`."""

    digest_after_ms: int = 10_000
    """A segment that is needed so long after it was sealed gets a digest, so that a start need not read it."""

    def __post_init__(self) -> None:
        if not SMALLEST_SEGMENT <= self.segment_bytes <= LARGEST_SEGMENT or self.segment_bytes % SEGMENT_UNIT:
            raise ValueError(
                f"segment_bytes is a multiple of {SEGMENT_UNIT} from {SMALLEST_SEGMENT} to {LARGEST_SEGMENT}, not "
                f"{self.segment_bytes}"
            )
