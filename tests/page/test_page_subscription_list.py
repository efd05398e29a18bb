"""Order, search and pages of the overview."""

from __future__ import annotations

import pytest
from page.lags import a_lag

from penstock_api.lag_result import LagState
from penstock_page.subscription_list import ROWS, Wanted, listing, wanted
from penstock_page.trouble import SHOWN, sorted_by_trouble


def test_every_state_has_a_place_and_a_symbol() -> None:
    assert set(SHOWN) == set(LagState)
    assert all(len(shown.symbol) == 1 for shown in SHOWN.values())


def test_trouble_comes_first() -> None:
    """By state; then the oldest message, the larger lag, the name."""
    lags = [
        a_lag("healthy"),
        a_lag("slow", state=LagState.LAGGING, messages=9000, oldest_age_seconds=900),
        a_lag("unknown", state=LagState.UNKNOWN, messages=None, oldest_age_seconds=None),
        a_lag("young", state=LagState.UNCONSUMED, messages=70, oldest_age_seconds=70),
        a_lag("old", state=LagState.UNCONSUMED, messages=5, oldest_age_seconds=700),
        a_lag("loses", state=LagState.LOSING, messages=1),
        a_lag("idle", state=LagState.IDLE),
        a_lag("fewer", state=LagState.STALLED, messages=5, oldest_age_seconds=300),
        a_lag("more", state=LagState.STALLED, messages=6, oldest_age_seconds=300),
    ]
    names = [lag.queue_name for lag in sorted_by_trouble(lags)]
    assert names == ["loses", "old", "young", "more", "fewer", "unknown", "slow", "healthy", "idle"]


def test_a_page_never_holds_more_than_its_rows() -> None:
    """Of ten thousand; the last page holds the rest, and a page behind it is the last one."""
    lags = [a_lag(f"q{number:05}") for number in range(10_030)]
    first = listing(lags, Wanted())
    assert (len(first.rows), first.total, first.found, first.pages) == (50, 10_030, 10_030, 201)
    last = listing(lags, Wanted(page=9999))
    assert (last.page, len(last.rows), last.rows[0].queue_name) == (201, 30, "q10000")
    few = lags[:130]
    shown = [lag.queue_name for page in (1, 2, 3) for lag in listing(few, Wanted(page=page)).rows]
    assert shown == [lag.queue_name for lag in few]
    assert ROWS == 50


def test_search_finds_the_queue_and_the_resource() -> None:
    lags = [
        a_lag("psub:durable:global:Orders"),
        a_lag("psub:x", owner_namespace="shop", owner_name="billing"),
        a_lag("psub:y", state=LagState.STALLED),
    ]
    assert [lag.queue_name for lag in listing(lags, Wanted(search="ORDER")).rows] == ["psub:durable:global:Orders"]
    assert [lag.queue_name for lag in listing(lags, Wanted(search="shop/bill")).rows] == ["psub:x"]
    stalled = listing(lags, Wanted(state=LagState.STALLED))
    assert [lag.queue_name for lag in stalled.rows] == ["psub:y"]
    assert list(stalled.counts.items()) == [(LagState.STALLED, 1), (LagState.OK, 2)]
    empty = listing([], Wanted(page=3))
    assert (empty.rows, empty.page, empty.pages) == ((), 1, 1)


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ({}, Wanted()),
        ({"q": " a ", "state": "Losing", "page": "2", "refresh": "off"}, Wanted("a", LagState.LOSING, 2, False)),
        ({"page": "-1", "state": "Nonsense"}, Wanted()),
        ({"page": "²"}, Wanted()),
        ({"page": "9" * 4000, "q": "x" * 4000}, Wanted("x" * 255)),
    ],
)
def test_addresses_are_typed_by_people(query: dict[str, str], asked: Wanted) -> None:
    assert wanted(query) == asked
