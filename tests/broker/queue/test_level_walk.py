"""Looking through very many messages without copying them: what is seen, in which order, and how much a step does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from broker.queue.ordered_messages import Somebody, entry, message
from hypothesis import given
from hypothesis import strategies as st

from penstock_amqp.endpoint.events import Entry
from penstock_broker.queue import delayed as delayed_module
from penstock_broker.queue import level_walk, snapshots
from penstock_broker.queue.backlog import Backlog
from penstock_broker.queue.delayed import DelayedMessages
from penstock_broker.queue.exclusions import Exclusions
from penstock_broker.queue.flags import SCHEDULED
from penstock_broker.queue.paged_tail import PagedTail
from penstock_broker.queue.queue import Queue
from penstock_broker.queue.tail_pieces import pageable_if
from penstock_broker.queue.tail_snapshot import Stretch
from penstock_core.selector import Selector, compile_selector

ANY = pageable_if(lambda _: True)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A level of more than ten messages is not copied; a step looks at four."""
    for module in (snapshots, delayed_module):
        monkeypatch.setattr(module, "MOST_COPIED", 10)
    for module in (level_walk, delayed_module):
        monkeypatch.setattr(module, "LOOKED_AT", 4)


def backlog(*numbers: int) -> Backlog:
    made = Backlog(Exclusions())
    made.put([entry(number) for number in numbers])
    return made


def numbers(entries: Iterator[Entry], most: int | None = None) -> list[int]:
    return [each[0] for each in islice(entries, most)]


def taken(of: Backlog, count: int) -> list[int]:
    return [each[0] for each in of.take_many(Somebody(), count)]


def test_nothing_is_copied_and_each_step_moves_four_messages() -> None:
    made = backlog(*range(1, 31))
    walk = made.snapshot(below=31)
    assert (len(made.normal.fresh), len(made.normal.back)) == (30, 0)
    moved: list[int] = []
    for number in range(1, 31):
        assert numbers(walk, 1) == [number]
        moved.append(len(made.normal.back))
    assert moved == [*[4] * 4, *[8] * 4, *[12] * 4, *[16] * 4, *[20] * 4, *[24] * 4, *[28] * 4, 30, 30]
    assert numbers(walk) == []
    assert taken(made, 100) == list(range(1, 31))


def test_few_messages_are_copied_and_stay_where_they_are() -> None:
    made = backlog(*range(1, 11))
    walk = made.snapshot(below=11)
    assert taken(made, 10) == list(range(1, 11))
    assert numbers(walk) == list(range(1, 11))


def test_without_a_number_all_are_copied_however_many() -> None:
    made = backlog(*range(1, 31))
    walk = made.snapshot()
    assert taken(made, 30) == list(range(1, 31))
    assert numbers(walk) == list(range(1, 31))


def test_what_has_left_is_not_seen_and_what_came_later_neither() -> None:
    made = backlog(*range(1, 31))
    walk = made.snapshot(below=31)
    assert numbers(walk, 6) == [1, 2, 3, 4, 5, 6]
    assert taken(made, 12) == list(range(1, 13))
    made.put([entry(31), entry(32)])
    # 7 and 8 were found by the same step as 5 and 6.
    assert numbers(walk) == [7, 8, *range(13, 31)]


def test_what_comes_back_is_seen_if_its_number_was_not_passed() -> None:
    made = backlog(*range(1, 31))
    walk = made.snapshot(below=31)
    assert taken(made, 20) == list(range(1, 21))
    assert numbers(walk, 1) == [21]
    made.put_back(entry(3))
    made.put([entry(31)])
    made.take(Somebody())
    assert numbers(walk) == list(range(22, 31))


def test_two_walks_see_everything_once_also_what_became_available_out_of_order() -> None:
    """A delayed message has a low number and stands behind others: the walk that is ahead has to hear of it."""
    made = backlog(*range(10, 40))
    made.put([entry(5, flags=SCHEDULED), entry(40)])
    ahead, behind = made.snapshot(below=41), made.snapshot(below=41)
    assert numbers(ahead, 2) == [10, 11]
    assert sorted(numbers(behind)) == [5, *range(10, 41)]
    seen = numbers(ahead)
    assert sorted(seen) == [5, *range(12, 41)]


def test_two_walks_see_everything_once_in_whichever_priority_each_of_them_is() -> None:
    made = Backlog(Exclusions())
    made.put([entry(number, message(4 if number <= 20 else 9)) for number in range(1, 41)])
    ahead, behind = made.snapshot(below=41), made.snapshot(below=41)
    assert numbers(behind, 2) == [21, 22]
    assert numbers(ahead) == [*range(21, 41), *range(1, 21)]
    assert numbers(behind) == [*range(23, 41), *range(1, 21)]


def test_who_selects_finds_what_a_walk_has_set_aside_below_its_cursor() -> None:
    """A message that was delayed has a low number, and comes when the consumer has looked at all others."""
    made, red = backlog(*range(10, 40)), Somebody()
    selector = compile_selector("colour = 'red'")
    assert isinstance(selector, Selector)
    made.select(red, selector)
    made.examination.budget = 1000
    assert made.take(red) is None
    late = entry(5, message(colour="red"), flags=SCHEDULED)
    made.put([late])
    assert numbers(made.snapshot(below=40)) == [*range(10, 40), 5]
    assert made.take(red) == late


