"""A sorted set of messages, against a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_amqp.endpoint.events import Entry
from penstock_broker.queue.sorted_messages import SortedMessages


def entry(number: int) -> Entry:
    """With flags that are higher than any number."""
    return (number, b"", 0, 0, 9_999)


def numbers(shelf: SortedMessages[Entry]) -> list[int]:
    return [each[0] for each in shelf]


@given(st.lists(st.integers(1, 2000), unique=True), st.lists(st.integers(1, 2000)))
def test_entries_are_in_order_and_found_whatever_came_and_went(added: list[int], removed: list[int]) -> None:
    shelf: SortedMessages[Entry] = SortedMessages()
    model = set[int]()
    for number in added:
        shelf.add(entry(number))
        model.add(number)
    for number in removed:
        found = shelf.remove(number)
        assert (found is not None) == (number in model)
        model.discard(number)
    assert (numbers(shelf), len(shelf)) == (sorted(model), len(model))
    for number in (1, 500, 2000):
        behind = shelf.at_or_behind(number)
        assert (behind[0] if behind else None) == min((each for each in model if each >= number), default=None)
        assert (shelf.find(number) is not None) == (number in model)


def test_many_blocks_are_walked_from_both_ends() -> None:
    shelf: SortedMessages[Entry] = SortedMessages()
    for number in [*range(0, 3000, 2), *range(1, 3000, 2)]:
        shelf.add(entry(number))
    assert numbers(shelf) == list(range(3000))
    assert max(len(block) for block in shelf.blocks) <= 512
    first, last = shelf.first(), shelf.last()
    assert first is not None and last is not None and (first[0], last[0]) == (0, 2999)
    assert [shelf.pop_first()[0] for _ in range(3000)] == list(range(3000))
    assert (shelf.blocks, len(shelf), shelf.first(), shelf.last()) == ([], 0, None, None)


def test_entries_are_found_and_taken_out_in_any_of_many_blocks() -> None:
    """Even numbers only, so that each odd one lies between two entries."""
    shelf: SortedMessages[Entry] = SortedMessages()
    for number in range(0, 6000, 2):
        shelf.add(entry(number))
    assert len(shelf.blocks) > 10
    for number in range(0, 5990, 37):
        behind = number + number % 2
        assert shelf.at_or_behind(number) == entry(behind)
        assert shelf.find(number) == (entry(number) if number == behind else None)
        assert (
            shelf.following(number, 3) == [entry(each) for each in range(number + 1, number + 8) if each % 2 == 0][:3]
        )
    assert shelf.at_or_behind(5999) is None
    assert [each[0] for each in shelf.following(1999, 1500)] == list(range(2000, 5000, 2))
    assert shelf.remove(4001) is None and shelf.remove(4000) == entry(4000)
    assert shelf.remove_all({1, 2, 2998, 3000, 5998}) == [entry(2), entry(2998), entry(3000), entry(5998)]
    gone = {2, 2998, 3000, 4000, 5998}
    left = [number for number in range(0, 6000, 2) if number not in gone]
    assert numbers(shelf) == left
    assert [shelf.pop_last()[0] for _ in left] == left[::-1]
    assert (shelf.blocks, len(shelf)) == ([], 0)


def test_what_is_cleared_is_empty() -> None:
    shelf: SortedMessages[Entry] = SortedMessages()
    shelf.add(entry(1))
    assert shelf.take_all() == [[entry(1)]]
    assert (len(shelf), numbers(shelf), shelf.remove(1), shelf.find(1)) == (0, [], None, None)


@given(st.sets(st.integers(0, 5_000), max_size=1500), st.sets(st.integers(0, 5_000), max_size=300))
def test_many_are_taken_out_at_once_as_one_by_one(added: set[int], removed: set[int]) -> None:
    shelf: SortedMessages[Entry] = SortedMessages()
    for number in added:
        shelf.add(entry(number))
    assert [each[0] for each in shelf.remove_all(removed)] == sorted(added & removed)
    assert numbers(shelf) == sorted(added - removed)
    assert len(shelf) == len(added - removed)
    assert all(shelf.blocks)


@given(st.sets(st.integers(0, 3_000), max_size=1000), st.integers(-1, 3_000), st.integers(1, 700))
def test_what_follows_a_number_is_found_up_to_a_count(added: set[int], number: int, most: int) -> None:
    shelf: SortedMessages[Entry] = SortedMessages()
    for each in added:
        shelf.add(entry(each))
    assert [each[0] for each in shelf.following(number, most)] == sorted(each for each in added if each > number)[:most]
