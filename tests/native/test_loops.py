"""The compiled loops over messages: what each gives, and that it gives what its twin in Python gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.encoded_messages import amqp_value, described, fields, string

import penstock_native
from penstock_amqp.endpoint.events import Entry
from penstock_amqp.messages.message_head import read_head
from penstock_broker.log import Put, Reading
from penstock_broker.log.format import puts
from penstock_broker.log.format.record_codec import PUT, PUT_FIXED, Malformed, RecordType
from penstock_broker.messages import recorded_entries
from penstock_broker.messages.recorded_entries import RecordedEntries
from penstock_broker.messages.runs import (
    _accepted_runs,  # pyright: ignore[reportPrivateUsage]
    _sent_runs,  # pyright: ignore[reportPrivateUsage]
)
from penstock_broker.queue.message_prefix import MessagePrefix

native: Any = penstock_native.messages
pytestmark = pytest.mark.skipif(native is None, reason="the engine in Python was chosen")

DURABLE = described(0x70, fields(b"\x41"))
NULL, TIMESTAMP, NEVER = b"\x40", b"\x83" + bytes(8), b"\xff" * 8
NO_PROPERTIES = DURABLE + amqp_value("m")
NAMED = DURABLE + described(0x73, fields(string("id-1"))) + amqp_value("m")
EXPIRING = DURABLE + described(0x73, fields(*[NULL] * 8, b"\x83" + NEVER)) + amqp_value("m")
GROUPED = DURABLE + described(0x73, fields(*[NULL] * 10, string("g"))) + amqp_value("m")
OF_JMS = DURABLE + described(0x73, fields(string("i"), *[NULL] * 6, NULL, NULL, TIMESTAMP)) + amqp_value("m")
OF_JMS_EXPIRING = DURABLE + described(0x73, fields(string("i"), *[NULL] * 7, TIMESTAMP, TIMESTAMP)) + amqp_value("m")
OF_NOBODY = DURABLE + described(0x73, fields(string("i"), *[NULL] * 8, string("7 bytes"))) + amqp_value("m")
MESSAGES = (NO_PROPERTIES, NAMED, EXPIRING, GROUPED, OF_JMS, OF_JMS_EXPIRING, amqp_value("volatile"), b"", b"\x00")
BEGINNING = MessagePrefix(NAMED, read_head(NAMED))


def take(batch: list[Any], at: int = 0, *, longest: int = 1000, number: int = 7) -> tuple[Any, ...]:
    """What `take_plain` returns and appends for `BEGINNING`: entries, deliveries, presettled, payloads."""
    lists: tuple[list[Any], ...] = ([], [], [], [])
    told = native.take_plain(
        batch, at, BEGINNING.prefix, BEGINNING.count_at, BEGINNING.is_narrow, longest, number, 50, 60, 3, *lists
    )
    return told, *lists


def test_what_is_plain_becomes_entries() -> None:
    batch = [(101, NAMED, False), (102, OF_JMS, True), (103, NAMED, False), (104, EXPIRING, False), (105, NAMED, True)]
    assert take(batch, 1) == (
        (2, len(OF_JMS) + len(NAMED)),
        [(7, OF_JMS, 50, 60, 3), (8, NAMED, 50, 60, 3)],
        [103],
        [102],
        [OF_JMS, NAMED],
    )
    assert take(batch, 3)[0] == take(batch, 5)[0] == take([])[0] == (0, 0)


@pytest.mark.parametrize(
    "message", [EXPIRING, GROUPED, OF_JMS_EXPIRING, OF_NOBODY, NO_PROPERTIES, b"", bytearray(NAMED)]
)
def test_the_loop_stops_at_what_is_not_plain(message: Any) -> None:
    assert take([(1, message, False)]) == ((0, 0), [], [], [], [])


def test_a_message_beyond_the_longest_is_left() -> None:
    assert take([(1, NAMED, False)], longest=len(NAMED))[0] == (1, len(NAMED))
    assert take([(1, NAMED, False)], longest=len(NAMED) - 1)[0] == (0, 0)


def test_payloads_are_gathered_only_if_they_are_asked_for() -> None:
    lists: tuple[list[Any], ...] = ([], [], [])
    told = native.take_plain(
        [(1, NAMED, False)], 0, BEGINNING.prefix, BEGINNING.count_at, True, 99, 2**63, 5, 0, 0, *lists, None
    )
    assert (told, lists) == ((1, len(NAMED)), ([(2**63, NAMED, 5, 0, 0)], [1], []))


def take_batches(sources: list[Any], at: int = 0) -> tuple[Any, ...]:
    """What `take_batches` returns and appends for `BEGINNING`: entries, answered, presettled, payloads."""
    lists: tuple[list[Any], ...] = ([], [], [], [])
    told = native.take_batches(
        sources, at, BEGINNING.prefix, BEGINNING.count_at, BEGINNING.is_narrow, 1000, 7, 50, 60, 3, *lists
    )
    return told, *lists


def test_batches_of_several_are_numbered_as_one() -> None:
    sources = [
        ("a", [(101, EXPIRING, False)]),
        ("b", [(102, NAMED, False), (103, OF_JMS, True)]),
        ("c", [(104, NAMED, False)]),
    ]
    assert take_batches(sources, 1) == (
        (2, len(NAMED) + len(OF_JMS) + len(NAMED)),
        [(7, NAMED, 50, 60, 3), (8, OF_JMS, 50, 60, 3), (9, NAMED, 50, 60, 3)],
        [("b", [102]), ("c", [104])],
        [("b", [103])],
        [NAMED, OF_JMS, NAMED],
    )
    assert take_batches(sources)[0] == take_batches(sources, 3)[0] == (0, 0)


def test_nothing_of_a_batch_is_taken_that_is_not_wholly_plain() -> None:
    sources = [
        ("a", [(101, NAMED, False)]),
        ("b", [(102, NAMED, True), (103, EXPIRING, False)]),
        ("c", [(104, NAMED, False)]),
    ]
    assert take_batches(sources) == (
        (1, len(NAMED)),
        [(7, NAMED, 50, 60, 3)],
        [("a", [101])],
        [],
        [NAMED],
    )


def mutated(message: bytes, at: int, byte: int) -> bytes:
    return message if at >= len(message) else message[:at] + bytes((byte,)) + message[at + 1 :]


messages = st.builds(mutated, st.sampled_from(MESSAGES), st.integers(0, 60), st.integers(0, 255))


@given(st.lists(st.tuples(st.integers(5000, 9000), messages, st.booleans()), max_size=6), messages)
@example([(5000, NAMED, False)], NAMED)
@example([(5000, OF_JMS, True), (5001, mutated(OF_JMS, 12, 200), False)], OF_JMS)
def test_messages_are_plain_only_if_a_look_inside_says_so(batch: list[tuple[int, bytes, bool]], like: bytes) -> None:
    """The twin is the loop of `publish`, which looks at each message."""
    try:
        beginning = MessagePrefix(like, read_head(like))
    except Exception:
        return  # no producer has such a beginning
    entries: list[Entry] = []
    deliveries: list[int] = []
    presettled: list[int] = []
    told: tuple[int, int] = native.take_plain(
        batch,
        0,
        beginning.prefix,
        beginning.count_at,
        beginning.is_narrow,
        64,
        1,
        2,
        3,
        4,
        entries,
        deliveries,
        presettled,
        None,
    )
    taken, size = told
    assert entries == [(1 + at, data, 2, 3, 4) for at, (_, data, _) in enumerate(batch[:taken])]
    assert size == sum(len(data) for _, data, _ in batch[:taken])
    assert deliveries == [delivery for delivery, _, settled in batch[:taken] if not settled]
    assert presettled == [delivery for delivery, _, settled in batch[:taken] if settled]
    for _, data, _ in batch[:taken]:
        assert data.startswith(beginning.prefix)
        assert beginning.look(data) == (0, beginning.flags)
    if taken < len(batch):
        data = batch[taken][1]
        few = len(data) > beginning.count_at >= 0 and data[beginning.count_at] <= 8
        assert not (few and data.startswith(beginning.prefix) and len(data) <= 64)


def test_records_of_puts() -> None:
    records: list[bytes] = [b"before"]
    native.put_records([b"", b"ab"], records, 5, 9, 2**40, 77)
    head = bytes.fromhex("0500 0000 18000000 09000000 00000000 0000000000010000 4d00000000000000")
    then = bytes.fromhex("0500 0000 1a000000 09000000 00000000 0100000000010000 4d00000000000000")
    assert records == [b"before", head, b"", then, b"ab"]


u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)


@given(st.lists(st.binary(max_size=40), max_size=5), u32, st.integers(0, 2**63), u64)
def test_records_of_puts_are_those_of_the_twin(
    payloads: list[bytes], route_set: int, number: int, arrival: int
) -> None:
    records: list[bytes] = []
    native.put_records(payloads, records, int(RecordType.PUT), route_set, number, arrival)
    told: list[bytes] = []
    for at, each in enumerate(payloads):
        told += (PUT.pack(RecordType.PUT, 0, 0, PUT_FIXED + len(each), route_set, 0, number + at, arrival), each)
    assert records == told


class Streamed(bytes):
    """A message of which only the beginning is in memory."""

    def __len__(self) -> int:
        return 1000


def entry(number: int, data: bytes, available: int, flags: int = 0) -> Entry:
    return number, data, available, 0, flags


def test_runs_of_times() -> None:
    entries = [entry(1, b"ab", 5), entry(2, Streamed(b"c"), 5), entry(3, b"", 4), entry(4, b"d", 5)]
    assert native.sent_runs(entries) == (1003, [(5, 2), (4, 1), (5, 1)])
    assert native.sent_runs([]) == (0, [])


def test_runs_of_accepted_deliveries() -> None:
    batch: list[Any] = [
        (None, entry(1, b"ab", 5, 6), 9),
        (None, entry(2**63, Streamed(b"c"), 5, 2), 9),
        (None, entry(3, b"", 4, -1), 10),
        (None, entry(4, b"x", 4, 1), 10),
    ]
    assert native.accepted_runs(batch, 2) == (1003, [1, 2**63, 3], [(5, 2), (4, 2)], [(9, 2), (10, 2)])
    assert native.accepted_runs([], 2) == (0, [], [], [])


times = st.integers(10**18, 10**18 + 2)
entries = st.builds(
    entry, u64, st.binary(max_size=9) | st.builds(Streamed, st.binary(max_size=3)), times, st.integers(-8, 63)
)


@given(st.lists(st.tuples(st.none(), entries, times)), st.integers(0, 63))
def test_runs_are_those_of_the_twins(batch: list[Any], flag: int) -> None:
    held = [each for _, each, _ in batch]
    assert native.sent_runs(held) == _sent_runs(held)
    assert native.accepted_runs(batch, flag) == _accepted_runs(batch, flag)


def record(payload: bytes, *, kind: int = 5, flags: int = 0, length: int | None = None) -> bytes:
    body = PUT_FIXED + len(payload) if length is None else length
    return PUT.pack(kind, flags, 0, body, 3, 0, 2**64 - 1, 2**62) + payload


def test_puts_of_a_block() -> None:
    block = b"....." + record(b"a", flags=0x81) + record(b"") + record(b"b", kind=6)
    found: list[Any] = ["before"]
    assert native.read_puts(block, 5, len(block), 5, Put, found) == 5 + 33 + 32
    assert found == ["before", Put(3, 2**64 - 1, 2**62, b"a", 0x81), Put(3, 2**64 - 1, 2**62, b"", 0)]
    assert all(type(each) is Put for each in found[1:])
    assert hash(found[1]) == hash(Put(3, 2**64 - 1, 2**62, b"a", 0x81)), "it is a tuple like any other"
    assert native.read_puts(block, 5, 5 + 32, 5, tuple, found) == 5, "the record goes on behind the end"
    assert native.read_puts(block, 5, 5 + 33, 5, tuple, found) == 5 + 33
    assert found[3] == (3, 2**64 - 1, 2**62, b"a", 0x81) and type(found[3]) is tuple


blocks = st.lists(
    st.one_of(
        st.builds(record, st.binary(max_size=9), flags=st.integers(0, 255)),
        st.builds(record, st.binary(max_size=9), kind=st.sampled_from([0, 4, 5, 6, 24])),
        st.builds(record, st.binary(max_size=9), length=st.integers(0, 60) | st.just(2**32 - 1)),
        st.binary(max_size=5),
    ),
    max_size=5,
).map(b"".join)


def puts_by(functions: Any, block: bytes, end: int) -> Any:
    """What `puts_in` finds with these functions, or how it fails."""
    before, puts._read_puts = puts._read_puts, functions and functions.read_puts  # pyright: ignore[reportPrivateUsage]
    try:
        return puts.puts_in(block, 0, end, with_volatile=True)
    except Malformed as error:
        return str(error)
    finally:
        puts._read_puts = before  # pyright: ignore[reportPrivateUsage]


@given(blocks, st.integers(0, 40))
def test_puts_of_a_block_are_those_of_the_twin(block: bytes, less: int) -> None:
    end = max(len(block) - less, 0)
    try:
        told = puts_by(None, block, end)
    except IndexError:
        return  # never written: a block ends with a record
    assert puts_by(native, block, end) == told


def test_entries_of_puts() -> None:
    found: list[Any] = []
    given_puts = [Put(1, 2**63, 30, NAMED, 0), Put(1, 9, 31, OF_JMS, 0x40), Put(1, 10, 32, NAMED, 0x80)]
    told = native.plain_entries(given_puts, 0, BEGINNING.prefix, BEGINNING.count_at, True, 0x80, 100, 6, found)
    assert (told, found) == (2, [(2**63, NAMED, 30, 130, 6), (9, OF_JMS, 31, 131, 6)])
    assert native.plain_entries(given_puts, 1, BEGINNING.prefix, BEGINNING.count_at, True, 0x80, 0, 6, found) == 1
    assert found[2] == (9, OF_JMS, 31, 0, 6)


@pytest.mark.parametrize("arrival", [2**63 - 50, 2**63, 2**64 - 1])
def test_a_time_beyond_the_numbers_of_c_is_left_to_python(arrival: int) -> None:
    found: list[Any] = []
    put = [Put(1, 2, arrival, NAMED, 0)]
    assert native.plain_entries(put, 0, BEGINNING.prefix, BEGINNING.count_at, True, 0x80, 100, 6, found) == 0
    assert found == []


def entries_by(functions: Any, read: list[Put]) -> list[Entry]:
    before = recorded_entries._plain_entries  # pyright: ignore[reportPrivateUsage]
    recorded_entries._plain_entries = functions and functions.plain_entries  # pyright: ignore[reportPrivateUsage]
    try:
        return RecordedEntries().all_of(Reading([read], 0, sum(len(each.payload) for each in read)))
    finally:
        recorded_entries._plain_entries = before  # pyright: ignore[reportPrivateUsage]


whole = st.sampled_from([NO_PROPERTIES, NAMED, EXPIRING, GROUPED, OF_JMS, OF_JMS_EXPIRING, amqp_value("volatile")])


@given(
    st.lists(st.builds(Put, u32, u64, st.integers(0, 2**50), whole, st.sampled_from([0, 1, 0x80, 0x81])), max_size=8)
)
def test_entries_of_puts_are_those_of_the_twin(read: list[Put]) -> None:
    assert entries_by(native, read) == entries_by(None, read)
