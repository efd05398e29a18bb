"""When a permanent subscription that nobody uses any more is ended (the setting `idleExpirySeconds`).

This concerns only subscriptions that a client made, and only where the setting is given: a subscription that a resource
declares is ended by its resource. The time counts from when the last consumer left. Time during which the broker was
down must not end anything: for some minutes after a start no subscription is ended, so that clients can come back.
Source: docs/reference/configuration.md, "delivery"; docs/decisions/002-durability-and-lifetime.md.
"""

from __future__ import annotations

from typing import Final

__all__ = ["GRACE_SECONDS", "has_idled"]

GRACE_SECONDS: Final = 600
"""Nothing is ended for so long after a start, or for the limit itself if that is shorter."""


def has_idled(
    *, now_us: int, unused_since_us: int, started_us: int, limit_seconds: int | None, is_permanent: bool, managed: bool
) -> bool:
    """True if the subscription is to be ended.

    Args:
        now_us, unused_since_us, started_us: microseconds since the epoch; `unused_since_us` is 0 while a link consumes.
        is_permanent: its lifetime is, whether it is durable or not; all others end by their lifetime.
        managed: a resource declares it.
    """
    if limit_seconds is None or managed or not is_permanent or not unused_since_us:
        return False
    limit_us = limit_seconds * 1_000_000
    grace_us = min(limit_seconds, GRACE_SECONDS) * 1_000_000
    return now_us - unused_since_us >= limit_us and now_us - started_us >= grace_us
