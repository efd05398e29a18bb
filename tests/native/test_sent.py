"""What was sent and is not settled: the compiled engine's table beside a list, whatever order the peer settles in."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Delivery
from support.engine_pair import EnginePair

import penstock_native
from penstock_amqp.endpoint.events import DATA, Entry, EventKind

proton: Any = penstock_native.proton
pytestmark = pytest.mark.skipif(proton is None, reason="the engine in Python was chosen")

POINTER = 1 << 20
"""No object is there: the table only compares pointers."""
MOST = 4096
"""As many as are in no dict: MOST_SLOTS of penstock_native/sent.c."""


class Referring:
    """Something that can lead back to the table."""


@pytest.fixture
def pair() -> Iterator[EnginePair]:
    made = EnginePair()
    yield made
    made.close()


def entries(first: int, count: int) -> list[Entry]:
    return [(number, b"%d" % number, 0, 0, 0) for number in range(first, first + count)]


@pytest.mark.parametrize("most", [1, 40, 700, MOST + 1000])
@pytest.mark.parametrize("looks", [False, True])
def test_what_is_left_is_in_the_order_of_sending(pair: EnginePair, most: int, looks: bool) -> None:
    """`looks`: somebody asks for the dict between two batches."""
    receiver, link = pair.attach_receiver(pair.open(), credit=4 * most)
    order = random.Random(most)
    sent, left, theirs = 0, list[bytes](), dict[bytes, Delivery]()
    while sent < 3 * most:
        count = order.randint(1, most)
        pair.endpoint.send(link, entries(sent, count), 5)
        sent += count
        pair.exchange()
        while (current := receiver.current) is not None:
            theirs[bytes(receiver.recv(20) or b"")] = current
            receiver.advance()
        left = list(theirs)
        if looks:
            assert [held[1][DATA] for held in pair.endpoint.engine.unsettled.values()] == left
        ended = order.sample(left, min(order.randint(0, count + 1), len(left)))
        for data in ended:
            delivery = theirs.pop(data)
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
        told = [held[1][DATA] for event in pair.exchange() if event[0] is EventKind.ACCEPTED for held in event[2]]
        assert sorted(told) == sorted(ended)
    assert [held[1][DATA] for held in pair.endpoint.engine.unsettled.values()] == list(theirs)


@pytest.mark.parametrize("count", [1, 64, 65, MOST, MOST + 1, 3 * MOST])
def test_the_dict_has_all_that_was_added(count: int) -> None:
    table, expected = proton.Sent(), dict[int, int]()
    for number in range(count):
        table.add(POINTER + 8 * number, number)
        expected[POINTER + 8 * number] = number
    found = table.all
    assert list(found.items()) == list(expected.items())
    assert table.all is found


def test_a_delivery_that_is_added_again_stands_once_with_what_came_last() -> None:
    table = proton.Sent()
    for number in (1, 2, 3):
        table.add(POINTER, number)
    assert table.all == {POINTER: 3}
    table.add(POINTER, 4)
    assert table.all == {POINTER: 4}
    held = Referring()
    seen = weakref.ref(held)
    table.add(POINTER, held)
    del held
    table.add(POINTER, 5)
    assert seen() is None


def test_another_dict_can_take_the_place_of_the_one_that_has_all() -> None:
    table, after = proton.Sent(), {POINTER + 1: "after"}
    table.add(POINTER, "before")
    before = table.all
    table.add(POINTER + 2, "between")
    table.all = after
    assert before == {POINTER: "before", POINTER + 2: "between"}
    assert table.all is after
    with pytest.raises(TypeError):
        table.all = []
    with pytest.raises(TypeError):
        del table.all


def test_a_table_that_refers_to_itself_is_freed() -> None:
    table, held = proton.Sent(), Referring()
    held.__dict__["table"] = table
    table.add(POINTER, held)
    seen = weakref.ref(held)
    del table, held
    gc.collect()
    assert seen() is None
