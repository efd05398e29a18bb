"""Route sets: known while they are used, defined by what is new, and read as they were written."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from broker.log.log_steps import settle
from broker.log.simulated_files import SimulatedFiles
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log import Log, LogOptions, SyncChoice
from penstock_broker.log.format import route_sets
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


def test_what_earlier_segments_defined_takes_no_room_from_the_sets_of_a_new_one() -> None:
    routes = SegmentRoutes()
    with mock.patch.object(route_sets, "MOST_MADE", 30):
        routes.note(1, tuple(range(1, 30)))  # 29 queues are remembered
        routes.clear()
        routes.note(2, tuple(range(101, 111)))
        routes.note(3, tuple(range(201, 211)))
        assert len(routes.definition(4, tuple(range(101, 112)))) == 8 + 16 + 8, "by the one queue that is new"
        routes.note(5, tuple(range(301, 311)))
        assert len(routes.definition(4, tuple(range(101, 112)))) == 8 + 16 + 8, "30 are remembered"
        routes.note(6, tuple(range(401, 411)))
        assert len(routes.definition(4, tuple(range(101, 112)))) == HEAD + 11 * 8, "they were forgotten for the next"


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
    assert (sets.incarnations, sets.released) == ({8: (3,)}, [])


def test_numbers_begin_anew_behind_the_highest() -> None:
    sets = RouteSets(HIGHEST)
    assert sets.number((1,)) == HIGHEST
    assert sets.number((2,)) == 1
    sets._next = HIGHEST  # pyright: ignore[reportPrivateUsage]  # four thousand million sets later
    assert sets.number((3,)) == 2  # the highest and the lowest are in use


def test_numbers_that_begin_anew_leave_out_what_segments_define_and_what_was_in_use_then() -> None:
    defined = [1, 3]
    sets = RouteSets(HIGHEST - 1, lambda: defined)
    used, last = sets.number((1,)), sets.number((2,))
    assert (used, last) == (HIGHEST - 1, HIGHEST)
    assert [sets.fresh(), sets.fresh()] == [2, 4]
    defined.append(used)  # its first put comes now, when numbers have begun anew already
    sets.release(used)
    sets.forget_released()
    sets._next = used  # pyright: ignore[reportPrivateUsage]  # four thousand million sets later
    assert sets.fresh() == 2


def test_messages_keep_their_queues_when_numbers_begin_anew(tmp_path: Path) -> None:
    files, options = SimulatedFiles(), LogOptions(segment_bytes=16 * 1024, sync=SyncChoice.INLINE)
    with mock.patch.object(route_sets, "HIGHEST", 6):
        log, _ = Log.open(tmp_path, files=files, options=options)
        queues = [log.next_incarnation() for _ in range(4)]
        for queue in queues:
            log.topology("queue", str(queue), b"", queue)
        expected: dict[int, list[int]] = {queue: [] for queue in queues}

        def put(*targets: int) -> int:
            number = log.route_set(targets)
            message = log.put(number, bytes(300), 0)
            for target in targets:
                expected[target].append(message)
            log.release_route_set(number)
            log.write()
            return number

        assert [put(queues[0]), put(queues[1]), put(queues[2])] == [1, 2, 3]
        for queue in queues:  # for consumers that leave before a message comes
            log.release_route_set(log.route_set((queue, queues[0])))
            log.write()
        assert [put(queues[3]), put(queues[3], queues[0])] == [5, 6]
        log.release_route_set(log.route_set((queues[2],)))
        log.write()
        log.sync()
        for queue in queues:
            found = log.read(queue, 1, 1 << 40, 100, 1 << 30).puts
            assert [each.message for each in found] == expected[queue]
        log.crash()
        log, recovered = Log.open(tmp_path, files=files, options=options)
        for queue in queues:
            assert [each.number for each in recovered.messages[queue]] == expected[queue]
        log.crash()


def test_a_number_that_comes_again_is_read_as_its_segment_defines_it(tmp_path: Path) -> None:
    files, options = SimulatedFiles(), LogOptions(segment_bytes=16 * 1024, sync=SyncChoice.INLINE)
    with mock.patch.object(route_sets, "HIGHEST", 4):
        log, _ = Log.open(tmp_path, files=files, options=options)
        queues = [log.next_incarnation() for _ in range(3)]
        for queue in queues:
            log.topology("queue", str(queue), b"", queue)
        first, held = log.route_set((queues[0],)), log.route_set((queues[1],))
        message = log.put(first, b"old", 0)
        log.release_route_set(first)
        log.write()
        assert [each.message for each in log.read(queues[0], 1, 1 << 40, 100, 1 << 30).puts] == [message]
        log.ack(queues[0], message)
        while log.segments < 4:
            log.ack(queues[1], log.put(held, bytes(2000), 0))
            log.write()
        settle(log)
        assert log.segments == 1, "nothing is left of the segment in which the first set was defined"
        while (again := log.route_set((queues[2],))) != first:
            log.release_route_set(again)
            log.write()
        number = log.put(again, b"new", 0)
        log.release_route_set(again)
        log.write()
        assert [each.message for each in log.read(queues[2], 1, 1 << 40, 100, 1 << 30).puts] == [number]
        log.crash()


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


def test_what_is_defined_again_stands_for_other_queues_and_the_highest_number_is_known() -> None:
    """The next run begins to number behind the highest; a segment may define a number otherwise than one before it."""
    known = KnownRouteSets()
    known.define(RouteSet(7, (10,)), 1)
    known.define(RouteSet(3, (11,)), 1)
    assert (known.highest, known.incarnations(7), known.incarnations(3)) == (7, (10,), (11,))
    known.define(RouteSet(7, (10, 12)), 2)
    assert known.incarnations(7) == (10, 12)
    known.define(RouteSet(7, (10, 12)), 3)
    assert (known.incarnations(7), known.knows(7), known.knows(8)) == ((10, 12), True, False)


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
