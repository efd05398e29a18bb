"""What the broker knows of its volume: how full it is, which queues hold most, and what was refused.

`messages.storage_watch` keeps it up to date; `management` and the forwarding path read it. Sizes are bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock_core.storage_level import StorageLevel, held_back_from

__all__ = ["LargeQueue", "Storage", "VolumeSpace"]


class VolumeSpace(NamedTuple):
    """The size of a volume as far as this process may fill it, and what is left of it."""

    total: int
    free: int


class LargeQueue(NamedTuple):
    """A queue that is among the largest of those that last. Ordered by its size."""

    depth_bytes: int
    name: str
    is_subscription: bool
    consumers: int


class Storage:
    """Of one broker."""

    __slots__ = ("largest", "level", "refused", "total_bytes", "used_bytes")

    def __init__(self) -> None:
        self.level = StorageLevel.OK
        self.total_bytes = 0
        """0: not known."""
        self.used_bytes = 0
        """What publishers can't have: all but the volume's free space and what the log holds ready for them."""
        self.largest: tuple[LargeQueue, ...] = ()
        """At most three, the largest first; none while the level is `OK`."""
        self.refused = 0
        """Messages that were refused for want of room since the start."""

    @property
    def held_from(self) -> float:
        """The share of the volume from which producers are held back."""
        return held_back_from(self.total_bytes)

    @property
    def used_share(self) -> float:
        """0 to 1; 0 if the volume's size is not known."""
        return self.used_bytes / self.total_bytes if self.total_bytes else 0.0
