"""Levels, the end of a group, and which consumers come first."""

from __future__ import annotations

import pytest

from penstock_core.dispatch_order import closes_group, consumer_priority, level_of, split_priority, tiers


@pytest.mark.parametrize(("priority", "level"), [(0, 0), (4, 4), (9, 9), (10, 9), (255, 9)])
def test_a_message_waits_at_one_of_ten_levels(priority: int, level: int) -> None:
    assert level_of(priority) == level


@pytest.mark.parametrize(
    ("sequence", "closes"), [(None, False), (0, False), (1, False), (4294967294, False), (4294967295, True)]
)
def test_the_highest_sequence_closes_a_group(sequence: int | None, closes: bool) -> None:
    assert closes_group(sequence) is closes


@pytest.mark.parametrize(
    ("priorities", "expected"),
    [
        ([], ()),
        ([0, 0], ((0, 1),)),
        ([0, 5, -1, 5], ((1, 3), (0,), (2,))),
    ],
)
def test_consumers_of_higher_priority_come_first_and_equals_in_the_order_in_which_they_came(
    priorities: list[int], expected: tuple[tuple[int, ...], ...]
) -> None:
    assert tiers(priorities) == expected


@pytest.mark.parametrize(
    ("properties", "priority"),
    [
        ({}, 0),
        ({"priority": 7}, 7),
        ({"rabbitmq:priority": -3}, -3),
        ({"x-priority": 2}, 2),
        ({"priority": "high"}, 0),
        ({"priority": True}, 0),
        ({"priority": 1.5, "x-priority": 4}, 4),
    ],
)
def test_a_link_property_ranks_a_consumer(properties: dict[str, object], priority: int) -> None:
    assert consumer_priority(properties.items()) == priority


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("orders", None),
        ("orders?consumer-priority=5", ("orders", 5)),
        ("orders?consumer-priority=-5", ("orders", -5)),
        ("topic/a.b?consumer-priority=10", ("topic/a.b", 10)),
        ("orders?consumer-priority=", None),
        ("orders?consumer-priority=high", None),
        ("orders?consumer-priority=99999999999", None),
        ("orders?other=1", None),
        ("?consumer-priority=5", None),
    ],
)
def test_an_address_may_say_it_too(address: str, expected: tuple[str, int] | None) -> None:
    assert split_priority(address) == expected