def test_a_walk_goes_on_into_what_is_in_no_memory_and_misses_nothing_before_it() -> None:
    """5 was delayed, so its number is lower than those which the walk has passed when it comes there."""
    made = backlog(*range(10, 30))
    made.put([entry(5, flags=SCHEDULED)])
    made.pick({}, set(range(10, 22)))  # somebody has looked at these
    in_log = [entry(number) for number in range(30, 34)]

    def source(first: int, last: int, most: int, most_bytes: int) -> Stretch:
        return Stretch([each for each in in_log if first <= each[0] <= last], last + 1, 0)

    tail = PagedTail(source, lambda count, size: None)
    made.normal.begin_tail(tail)
    made.put([*in_log, entry(34)])
    tail.take_in(pageable_if(lambda _: True), 34, 100)
    assert tail.runs_count == 4
    assert numbers(made.snapshot(below=34)) == [*range(10, 30), 5, *range(30, 34)]


def test_what_is_paged_and_brought_back_is_not_seen_again() -> None:
    """A browser has seen twenty messages, which stand apart since then. They are paged, and are fresh once more."""
    made = backlog(*range(1, 41))
    walk = made.snapshot(below=41)
    assert numbers(walk, 20) == list(range(1, 21))
    bodies = {each[0]: each for each in made}

    def source(first: int, last: int, most: int, most_bytes: int) -> Stretch:
        return Stretch([bodies[number] for number in range(first, last + 1)], last + 1, 0)

    made.normal.begin_tail(PagedTail(source, lambda count, size: None))
    assert not made.normal.forget_bodies(5, ANY, 100), "the fresh ones go first"
    assert made.normal.forget_bodies(5, ANY, 100), "then what was looked at"
    made.normal.pull(100, 1 << 20)
    assert [each[0] for each in made.normal.back] == [1, 2, 3, 4, 5]
    assert [each[0] for each in made.normal.fresh] == list(range(6, 41))
    assert numbers(walk) == list(range(21, 41))


def test_reserved_messages_are_seen_in_their_place() -> None:
    made = Backlog(Exclusions())
    made.put([entry(number, message(group="g" if number % 2 else None)) for number in range(1, 21)])
    owner, other = Somebody("owner"), Somebody("other")
    assert made.take(owner) == entry(1, message(group="g"))
    made.examination.budget = 1000
    for number in range(2, 16, 2):
        assert made.take(other) == entry(number)  # what is odd is reserved on the way
    assert numbers(made.snapshot(below=21)) == [3, 5, 7, 9, 11, 13, 15, 16, 17, 18, 19, 20]


def test_each_level_is_looked_through_and_the_highest_first() -> None:
    made = Backlog(Exclusions())
    made.put([entry(number, message(9 if number > 12 else 4)) for number in range(1, 25)])
    assert numbers(made.snapshot(below=25)) == [*range(13, 25), *range(1, 13)]


def test_what_a_walk_has_found_can_be_picked_and_the_others_keep_their_order() -> None:
    made = backlog(*range(1, 31))
    walk = made.snapshot(below=31)
    for _ in range(6):
        found = list(islice(walk, 5))
        chosen = {each[0]: each for each in found if each[0] % 3 == 0}
        assert made.pick(chosen, {each[0] for each in found}) == list(chosen.values())
    assert taken(made, 100) == [number for number in range(1, 31) if number % 3]


def test_the_end_of_the_queue_ends_the_walk() -> None:
    queue = Queue("q", 1, is_logged=False, now_us=0)
    queue.put([entry(number) for number in range(1, 31)])
    walk = queue.everything(below=31)
    assert [next(walk)[1][0] for _ in range(2)] == [1, 2]
    queue.end()
    assert [each[0] for _, each in walk] == [3, 4]


def test_delayed_messages_are_found_a_few_at_a_time() -> None:
    delayed = DelayedMessages()
    for number in range(1, 31):
        delayed.add((number, b"", 1000 - number, 0, 0))
    walk = delayed.snapshot(below=31)
    assert numbers(walk, 2) == [30, 29]
    for number in (25, 24):
        delayed.remove((number, b"", 1000 - number, 0, 0))
    delayed.add((31, b"", 980, 0, 0))
    delayed.add((32, b"", 2000, 0, 0))
    assert numbers(walk) == [28, 27, 26, *range(23, 0, -1)]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(1, 8)),
            st.tuples(st.just("take"), st.integers(1, 8)),
            st.tuples(st.just("walk"), st.integers(1, 8)),
            st.tuples(st.just("other walk"), st.integers(1, 8)),
        ),
        max_size=40,
    )
)
def test_whatever_comes_and_goes_no_message_that_stays_is_missed_or_seen_twice(steps: list[tuple[str, int]]) -> None:
    made = backlog(*range(1, 31))
    next_number = 31
    walks = {"walk": made.snapshot(below=31), "other walk": made.snapshot(below=31)}
    seen: dict[str, list[int]] = {"walk": [], "other walk": []}
    left: list[int] = []
    for what, count in steps:
        match what:
            case "put":
                made.put([entry(number) for number in range(next_number, next_number + count)])
                next_number += count
            case "take":
                left += taken(made, count)
            case _:
                seen[what] += numbers(walks[what], count)
    assert left == sorted(left)
    for what, walk in walks.items():
        seen[what] += numbers(walk)
        assert seen[what] == sorted(set(seen[what]))
        assert set(range(1, 31)) - set(left) <= set(seen[what]) <= set(range(1, 31))
