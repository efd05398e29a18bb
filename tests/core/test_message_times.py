"""When a message may be delivered, and until when: JMS 2.0, 3.4.5 and 7.9; AMQP 1.0 part 3."""

from __future__ import annotations

import pytest

from penstock_core.message_times import FOREVER_MS, RequestedTimes, available_at, bounded, expires_at

AT = 5_000_000  # microseconds: 5000 ms


@pytest.mark.parametrize(
    ("ttl_ms", "absolute_ms", "expires_us"),
    [
        (None, None, 0),
        (0, None, 0),
        (10, None, 5_010_000),
        (None, 5_007, 5_007_000),
        (10, 5_007, 5_007_000),
        (5, 5_007, 5_005_000),
        (None, 4_000, 4_000_000),  # expired before it came
        (None, 0, 0),  # JMSExpiration 0: never
        (None, -1, 0),
        (10, 0, 5_010_000),
        (None, 2**63 - 1, 0),  # some write "never" like this
        (None, FOREVER_MS - 1, (FOREVER_MS - 1) * 1000),
        (None, FOREVER_MS, 0),
    ],
)
def test_the_earlier_of_ttl_and_absolute_expiry_wins(
    ttl_ms: int | None, absolute_ms: int | None, expires_us: int
) -> None:
    assert expires_at(AT, ttl_ms, absolute_ms) == expires_us


@pytest.mark.parametrize(
    ("expires_us", "max_ttl_us", "answer"),
    [
        (0, 0, 0),
        (7_000_000, 0, 7_000_000),
        (0, 1_000_000, 6_000_000),
        (5_500_000, 1_000_000, 5_500_000),
        (9_000_000, 1_000_000, 6_000_000),
    ],
)
def test_a_queue_bounds_it(expires_us: int, max_ttl_us: int, answer: int) -> None:
    assert bounded(expires_us, AT, max_ttl_us) == answer


@pytest.mark.parametrize(
    ("requested", "available_us"),
    [
        (RequestedTimes(), 5_000_000),
        (RequestedTimes(delivery_time_ms=9_000), 9_000_000),
        (RequestedTimes(delivery_time_ms=4_000), 5_000_000),
        (RequestedTimes(delivery_delay_ms=20), 5_020_000),
        (RequestedTimes(delivery_delay_ms=-20), 5_000_000),
        (RequestedTimes(delivery_time_ms=9_000, delivery_delay_ms=20), 9_000_000),
        (RequestedTimes(delivery_time_ms=2**64 - 1), FOREVER_MS * 1000),
        (RequestedTimes(delivery_delay_ms=2**64 - 1), AT + FOREVER_MS * 1000),
    ],
)
def test_a_delivery_time_goes_over_a_delay_and_the_past_means_now(requested: RequestedTimes, available_us: int) -> None:
    assert available_at(AT, requested) == available_us


def test_every_time_has_64_bits_as_microseconds() -> None:
    """The log, replies and annotations say them so."""
    year_3000_us = 32_503_680_000 * 10**6
    assert available_at(year_3000_us, RequestedTimes(delivery_delay_ms=2**63 - 1)) < 2**63
    assert expires_at(year_3000_us, None, FOREVER_MS - 1) < 2**63
