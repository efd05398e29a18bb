"""Numbers of messages that may have been seen: what is in, and how large a table becomes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.queue.redelivery import Redelivery
from penstock_broker.queue.seen_numbers import SeenNumbers


def test_no_piece_is_for_more_than_1024_numbers_however_many_there_are() -> None:
    seen = SeenNumbers()
    seen.note_all(range(100_000))
    assert seen.count() == 100_000
    assert max(map(int.bit_length, seen.values())) == 1024


def test_ten_million_numbers_that_follow_each_other_are_one_piece_many_times() -> None:
    seen = SeenNumbers()
    seen.note_stretch(1, 10_000_000)
    assert seen.count() == 10_000_000
    assert len({id(piece) for piece in seen.values()}) == 3  # the first, the last, and all others


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
    known.attempts[3] = 1
    piles = known.take_all()
    assert [len(pile) for pile in piles if isinstance(pile, dict)] == [10, 1]
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


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 3000)), max_size=5), st.integers(0, 8000))
def test_stretches_hold_what_their_numbers_would(stretches: list[tuple[int, int]], forgotten: int) -> None:
    seen, model = SeenNumbers(), set[int]()
    for first, length in stretches:
        seen.note_stretch(first, first + length)
        model |= set(range(first, first + length + 1))
    seen.forget(forgotten)
    model.discard(forgotten)
    assert {number for number in range(9000) if seen.holds(number)} == model
    assert (seen.count(), bool(seen)) == (len(model), bool(model))
