"""Which messages a tail may leave to the log, and what they sum up to: the compiled parts and their twins."""

from __future__ import annotations

from functools import partial

import pytest

import penstock_native
from penstock_amqp.endpoint.events import FLAGS, NUMBER, Entry
from penstock_broker.queue import tail_pieces
from penstock_broker.queue.tail_pieces import PageableCount, pageable_if

MASK, WANTED = 5, 1
IN_PARTS = {14: "parts"}


def by_hand(entry: Entry) -> bool:
    return entry[FLAGS] & MASK == WANTED and entry[NUMBER] not in IN_PARTS


BOTH: list[PageableCount] = [pageable_if(by_hand)]
TALLIES = [tail_pieces.tally_one_by_one]
if penstock_native.messages:
    BOTH.append(partial(penstock_native.messages.pageable, MASK, WANTED, IN_PARTS))
    TALLIES.append(penstock_native.messages.tally)


def entry(number: int, flags: int = 1, expires: int = 0, size: int = 3) -> Entry:
    return number, bytes(size), 0, expires, flags


@pytest.mark.parametrize("pageable", BOTH)
@pytest.mark.parametrize(
    ("entries", "at", "ceiling", "limit", "count"),
    [
        pytest.param([entry(10), entry(12), entry(13)], 0, 10, 99, 3, id="all"),
        pytest.param([entry(10), entry(12), entry(13)], 1, 10, 99, 2, id="from the second on"),
        pytest.param([entry(10), entry(12), entry(13)], 0, 11, 99, 0, id="below the ceiling"),
        pytest.param([entry(10), entry(12), entry(13)], 0, 0, 13, 2, id="up to the limit"),
        pytest.param([entry(10), entry(10)], 0, 0, 99, 1, id="a number twice"),
        pytest.param([entry(10), entry(9)], 0, 0, 99, 1, id="a number that falls"),
        pytest.param([entry(10), entry(12, flags=0)], 0, 0, 99, 1, id="not in the log"),
        pytest.param([entry(10), entry(12, flags=5)], 0, 0, 99, 1, id="changed"),
        pytest.param([entry(10), entry(14), entry(15)], 0, 0, 99, 1, id="in parts"),
        pytest.param([], 0, 0, 99, 0, id="none"),
    ],
)
def test_pageable_messages_end_at_the_first_that_is_not(
    pageable: PageableCount, entries: list[Entry], at: int, ceiling: int, limit: int, count: int
) -> None:
    assert pageable(entries, at, ceiling, limit) == count


@pytest.mark.parametrize("tally", TALLIES)
def test_a_tally_has_bytes_expiries_and_what_is_flagged(tally: object) -> None:
    assert callable(tally)
    entries = [entry(1, flags=257), entry(2, expires=7, size=5), entry(3, flags=256, expires=8, size=0)]
    assert tally(entries, 256) == (8, 2, 2)
    assert tally([], 256) == (0, 0, 0)
