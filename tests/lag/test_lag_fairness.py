"""Who got how much, and whether that is fair: from the ledger's text to the figures, worked out by hand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lag.figures_factory import END_MS, figures

from penstock_api.lag_result import ConsumerShare
from penstock_lag.figures.consumers import ConsumersAt, consumer_work
from penstock_lag_rules.entry import subscription_lag
from penstock_lag_rules.fairness import fairness_percent, shares
from penstock_lag_rules.figures import ConsumerWork
from penstock_lag_rules.thresholds import Thresholds

T = Thresholds()
MINUTE = 60_000


def at(minutes: int, **consumers: tuple[int, int]) -> ConsumersAt:
    """Of each container the minute at which it connected, and its deliveries."""
    rows = [
        {"container": name, "sinceMs": since * MINUTE, "delivered": count} for name, (since, count) in consumers.items()
    ]
    return ConsumersAt.of(minutes * MINUTE, json.dumps(rows))


def test_what_was_delivered_before_the_window_does_not_count() -> None:
    found = consumer_work([(at(10, a=(0, 9_000), b=(0, 100)), at(15, a=(0, 9_300), b=(0, 500)))])
    assert found == (ConsumerWork("b", 400, 5 * MINUTE), ConsumerWork("a", 300, 5 * MINUTE))


def test_who_came_in_between_counts_from_then_on() -> None:
    """Also one that connected again: its links count from zero."""
    found = consumer_work([(at(10, a=(0, 50), c=(3, 70)), at(15, a=(0, 350), b=(14, 60), c=(13, 120)))])
    assert found == (
        ConsumerWork("a", 300, 5 * MINUTE),
        ConsumerWork("c", 120, 2 * MINUTE),
        ConsumerWork("b", 60, 1 * MINUTE),
    )


def test_who_went_or_was_not_on_the_list_is_left_out() -> None:
    """Of `b`, which was connected before, nobody knows what it had got by then."""
    found = consumer_work([(at(10, a=(0, 50), gone=(0, 900)), at(15, a=(0, 90), b=(4, 700)))])
    assert found == (ConsumerWork("a", 40, 5 * MINUTE),)


def test_a_link_that_goes_is_no_negative_delivery() -> None:
    assert consumer_work([(at(10, a=(0, 500)), at(15, a=(0, 200)))]) == (ConsumerWork("a", 0, 5 * MINUTE),)


def test_lives_add_up() -> None:
    """The second began in the window; of the third nothing is known."""
    found = consumer_work(
        [(at(10, a=(0, 50)), at(12, a=(0, 150))), (None, at(15, a=(13, 40))), (None, None), (at(15), None)]
    )
    assert found == (ConsumerWork("a", 140, 4 * MINUTE),)


def test_a_ledger_of_an_earlier_release_names_nobody() -> None:
    assert consumer_work([(ConsumersAt.of(0, None), ConsumersAt.of(MINUTE, None))]) == ()
    assert shares(()) == ()
    assert fairness_percent((), T) is None


def test_shares_are_of_those_that_are_listed() -> None:
    consumers = (ConsumerWork("a", 500, MINUTE), ConsumerWork("b", 375, MINUTE), ConsumerWork("c" * 300, 125, MINUTE))
    assert shares(consumers) == (
        ConsumerShare(container="a", delivered=500, percent=50),
        ConsumerShare(container="b", delivered=375, percent=38),
        ConsumerShare(container="c" * 255, delivered=125, percent=13),
    )
    assert shares((ConsumerWork("a", 1_000, MINUTE),)) == (ConsumerShare(container="a", delivered=1_000, percent=100),)
    assert shares((ConsumerWork("a", 0, MINUTE),)) == ()


@pytest.mark.parametrize(
    ("consumers", "fairness"),
    [
        ([(100, 300), (100, 300)], 100),
        ([(200, 300), (0, 300)], 50),
        ([(400, 300), (0, 300), (0, 300), (0, 300)], 25),
        # (3 + 1)^2 / (2 * (9 + 1))
        ([(300, 300), (100, 300)], 80),
        # who came late has as much in the same time
        ([(500, 300), (100, 60)], 100),
        # 20 a second for 29 s say nothing
        ([(500, 300), (580, 29)], None),
        ([(500, 300), (50, 30)], 100),
        ([(100, 300)], None),
        ([(39, 300), (0, 300)], None),
        ([(40, 300), (0, 300)], 50),
    ],
)
def test_fairness_compares_what_was_got_in_the_same_time(
    consumers: list[tuple[int, int]], fairness: int | None
) -> None:
    work = [ConsumerWork(f"c-{number}", got, seconds * 1_000) for number, (got, seconds) in enumerate(consumers)]
    assert fairness_percent(work, T) == fairness


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(30_000, 10**9)), min_size=2, max_size=8))
def test_fairness_lies_between_one_for_all_and_all_the_same(consumers: list[tuple[int, int]]) -> None:
    found = fairness_percent([ConsumerWork("c", got, connected_ms) for got, connected_ms in consumers], T)
    assert found is None or round(100 / len(consumers)) <= found <= 100


def test_the_entry_has_both() -> None:
    found = figures(consumers=(ConsumerWork("c-1", 300, MINUTE), ConsumerWork("c-2", 100, MINUTE)))
    lag = subscription_lag(found, None, END_MS, T)
    assert [(each.container, each.percent) for each in lag.shares] == [("c-1", 75), ("c-2", 25)]
    assert lag.fairness_percent == 80
    assert subscription_lag(figures(), None, END_MS, T).shares == ()
