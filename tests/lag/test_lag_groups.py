"""Which Brokers are computed together, and how their ledgers are numbered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from lag.figures_factory import figures

from penstock_lag.groups import Member, figures_of_members, grouped, numbered, windows_of
from penstock_lag.ledger.windows import BrokerWindow, Plan
from penstock_lag.targets import Target


def target(name: str, pods: int = 1) -> Target:
    """A Broker with so many pods."""
    urls = tuple(f"http://{name}-{ordinal}" for ordinal in range(pods))
    return Target(namespace="shop", broker=name, observers=urls, window_seconds=300, stale_seconds=180)


def plan(rows: int, size: int = 1, *windows: BrokerWindow) -> Plan:
    """A plan of so many rows in so many bytes."""
    return Plan(start_ms=0, end_ms=9, windows=windows, segments=(), rows=rows, missing=(), bytes=size)


def test_ledgers_are_numbered_over_all_brokers() -> None:
    """A pod whose observer is away has its number, too."""
    members = numbered([(target("a", 3), plan(1)), (target("b"), plan(1)), (target("c", 2), plan(1))])
    assert [(member.target.broker, member.first) for member in members] == [("a", 0), ("b", 3), ("c", 4)]


def test_each_ledger_keeps_its_own_window() -> None:
    first, second = plan(1, 1, BrokerWindow(0, 10, 20)), plan(1, 1, BrokerWindow(0, 15, 25), BrokerWindow(1, 1, 11))
    assert windows_of(numbered([(target("a"), first), (target("b", 2), second)])) == [
        BrokerWindow(0, 10, 20),
        BrokerWindow(1, 15, 25),
        BrokerWindow(2, 1, 11),
    ]


def test_figures_go_back_to_their_broker_with_its_own_ordinals() -> None:
    """Numbers 2 and 3 are the ordinals 0 and 1 of the second Broker; the third has no subscription."""
    members = numbered([(target("a", 2), plan(1)), (target("b", 2), plan(1)), (target("c"), plan(1))])
    found = [figures(subject={"ordinal": 1}), figures(subject={"ordinal": 3}), figures(subject={"ordinal": 2})]
    split = figures_of_members(members, found)
    assert {first: [one.subject.ordinal for one in own] for first, own in split.items()} == {0: [1], 2: [1, 0], 4: []}


def test_a_group_ends_where_rows_or_bytes_would_be_too_many() -> None:
    """6 rows and 40 bytes at most: a and b together have 6 rows; d alone has more than that; e and f have 41 bytes."""
    sizes = {"a": (4, 1), "b": (2, 1), "c": (1, 1), "d": (9, 1), "e": (1, 20), "f": (1, 21)}
    members = numbered([(target(name), plan(rows, size)) for name, (rows, size) in sizes.items()])
    names = [[member.target.broker for member in group] for group in grouped(members, 6, 40)]
    assert names == [["a", "b"], ["c"], ["d"], ["e"], ["f"]]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))), st.integers(0, 60), st.integers(0, 60))
def test_every_broker_is_in_one_group(sizes: list[tuple[int, int]], rows: int, size: int) -> None:
    """In the given order, within the limits unless it is alone."""
    members = numbered([(target(str(number)), plan(*each)) for number, each in enumerate(sizes)])
    groups = grouped(members, rows, size)
    assert [member for group in groups for member in group] == members
    assert all(_fits(group, rows, size) or len(group) == 1 for group in groups)


def _fits(group: list[Member], rows: int, size: int) -> bool:
    return sum(each.plan.rows for each in group) <= rows and sum(each.plan.bytes for each in group) <= size
