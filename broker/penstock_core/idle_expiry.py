"""When a subscription that nobody uses any more has been left behind.

Only what a client made, and only where the broker is told to: a resource's subscription is its owner's to end. Time
counts since the last consumer left. What a broker's downtime adds is not held against anybody: for some minutes after
a start nothing ends, so that whoever was kept out has time to come back. Source: issue "Orphans and ClientID in
clusters" of facts/amqp.md 5; docs/broker.md.
"""

from __future__ import annotations

from typing import Final

__all__ = ["GRACE_SECONDS", "has_idled"]

GRACE_SECONDS: Final = 600
"""After a start, unless the limit itself is shorter."""


def has_idled(
    *, now_us: int, unused_since_us: int, started_us: int, limit_seconds: int | None, is_lasting: bool, managed: bool
) -> bool:
    """True if the subscription is to be ended. `unused_since_us` is 0 while somebody consumes; `is_lasting`: durable
    and permanent, all others end by their lifetime.
    """
    if limit_seconds is None or managed or not is_lasting or not unused_since_us:
        return False
    limit_us = limit_seconds * 1_000_000
    grace_us = min(limit_seconds, GRACE_SECONDS) * 1_000_000
    return now_us - unused_since_us >= limit_us and now_us - started_us >= grace_us
