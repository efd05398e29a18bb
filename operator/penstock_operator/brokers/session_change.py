"""What a session with a broker tells the Broker to which it belongs."""

from __future__ import annotations

from enum import Enum

__all__ = ["SessionChange"]


class SessionChange(Enum):
    """What has changed about a broker."""

    REACH = "Reach"
    """The broker became reachable, is a new instance, or is not understood any more: reconcile everything that is
    declared on it.
    """
    LOST = "Lost"
    """The broker does not answer, any more or at the first attempt."""
    STATE = "State"
    """What the broker reports about itself has changed."""
