"""Blocks of which all puts stand one after the other: which are such, by the compiled part and its twin in Python."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock_native
from penstock_broker.log.format import puts
from penstock_broker.log.format.record_codec import PUT, RecordType, ack_record, commit_record, put_record
from penstock_broker.log.format.records import Put

HEAD = b"before"
ACK = ack_record(9, [1, 2])
FIRST, SECOND = put_record(7, 10, 1000, b"one", 2), put_record(7, 12, 1001, b"three", 2)

Find = Callable[[bytes, int, int, int, bytes], object]
FINDERS = [pytest.param(puts.stretch_in, id="python")]
if penstock_native.messages:
    FINDERS.append(pytest.param(penstock_native.messages.put_stretch, id="compiled"))


def found(find: Find, records: bytes) -> object:
    data = HEAD + records + b"behind"
    others = bytes((RecordType.COMMIT, RecordType.VOLATILE_PUT))
    return find(data, len(HEAD), len(HEAD) + len(records), int(RecordType.PUT), others)


@pytest.mark.parametrize("find", FINDERS)
def test_what_stands_before_and_behind_the_puts_is_passed_over(find: Find) -> None:
    begin = len(HEAD) + len(ACK)
    end = begin + 2 * PUT.size + len(b"one" + b"three")
    assert found(find, ACK + FIRST + SECOND + ACK) == (begin, end, 10, 12, 2, 8, 7, 2)


@pytest.mark.parametrize("find", FINDERS)
@pytest.mark.parametrize(
    "records",
    [
        pytest.param(ACK, id="no put"),
        pytest.param(FIRST + ACK + SECOND, id="something between them"),
        pytest.param(SECOND + FIRST, id="numbers that fall"),
        pytest.param(FIRST + FIRST, id="a number twice"),
        pytest.param(FIRST + put_record(8, 12, 1001, b"", 2), id="two route sets"),
        pytest.param(FIRST + put_record(7, 12, 1001, b"", 0), id="other flags"),
        pytest.param(FIRST + commit_record([SECOND]), id="a commit"),
        pytest.param(FIRST + SECOND[:-1], id="cut off in a payload"),
        pytest.param(FIRST + SECOND[:5], id="cut off in a head"),
        pytest.param(bytes((RecordType.PUT, 0, 0, 0, 4, 0, 0, 0)) + bytes(4), id="shorter than a put"),
    ],
)
def test_other_blocks_are_no_stretch(find: Find, records: bytes) -> None:
    assert found(find, records) is None


def test_one_put_is_read_by_where_it_begins() -> None:
    assert puts.put_at(HEAD + FIRST + SECOND, len(HEAD)) == (Put(7, 10, 1000, b"one", 2), len(HEAD + FIRST))
