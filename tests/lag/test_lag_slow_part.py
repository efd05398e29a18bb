"""Is it the handler or the queue: the rule with its edges, and what the sentences say."""

from __future__ import annotations

from typing import Any

import pytest
from lag.figures_factory import END_MS, figures

from penstock_api.lag_result import LagState, SlowPart, SubscriptionLag
from penstock_lag_rules.entry import subscription_lag
from penstock_lag_rules.figures import Duration, Figures
from penstock_lag_rules.slow_part import Means, means, slow_part
from penstock_lag_rules.thresholds import Thresholds

T = Thresholds()


def lag_of(found: Figures) -> SubscriptionLag:
    return subscription_lag(found, None, END_MS, T)


@pytest.mark.parametrize(
    ("wait_ms", "hold_ms", "part"),
    [
        (100, 2_000, SlowPart.HANDLER),
        (63_000, 2_000, SlowPart.QUEUE),
        (1_000, 2_000, SlowPart.HANDLER),
        (1_001, 2_000, SlowPart.NONE),  # one is as slow as the other
        (2_000, 1_001, SlowPart.NONE),
        (0, 99, SlowPart.NONE),  # twice nothing is nothing
        (0, 100, SlowPart.HANDLER),
        (100, 0, SlowPart.QUEUE),
        (99, 0, SlowPart.NONE),
        (0, 0, SlowPart.NONE),
    ],
)
def test_the_slow_part_takes_twice_as_long_as_the_other(wait_ms: int, hold_ms: int, part: SlowPart) -> None:
    assert slow_part(Means(wait_ms, hold_ms), T) is part


@pytest.mark.parametrize(("waits", "holds"), [(19, 20), (20, 19), (0, 0)])
def test_few_messages_say_nothing(waits: int, holds: int) -> None:
    assert means(Duration(waits, 9_999), Duration(holds, 9_999), T) is None
    lag = lag_of(figures(wait=Duration(waits, 9_999, 50), hold=Duration(holds, 9_999, 50)))
    assert (lag.mean_wait_millis, lag.mean_hold_millis, lag.slow_part) == (None, None, None)
    assert "on average" not in lag.message


def test_a_run_has_percentiles_beside_the_means() -> None:
    """Bucket 50 is 2**(50.5/8) = 79 ms, bucket 96 is 2**(96.5/8) = 4,277 ms."""
    lag = lag_of(figures(wait=Duration(20, 1_000, 50), hold=Duration(40, 80_039, 96)))
    assert (lag.mean_wait_millis, lag.wait_p95_millis) == (50, 79)
    assert (lag.mean_hold_millis, lag.hold_p95_millis) == (2_000, 4_277)
    assert lag.slow_part is SlowPart.HANDLER


@pytest.mark.parametrize(
    ("changes", "state"),
    [({"recent": {"first_depth": 430}}, LagState.LAGGING), ({}, LagState.BACKLOG_STEADY)],
)
def test_the_sentence_of_a_backlog_says_where_the_time_goes(changes: dict[str, Any], state: LagState) -> None:
    lag = lag_of(figures(wait=Duration(100, 6_300_000), hold=Duration(100, 204_000), **changes))
    assert lag.state is state
    assert lag.message.endswith(
        "500 messages wait, the oldest for 70 s; on average a message waited 63 s for a consumer and was held for 2.0 s"
    )


@pytest.mark.parametrize(
    ("hold_ms", "told"), [(0, "0 ms"), (999, "999 ms"), (1_000, "1.0 s"), (9_949, "9.9 s"), (10_999, "10 s")]
)
def test_a_short_time_is_told_more_exactly(hold_ms: int, told: str) -> None:
    lag = lag_of(figures(wait=Duration(100, 0), hold=Duration(100, 100 * hold_ms)))
    assert lag.message.endswith(f"and was held for {told}")


def test_a_part_that_a_later_release_knows_is_read_as_absent() -> None:
    document = lag_of(figures()).model_dump(mode="json", by_alias=True)
    assert SubscriptionLag.model_validate({**document, "slowPart": "Network"}).slow_part is None
    assert SubscriptionLag.model_validate({**document, "slowPart": "Handler"}).slow_part is SlowPart.HANDLER
