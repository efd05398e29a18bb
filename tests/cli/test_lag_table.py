"""The lag table: figures as they are, `-` for what is not known, ages as kubectl writes them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock_api.result import LagResult, LagState, SubscriptionLag
from penstock_cli.lag_table import duration, lag_table

AT = datetime(2026, 5, 4, 10, 20, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (61, "1m1s"),
        (3599, "59m59s"),
        (3600, "1h"),
        (7260, "2h1m"),
        (90000, "1d1h"),
        (86400, "1d"),
    ],
)
def test_durations(seconds: int | None, text: str) -> None:
    assert duration(seconds) == text


def test_table() -> None:
    result = LagResult(
        broker="shop",
        namespace="default",
        run_name="demo-1",
        window_start=datetime(2026, 5, 4, 10, 5, 30, tzinfo=UTC),
        window_end=AT,
        expected_brokers=2,
        reporting_brokers=1,
        missing=("shop-1: no segment since 10:00",),
        segments=("a.parquet", "b.parquet"),
        subscriptions=(
            SubscriptionLag(
                queue_name="psub:durable:global:billing",
                owner_namespace="default",
                owner_name="billing",
                observed_time=AT,
                state=LagState.UNCONSUMED,
                message="",
                messages=2500,
                ready=2500,
                in_flight=0,
                oldest_age_seconds=75,
                arrival_per_minute=1200,
                settled_per_minute=0,
                consumers=0,
            ),
            SubscriptionLag(
                queue_name="psub:durable:global:x", observed_time=AT, state=LagState.UNKNOWN, message="nothing seen"
            ),
        ),
    )
    assert lag_table(result) == (
        "run demo-1: 10:05:30 to 10:20:30 UTC, 2 segments, 1 of 2 brokers\n"
        "SUBSCRIPTION           STATE       MESSAGES  READY  IN-FLIGHT  OLDEST  IN/MIN  OUT/MIN  CONSUMERS\n"
        "default/billing        Unconsumed      2500   2500          0   1m15s    1200        0          0\n"
        "psub:durable:global:x  Unknown            -      -          -       -       -        -          -\n"
        "missing: shop-1: no segment since 10:00"
    )
