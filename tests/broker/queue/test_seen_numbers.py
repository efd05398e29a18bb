"""Numbers of messages that may have been seen: what is in, and how large a table becomes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.queue.redelivery import Redelivery
from penstock_broker.queue.seen_numbers import SeenNumbers


def test_no_table_holds_more_than_4096_numbers_however_many_there_are() -> None:
    seen = SeenNumbers()
    seen.note_all(range(100_000))
    assert seen.count() == 100_000
    assert max(map(len, seen.values())) == 4096


def test_nothing_is_left_once_all_are_forgotten() -> None:
    seen = SeenNumbers()
    seen.note_all((5, 4095, 4096, 1_000_000))
    for number in (4096, 5, 1_000_000, 4095):
        assert seen
        seen.forget(number)
    assert not seen


def test_what_is_handed_over_is_in_pieces_and_nothing_is_known_any_more() -> None:
    known = Redelivery()
    known.seen.note_all(range(10_000))
    piles = known.take_all()
    assert sorted(len(pile) for pile in piles if isinstance(pile, set | dict)) == [0, 1808, 4096, 4096]
    assert not known.seen


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20_000)), max_size=60))
def test_it_holds_what_a_set_would_hold(steps: list[tuple[bool, int]]) -> None:
    seen, model = SeenNumbers(), set[int]()
    for is_noted, number in steps:
        if is_noted:
            seen.note(number)
            model.add(number)
        else:
            seen.forget(number)
            model.discard(number)
        assert seen.holds(number) is is_noted
        assert bool(seen) is bool(model)
    assert all(seen.holds(number) for number in model)
    assert seen.count() == len(model)
