"""When a message may be delivered, and until when.

Time to live counts from when the broker got the message, and a delay does not prolong it (JMS 2.0, 3.4.5 and 7.9). An
absolute expiry is a time on the sender's clock, compared with the broker's. The earlier of the two holds, and neither
may be later than the queue's upper bound. A delivery time is absolute and has no time zone; a delivery delay counts
from when the broker got the message. A time in the past, zero or a negative number is as good as none.

Times are microseconds since the epoch on the broker's clock; durations, and what messages say, are milliseconds.
Source: AMQP 1.0 part 3, 3.2.1 and 3.2.4; `x-opt-delivery-time` and `x-opt-delivery-delay` as JMS clients send them.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FOREVER_MS", "NO_REQUESTED_TIMES", "RequestedTimes", "available_at", "bounded", "delay_us", "expires_at"]

FOREVER_MS = 1 << 53
"""A greater number is not a time: some clients write "never" so. As microseconds, times up to this one and delays by it
have 64 bits, too."""


@dataclass(frozen=True, slots=True)
class RequestedTimes:
    """The times that a message asks for; None where it asks for none."""

    absolute_expiry_ms: int | None = None
    delivery_time_ms: int | None = None
    delivery_delay_ms: int | None = None


NO_REQUESTED_TIMES = RequestedTimes()


def expires_at(arrived_us: int, ttl_ms: int | None, absolute_expiry_ms: int | None) -> int:
    """When the message expires; 0: never."""
    by_ttl = arrived_us + ttl_ms * 1000 if ttl_ms else 0
    if absolute_expiry_ms is None or not 0 < absolute_expiry_ms < FOREVER_MS:
        return by_ttl
    absolute_us = absolute_expiry_ms * 1000
    return min(by_ttl, absolute_us) if by_ttl else absolute_us


def bounded(expires_us: int, arrived_us: int, max_ttl_us: int) -> int:
    """The expiry in a queue that keeps no message longer than `max_ttl_us` (0: no bound)."""
    if not max_ttl_us:
        return expires_us
    latest = arrived_us + max_ttl_us
    return min(expires_us, latest) if expires_us else latest


def available_at(arrived_us: int, requested: RequestedTimes) -> int:
    """When the message may be delivered: on arrival or later. With both, the delivery time holds, not the delay."""
    wanted_us = 0
    if requested.delivery_time_ms is not None:
        wanted_us = min(requested.delivery_time_ms, FOREVER_MS) * 1000
    elif requested.delivery_delay_ms is not None:
        wanted_us = arrived_us + delay_us(requested.delivery_delay_ms)
    return max(wanted_us, arrived_us)


def delay_us(delivery_delay_ms: int) -> int:
    """For how long a message waits that asks for such a delay."""
    return min(delivery_delay_ms, FOREVER_MS) * 1000
