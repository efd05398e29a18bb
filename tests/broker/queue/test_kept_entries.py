"""Messages by number: as a table of all of them, but in blocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_amqp.endpoint.events import NUMBER, Entry
from penstock_broker.queue.kept_entries import KeptEntries

NUMBER_OF = st.one_of(st.integers(0, 3), st.integers(4_090, 4_100), st.integers(0, 2**40))


def entry(number: int, data: bytes = b"x") -> Entry:
    return (number, data, 0, 0, 0)


@given(st.lists(st.lists(NUMBER_OF)))
def test_many_are_put_as_one_by_one(batches: list[list[int]]) -> None:
    kept = KeptEntries()
    for batch in batches:
        kept.put(entry(number) for number in batch)
    numbers = {number for batch in batches for number in batch}
    assert {each[NUMBER] for each in kept.values()} == numbers
    assert len(kept) == len(numbers)


@given(st.lists(st.tuples(st.sampled_from(["put", "pop", "get"]), NUMBER_OF, st.binary(max_size=2))))
def test_it_holds_what_a_table_holds(steps: list[tuple[str, int, bytes]]) -> None:
    kept, table = KeptEntries(), dict[int, Entry]()
    for step, number, data in steps:
        if step == "put":
            kept.put([entry(number, data)])
            table[number] = entry(number, data)
        elif step == "pop":
            assert kept.pop(number) == table.pop(number, None)
        assert kept.get(number) == table.get(number)
        assert (number in kept) is (number in table)
        assert len(kept) == len(table)
    assert {each[NUMBER]: each for each in kept.values()} == table
    assert {number: each for block in kept.take_all() for number, each in block.items()} == table
    assert len(kept) == 0
    assert list(kept.values()) == []


def test_no_table_in_it_becomes_large() -> None:
    kept = KeptEntries()
    kept.put(entry(number) for number in range(20_000))
    assert max(map(len, kept.take_all())) == 4_096


def test_what_has_left_leaves_nothing() -> None:
    kept = KeptEntries()
    for number in range(10_000):
        kept.put([entry(number)])
        kept.pop(number - 5)
    for number in range(9_995, 10_000):
        kept.pop(number)
    assert kept.take_all() == []
