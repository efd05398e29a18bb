"""Route sets: known while they are used, defined by what is new, and read as they were written."""

from __future__ import annotations

from pathlib import Path

from broker.log.simulated_files import SimulatedFiles
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log import Log, LogOptions, SyncChoice
from penstock_broker.log.format.record_codec import decode_records
from penstock_broker.log.format.records import RouteDifference, RouteSet
from penstock_broker.log.format.route_sets import HIGHEST, KnownRouteSets, RouteSets, SegmentRoutes

HEAD = 8 + 8
"""Bytes of a definition before its queues: head of the record, route set and reserved."""


def test_sets_that_grow_by_one_queue_are_defined_by_that_queue() -> None:
    routes, sets = SegmentRoutes(), RouteSets(1)
    written = 0
    for count in range(1, 1001):
        queues = tuple(range(1, count + 1))
        number = sets.number(queues)
        assert number not in routes.numbers
        written += len(routes.definition(number, queues))
        routes.note(number, queues)
        assert number in routes.numbers
        sets.release(number)
        sets.forget_released()
    by_itself = sum(HEAD + 8 * count for count in range(1, 9))
    assert written == by_itself + 992 * (8 + 16 + 8)  # 32 kB; each by itself would be 4 MB
    assert not sets.incarnations


def test_a_difference_is_written_as_the_format_says() -> None:
    routes, queues = SegmentRoutes(), tuple(range(1, 11))
    routes.note(5, queues)
    definition = routes.definition(6, (*queues[:3], *queues[4:], 0x0102))
    assert definition.hex(" ") == (
        "14 00 00 00 20 00 00 00 "  # type 20, flags, reserved, length of the body
        "06 00 00 00 05 00 00 00 01 00 00 00 00 00 00 00 "  # route set, base, one removed, reserved
        "04 00 00 00 00 00 00 00 02 01 00 00 00 00 00 00"  # the queue removed, the one added
    )


def test_a_set_that_differs_much_is_defined_by_itself() -> None:
    routes = SegmentRoutes()
    routes.note(5, tuple(range(1, 11)))
    definition = routes.definition(6, tuple(range(1, 30)))
    assert len(definition) == HEAD + 29 * 8


def test_a_set_is_known_until_the_end_of_the_turn_in_which_it_is_given_back() -> None:
    sets = RouteSets(7)
    first, again, other = sets.number((1, 2)), sets.number((1, 2)), sets.number((3,))
    assert (first, again, other) == (7, 7, 8)
    sets.release(7)
    sets.forget_released()
    assert sets.incarnations == {7: (1, 2), 8: (3,)}
    sets.release(7)
    assert sets.incarnations[7] == (1, 2)
    assert sets.number((1, 2)) == 7  # asked for again in the same turn
    sets.forget_released()
    assert sets.incarnations[7] == (1, 2)
    sets.release(7)
    sets.forget_released()
    assert sets.incarnations == {8: (3,)}


def test_numbers_begin_anew_behind_the_highest() -> None:
    sets = RouteSets(HIGHEST)
    assert sets.number((1,)) == HIGHEST
    assert sets.number((2,)) == 1
    sets._next = HIGHEST  # pyright: ignore[reportPrivateUsage]  # four thousand million sets later
    assert sets.number((3,)) == 2  # the highest and the lowest are in use


@given(st.lists(st.tuples(st.frozensets(st.integers(1, 30), min_size=1), st.booleans()), max_size=30))
def test_what_is_read_is_what_was_written(steps: list[tuple[frozenset[int], bool]]) -> None:
    """Sets of up to thirty queues, in segments that begin where the second of a pair is true."""
    routes, sets, known = SegmentRoutes(), RouteSets(1), KnownRouteSets()
    segment = 1
    for queues, is_new_segment in steps:
        if is_new_segment:
            segment += 1
            routes.clear()
        incarnations = tuple(sorted(queues))
        number = sets.number(incarnations)
        if number not in routes.numbers:
            (record,) = decode_records(memoryview(routes.definition(number, incarnations)))
            assert isinstance(record, RouteSet | RouteDifference)
            known.define(record, segment)
            routes.note(number, incarnations)
        found = known.queues(number)
        assert found is not None
        assert found.known == queues
        if len(queues) % 2:
            sets.release(number)
            sets.forget_released()


def test_a_difference_from_a_set_whose_definition_is_lost_stands_for_nothing() -> None:
    known = KnownRouteSets()
    known.define(RouteDifference(2, 1, (), (5,)), 1)
    assert known.queues(2) is None
    known.define(RouteDifference(1, 2, (5,), ()), 1)
    assert known.queues(1) is None


def test_a_message_reaches_every_queue_of_a_growing_set_after_a_restart(tmp_path: Path) -> None:
    files, options = SimulatedFiles(), LogOptions(segment_bytes=16 * 1024, sync=SyncChoice.INLINE)
    log, _ = Log.open(tmp_path, files=files, options=options)
    queues = list[int]()
    reached = dict[int, int]()
    for count in range(40):
        queue = log.next_incarnation()
        log.topology("queue", str(count), b"", queue)
        queues.append(queue)
        number = log.route_set(tuple(queues))
        reached[log.put(number, bytes(500), 0)] = len(queues)
        log.release_route_set(number)  # the put of this turn still names it
        log.write()
    assert log.segments > 1
    log.crash()
    log, recovered = Log.open(tmp_path, files=files, options=options)
    for at, queue in enumerate(queues):
        expected = [message for message, count in reached.items() if count > at]
        assert [each.number for each in recovered.messages[queue]] == expected
    log.crash()
