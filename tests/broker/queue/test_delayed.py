"""Messages by when they are due, against a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_amqp.endpoint.events import Entry
from penstock_broker.queue.delayed import DelayedMessages

TIMES = st.tuples(st.integers(0, 50), st.integers(0, 50))


def due(entry: Entry) -> tuple[int, int]:
    return (min(entry[2], entry[3]) if entry[3] else entry[2], entry[0])


@given(st.lists(TIMES, max_size=700), st.lists(st.integers(0, 700)), st.integers(0, 20))
def test_they_are_in_order_and_found_whatever_came_and_went(
    times: list[tuple[int, int]], removed: list[int], popped: int
) -> None:
    entries: list[Entry] = [(number, b"", *each, 0) for number, each in enumerate(times)]
    schedule, model = DelayedMessages(), sorted(entries, key=due)
    for entry in entries:
        schedule.add(entry)
        assert schedule.newest() == entry
    for number in removed:
        if number < len(entries):
            assert schedule.remove(entries[number]) == (entries[number] if entries[number] in model else None)
            model = [each for each in model if each[0] != number]
    for _ in range(min(popped, len(model))):
        assert schedule.next_due() == due(model[0])[0]
        assert schedule.pop_first() == model.pop(0)
    assert (list(schedule), len(schedule), bool(schedule)) == (model, len(model), bool(model))
    assert schedule.newest() == max(model, key=lambda each: each[0], default=None)


def test_what_came_back_is_not_taken_for_the_newest() -> None:
    schedule = DelayedMessages()
    old: Entry = (1, b"", 10, 0, 0)
    for entry in (old, (2, b"", 5, 0, 0)):
        schedule.add(entry)
    assert (schedule.is_above_all(2), schedule.is_above_all(3)) == (False, True)
    schedule.remove(old)
    schedule.add(old)
    assert schedule.newest() == (2, b"", 5, 0, 0)
    schedule.pop_first()
    assert schedule.newest() == old
    assert schedule.take_all() == [[(10 << 64 | 1, old)]]
    assert (len(schedule), schedule.newest(), schedule.is_above_all(0)) == (0, None, True)


def test_a_snapshot_stays_what_it_was() -> None:
    schedule = DelayedMessages()
    entries: list[Entry] = [(number, b"", 1000 - number, 0, 0) for number in range(700)]
    for entry in entries:
        schedule.add(entry)
    snapshot = schedule.snapshot()
    assert next(snapshot) == entries[-1]
    schedule.pop_first()
    schedule.remove(entries[100])
    schedule.add((1000, b"", 500, 0, 0))
    assert list(snapshot) == entries[-2::-1]
