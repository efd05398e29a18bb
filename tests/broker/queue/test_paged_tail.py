"""The tail of a deep queue: what leaves it, in which order, against a naive list, with a log that is a dictionary."""

from __future__ import annotations

import tracemalloc
import weakref
from array import array
from collections import deque
from collections.abc import Iterator

import pytest
from broker.queue.ordered_messages import entry, message
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock_amqp.endpoint.events import DATA, EXPIRES, FLAGS, NUMBER, Entry
from penstock_broker.queue import paged_tail, tail_pieces
from penstock_broker.queue import run as run_module
from penstock_broker.queue.backlog import Backlog
from penstock_broker.queue.exclusions import Exclusions
from penstock_broker.queue.paged_tail import PagedTail
from penstock_broker.queue.priority_level import PriorityLevel
from penstock_broker.queue.queue import Queue
from penstock_broker.queue.tail_pieces import MemoryPart, pageable_if
from penstock_broker.queue.tail_snapshot import Stretch

LOGGED = 1


@pytest.fixture(autouse=True, scope="module")
def short_pieces() -> Iterator[None]:
    """Of what stays in memory three messages are a piece, and a run has five stretches. Three numbers of what has left
    are remembered."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (paged_tail, tail_pieces):
            patched.setattr(module, "MOST_KEPT", 3)
        patched.setattr(run_module, "MOST_REMOVED", 3)
        patched.setattr(run_module, "MOST_STRETCHES", 5)
        yield


class Recorded:
    """A log of one queue, which counts what is read."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.read = 0
        self.fails = False
        self.lost: list[tuple[int, int]] = []

    def put(self, number: int, size: int = 10, expires: int = 0, flags: int = LOGGED) -> Entry:
        entry: Entry = (number, bytes(size), 0, expires, flags)
        if flags & LOGGED:
            self.entries[number] = entry
        return entry

    def source(self, first: int, last: int, most: int, most_bytes: int) -> Stretch:
        if self.fails:
            raise OSError("no disk")
        found: list[Entry] = []
        for number in range(first, last + 1):
            if number in self.entries:
                if len(found) == most or sum(len(each[1]) for each in found) >= most_bytes:
                    return Stretch(found, number, bytes_of(found))
                found.append(self.entries[number])
                self.read += 1
        return Stretch(found, last + 1, bytes_of(found))

    def tail(self) -> PagedTail:
        return PagedTail(self.source, lambda count, size: self.lost.append((count, size)))


PAGEABLE = pageable_if(lambda entry: entry[FLAGS] == LOGGED)


def bytes_of(entries: list[Entry]) -> int:
    return sum(len(entry[DATA]) for entry in entries)


def numbers(entries: list[Entry]) -> list[int]:
    return [entry[NUMBER] for entry in entries]


def filled(recorded: Recorded, *entries: Entry) -> PagedTail:
    tail = recorded.tail()
    tail.arrivals.extend(entries)
    tail.take_in(PAGEABLE, 1_000_000, 1_000_000)
    return tail


def test_a_million_messages_are_one_run() -> None:
    recorded = Recorded()
    tail = recorded.tail()
    for number in range(1, 1_000_001):
        tail.arrivals.append((number, b"0123456789", 0, 0, LOGGED))
        if number % 1000 == 0:
            tail.take_in(PAGEABLE, number + 1, 1000)
    assert (len(tail), tail.runs_count, tail.bytes) == (1_000_000, 1_000_000, 10_000_000)
    assert len(tail._pieces) == 1  # pyright: ignore[reportPrivateUsage]


def test_what_the_log_has_not_written_stays_in_memory() -> None:
    recorded = Recorded()
    tail = recorded.tail()
    tail.arrivals.extend(recorded.put(number) for number in (1, 2, 3))
    tail.take_in(PAGEABLE, 2, 10)
    assert (tail.runs_count, numbers(list(tail.arrivals))) == (1, [2, 3])


def test_what_the_log_does_not_hold_keeps_its_place() -> None:
    recorded = Recorded()
    tail = filled(recorded, recorded.put(1), recorded.put(2, flags=0), recorded.put(3), recorded.put(4))
    assert (len(tail), tail.runs_count) == (4, 3)
    assert numbers(list(tail.in_memory())) == [2]
    assert numbers(list(tail.snapshot())) == [1, 2, 3, 4]
    assert numbers(tail.pull(10, 10_000)) == [1, 2, 3, 4]
    assert (len(tail), tail.bytes) == (0, 0)


def kept(recorded: Recorded, first: int, last: int) -> list[Entry]:
    """Messages that the log does not hold."""
    return [recorded.put(number, flags=0) for number in range(first, last + 1)]


def test_a_snapshot_looks_at_what_stays_in_memory_piece_by_piece() -> None:
    """Pieces of three. Whatever leaves or comes meanwhile, what was there when it began is found, but for what was
    taken out of the middle before its piece was looked at, or changed at an end."""
    recorded = Recorded()
    tail = filled(recorded, *kept(recorded, 1, 10), recorded.put(11), recorded.put(12), *kept(recorded, 13, 14))
    snapshot = tail.snapshot()
    assert next(snapshot)[NUMBER] == 1
    assert numbers(list(snapshot._read)) == [2, 3]  # pyright: ignore[reportPrivateUsage]
    assert numbers(tail.pull(5, 1000)) == [1, 2, 3, 4, 5]
    for number in (6, 9):
        assert tail.remove(recorded.put(number, flags=0)) is not None
    again = snapshot.copy()
    newest = tail.pop_newest()
    assert newest is not None and newest[NUMBER] == 14
    tail.arrivals.extend(kept(recorded, 15, 16))
    tail.take_in(PAGEABLE, 1_000_000, 10)
    assert tail.highest() == 16
    expected = [2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14]
    assert numbers(list(snapshot)) == expected
    assert numbers(list(again)) == expected
    assert numbers(list(tail.snapshot(after=7))) == [8, 10, 11, 12, 13, 15, 16]
    assert numbers(tail.pull(100, 10_000)) == [7, 8, 10, 11, 12, 13, 15, 16]


def test_a_snapshot_that_nobody_goes_on_with_leaves_nothing() -> None:
    recorded = Recorded()
    tail = filled(recorded, *kept(recorded, 1, 5))
    snapshot = tail.snapshot()
    parts = [weakref.ref(each) for each in snapshot._parts if isinstance(each, MemoryPart)]  # pyright: ignore[reportPrivateUsage]
    assert len(parts) == 2
    del snapshot
    assert [each() for each in parts] == [None, None]


def test_what_stays_in_memory_comes_back_from_the_window_in_its_place() -> None:
    """Two pieces of it before a run. What comes back before these is a run again: its numbers are lower."""
    recorded = Recorded()
    tail = filled(recorded, *(recorded.put(number) for number in (30, 31)))
    window = deque([*kept(recorded, 21, 25), recorded.put(26), recorded.put(27)])
    tail.take_back(window, 0, PAGEABLE, 100)
    assert tail.runs_count == 4
    window.extend(recorded.put(number) for number in (10, 11))
    tail.take_back(window, 0, PAGEABLE, 100)
    assert tail.runs_count == 6
    assert numbers(list(tail.snapshot())) == [10, 11, 21, 22, 23, 24, 25, 26, 27, 30, 31]
    for number in (26, 30, 23, 10):
        assert tail.remove(recorded.put(number)) is not None
    assert numbers(tail.pull(100, 10_000)) == [11, 21, 22, 24, 25, 27, 31]


def test_a_pull_is_bounded_by_messages_and_by_bytes() -> None:
    recorded = Recorded()
    tail = filled(recorded, *(recorded.put(number, 100) for number in range(1, 101)))
    assert numbers(tail.pull(3, 10_000)) == [1, 2, 3]
    assert len(tail.pull(50, 1000)) == 10
    assert recorded.read == 13
    assert (tail.held, tail.bytes) == (87, 8700)


def test_the_window_gives_back_what_is_too_much_in_order() -> None:
    recorded = Recorded()
    level = PriorityLevel(4)
    level.fresh.extend(recorded.put(number) for number in range(1, 101))
    level.begin_tail(recorded.tail())
    assert level.tail is not None
    level.arrivals.append(recorded.put(101))
    for _ in range(4):
        level.tail.take_back(level.fresh, 10, PAGEABLE, 30)
    assert (len(level.fresh), level.tail.runs_count, len(level)) == (10, 90, 101)
    assert numbers(list(level.all_fresh())) == list(range(1, 102))
    level.fresh.clear()
    level.pull(1000, 1_000_000)
    assert level.tail is None and level.arrivals is level.fresh
    assert numbers(list(level.fresh)) == list(range(11, 102))


def test_of_what_came_back_no_more_than_two_windows_stay_in_memory() -> None:
    """Decision 082. What is fresh goes first, so that the order stays; only what came back has to be searched again."""
    recorded = Recorded()
    level = PriorityLevel(4)
    for number in range(1, 11):
        level.back.add(recorded.put(number))
    level.fresh.extend(recorded.put(number) for number in range(11, 16))
    level.begin_tail(recorded.tail())
    assert level.newest() == recorded.entries[15]
    assert level.forget_bodies(5, PAGEABLE, 100) is False, "two windows are not too many"
    assert (len(level.back), len(level.fresh)) == (10, 5)
    steps = [(level.forget_bodies(3, PAGEABLE, 100), len(level.back), len(level.fresh)) for _ in range(3)]
    assert steps == [(False, 10, 0), (True, 3, 0), (False, 3, 0)]
    assert numbers([*level.back, *level.all_fresh()]) == list(range(1, 16))
    assert level.newest() is None, "it is not in memory"
    level.arrivals.append(recorded.put(16))
    assert level.newest() == recorded.entries[16]


def test_what_has_left_the_middle_is_not_handed_out() -> None:
    recorded = Recorded()
    tail = filled(recorded, *(recorded.put(number) for number in range(1, 11)), recorded.put(11, flags=0))
    for number in (5, 3, 11, 10):
        assert tail.remove(recorded.put(number, flags=0)) is not None
        assert tail.remove(recorded.put(number, flags=0)) is None
    assert tail.remove(recorded.put(12, flags=0)) is None
    assert (len(tail), tail.bytes) == (7, 70)
    assert numbers(list(tail.snapshot())) == [1, 2, 4, 6, 7, 8, 9]
    assert numbers(tail.pull(100, 10_000)) == [1, 2, 4, 6, 7, 8, 9]
    assert not recorded.lost


def test_runs_that_are_taken_away_unread_name_what_has_not_left() -> None:
    """A PURGE tells the log of each number: of one that has left already the log would say that it left twice."""
    recorded = Recorded()
    tail = filled(recorded, *(recorded.put(number) for number in (1, 2, 3, 4, 5, 8)), recorded.put(9, flags=0))
    assert numbers(tail.pull(1, 1)) == [1]
    assert tail.remove(recorded.entries[3]) is not None
    assert [list(run.numbers()) for run in tail.take_runs()] == [[2, 4, 5, 8]]
    assert (tail.runs_count, tail.bytes, numbers(list(tail.snapshot()))) == (0, 0, [9])


def test_what_leaves_at_the_front_of_a_run_is_not_read_again() -> None:
    """As when a consumer that selects takes almost everything."""
    recorded = Recorded()
    tail = filled(recorded, *(recorded.put(number) for number in (1, 2, 3, 4, 5, 8, 9)))
    for number in (1, 2, 4, 3):
        assert tail.remove(recorded.entries[number]) is not None
        assert not tail.holds(recorded.entries[number])
    assert tail.holds(recorded.entries[5])
    assert numbers(list(tail.snapshot())) == [5, 8, 9]
    assert recorded.read <= 4
    for number in (5, 8):
        assert tail.remove(recorded.entries[number]) is not None
    assert numbers(tail.pull(10, 1000)) == [9]
    assert (len(tail), tail.bytes, recorded.lost) == (0, 0, [])


@pytest.mark.parametrize("flags", [LOGGED, 0])
def test_of_what_passes_a_message_that_stays_nothing_is_kept(flags: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when one consumer selects all but one message, for weeks: decision 082, a message takes 16 bytes at most."""
    monkeypatch.setattr(run_module, "MOST_REMOVED", 1000)
    for module in (paged_tail, tail_pieces):
        monkeypatch.setattr(module, "MOST_KEPT", 1000)
    recorded = Recorded()
    entries = [recorded.put(number, flags=flags) for number in range(1, 30_002)]
    tail = filled(recorded, entries[0])
    tracemalloc.start()
    try:
        for at in range(1, 30_001, 100):
            tail.arrivals.extend(entries[at : at + 100])
            tail.take_in(PAGEABLE, 1_000_000, 1_000_000)
            for entry in entries[max(at - 50, 1) : at + 50]:  # some are always on their way
                assert tail.remove(entry) is not None
        assert tracemalloc.get_traced_memory()[0] < 60_000
    finally:
        tracemalloc.stop()
    for entry in entries[-50:]:
        assert tail.remove(entry) is not None
    assert numbers(list(tail.snapshot())) == [1]
    assert recorded.read <= 1 + 1000
    assert numbers(tail.pull(10, 1000)) == [1]
    assert (len(tail), tail.bytes, recorded.lost) == (0, 0, [])


def test_a_snapshot_finds_what_is_left_though_gaps_were_made_before_it_came_there() -> None:
    recorded = Recorded()
    tail = filled(recorded, *(recorded.put(number) for number in range(1, 601)))
    snapshot = tail.snapshot()
    assert next(snapshot)[NUMBER] == 1
    for number in (*range(2, 300), *range(301, 601)):
        assert tail.remove(recorded.entries[number]) is not None
    assert numbers(list(snapshot)) == [*range(2, 257), 300]
    assert numbers(list(tail.snapshot())) == [1, 300]
    assert numbers(tail.pull(10, 1000)) == [1, 300]
    assert (len(tail), tail.bytes, recorded.lost) == (0, 0, [])


def test_far_stretches_of_a_run_are_read_without_what_lies_between() -> None:
    """As those of a priority of which few messages come."""
    recorded = Recorded()
    tail = filled(recorded, *(recorded.put(number) for number in (1, 2, 500, 501, 1000)))
    for number in range(3, 500):
        recorded.put(number)
    assert numbers(list(tail.snapshot())) == [1, 2, 500, 501, 1000]
    assert numbers(tail.pull(100, 10_000)) == [1, 2, 500, 501, 1000]
    assert recorded.read == 10


def test_the_newest_is_read_back() -> None:
    recorded = Recorded()
    tail = filled(recorded, *(recorded.put(number) for number in range(1, 1001)))
    assert tail.remove(recorded.entries[1000]) is not None
    newest = [tail.pop_newest() for _ in range(600)]
    assert [entry[NUMBER] for entry in newest if entry is not None] == list(range(999, 399, -1))
    assert numbers(tail.pull(1000, 1_000_000)) == list(range(1, 400))
    assert tail.pop_newest() is None


def test_what_left_between_two_messages_does_not_come_back() -> None:
    """The log still holds 2 and 4, which were this queue's and were dropped or purged before the bodies were."""
    recorded = Recorded()
    entries = [recorded.put(number) for number in range(1, 6)]
    tail = filled(recorded, *entries[0::2])
    assert (len(tail), numbers(list(tail.snapshot()))) == (3, [1, 3, 5])
    assert numbers(tail.pull(10, 1000)) == [1, 3, 5]
    assert (len(tail), tail.bytes) == (0, 0)


def test_runs_that_are_not_due_are_not_read() -> None:
    recorded = Recorded()
    entries = [recorded.put(number, expires=5000 + number // 4096) for number in range(1, 3 * 4096 + 1)]
    tail = filled(recorded, *entries)
    assert {each[EXPIRES] for each in tail.snapshot(5000)} == {5000, 5001}
    assert recorded.read == 4096
    assert tail.next_expiry(5000) == 5001
    assert list(tail.snapshot(4999)) == []


def test_a_run_that_was_looked_through_is_due_when_the_first_of_the_rest_expires() -> None:
    """Decision 082: expired messages are looked for only in runs of which one may have expired."""
    recorded = Recorded()
    times = {1: 5000, 2: 9000, 3: 7000, 4: 0, 5: 8000}
    tail = filled(recorded, *(recorded.put(number, expires=expires) for number, expires in times.items()))
    assert numbers(list(tail.snapshot(5000))) == [1, 2, 3, 4, 5]
    assert tail.remove(recorded.entries[1]) is not None
    read = recorded.read
    assert (tail.next_expiry(5000), list(tail.snapshot(6999)), recorded.read) == (7000, [], read)
    assert tail.next_expiry(6999) == 7000
    look = tail.snapshot(7000)
    assert next(look)[NUMBER] == 2
    again = look.copy()
    tail.arrivals.append(recorded.put(6, expires=7500))
    tail.take_in(PAGEABLE, 100, 100)
    assert tail.remove(recorded.entries[3]) is not None
    assert numbers(list(look)) == numbers(list(again)) == [3, 4, 5]  # 3 was read before it left
    assert numbers(list(tail.snapshot(7500))) == [2, 4, 5, 6], "6 came while the others were looked at"
    assert tail.next_expiry(7500) == 8000


def test_a_look_that_goes_on_after_a_run_grew_ends_where_it_did_when_it_began() -> None:
    recorded = Recorded()
    tail = filled(recorded, *(recorded.put(number, expires=9000) for number in range(1, 301)))
    look = tail.snapshot(9000)
    assert next(look)[NUMBER] == 1
    tail.arrivals.append(recorded.put(301, expires=8000))
    tail.take_in(PAGEABLE, 1000, 100)
    again = look.copy()
    assert numbers(list(look)) == numbers(list(again)) == list(range(2, 301))
    assert 301 in numbers(list(tail.snapshot(8000)))


def test_the_next_expiry_is_that_of_whichever_priority_expires_first() -> None:
    recorded = Recorded()
    made = Backlog(Exclusions())
    made.put([entry(1), entry(2, message(priority=9))])
    for level, expires in zip(made.levels, (7000, 6000), strict=True):
        level.begin_tail(recorded.tail())
        assert level.tail is not None
        level.arrivals.append(recorded.put(10 + level.priority, expires=expires))
        level.tail.take_in(PAGEABLE, 100, 100)
    assert [level.priority for level in made.levels] == [9, 4]
    assert [made.next_expiry(due) for due in (5999, 6000, 7000)] == [6000, 7000, 0]


def test_what_comes_when_the_rest_of_the_tail_was_read_to_drop_the_oldest_is_not_lost() -> None:
    """The forwarding path appends to `Queue.arrivals`, which must be where the queue looks."""
    recorded = Recorded()
    queue = Queue("q", 1, is_logged=True, now_us=0)
    level = queue.backlog.normal
    queue.begin_tail(level, recorded.tail())
    queue.arrivals.extend(recorded.put(number) for number in (1, 2))
    assert level.tail is not None
    level.tail.take_in(PAGEABLE, 100, 100)
    dropped = queue.drop_oldest()
    assert dropped is not None and dropped[NUMBER] == 1
    queue.arrivals.append(recorded.put(3))
    assert (numbers(list(queue)), queue.depth) == ([2, 3], 2)


def test_few_messages_that_expire_have_few_read_that_do_not() -> None:
    """Decision 082: expired messages are looked for only in runs of which one may have expired, and such a run stands
    for 4096 messages at most."""
    recorded = Recorded()
    tail = filled(recorded, *(recorded.put(number) for number in range(1, 5001)))
    for first in (5001, 10_001):
        tail.arrivals.append(recorded.put(first, expires=5000))
        tail.take_in(PAGEABLE, 1_000_000, 1_000_000)
        tail.arrivals.extend(recorded.put(number) for number in range(first + 1, first + 5000))
        tail.take_in(PAGEABLE, 1_000_000, 1_000_000)
    found = list(tail.snapshot(5000))
    assert [entry[NUMBER] for entry in found if entry[EXPIRES]] == [5001, 10_001]
    assert recorded.read == 2 * 4096
    assert numbers(list(tail.snapshot())) == list(range(1, 15_001))


def test_a_run_that_has_many_stretches_becomes_no_longer() -> None:
    """Five in these tests: what looks through them, or divides them, takes no longer than a turn may. What lies between
    two batches, as 13, is not this queue's."""
    recorded = Recorded()
    tail = filled(recorded, *(recorded.put(number) for number in (1, 3, 5, 7, 9)))
    for batch in ((10, 11, 12), (14, 15)):
        tail.arrivals.extend(recorded.put(number) for number in batch)
        tail.take_in(PAGEABLE, 100, 100)
        assert len(tail._pieces) == 2  # pyright: ignore[reportPrivateUsage]
    recorded.put(13)
    assert not tail.holds(recorded.entries[13])
    assert numbers(tail.pull(100, 10_000)) == [1, 3, 5, 7, 9, 10, 11, 12, 14, 15]
    tail = filled(recorded, *(recorded.put(number) for number in range(1, 13, 2)))
    assert len(tail._pieces) == 2  # pyright: ignore[reportPrivateUsage]


def test_a_failed_read_loses_nothing() -> None:
    recorded = Recorded()
    tail = filled(recorded, recorded.put(1, flags=0), recorded.put(2), recorded.put(3))
    recorded.fails = True
    assert numbers(tail.pull(10, 1000)) == [1]
    with pytest.raises(OSError, match="no disk"):
        tail.pull(10, 1000)
    recorded.fails = False
    assert numbers(tail.pull(10, 1000)) == [2, 3]


def test_what_came_before_the_tail_takes_its_place_among_what_the_log_holds() -> None:
    """As at a start: 5 needs memory, 11 was delayed until 8 came, and 12 comes last. What the log has lost is told of
    each part of a run by its share of the bytes."""
    recorded = Recorded()
    for number in (1, 2, 3, 4, 6, 7, 8, 9, 10):
        recorded.put(number)
    tail = recorded.tail()
    places = {5: 5, 11: 8, 12: 12}
    tail.arrivals.extend(recorded.put(number, flags=0) for number in (12, 11, 5))
    run = run_module.Run.of(array("Q", [1, 6]), array("Q", [4, 10]), 9, 90, 0)
    tail.adopt([run], lambda entry: places[entry[NUMBER]])
    assert (len(tail), tail.runs_count, tail.bytes, numbers(list(tail.arrivals))) == (12, 9, 90, [12])
    assert numbers(list(tail.snapshot())) == [1, 2, 3, 4, 5, 6, 7, 11, 8, 9, 10, 12]
    del recorded.entries[2], recorded.entries[9]
    assert numbers(tail.pull(100, 10_000)) == [1, 3, 4, 5, 6, 7, 11, 8, 10]
    assert recorded.lost == [(1, 10), (1, 10)]
    assert (tail.held, tail.bytes) == (0, 0)


def test_what_the_log_has_lost_is_told() -> None:
    recorded = Recorded()
    tail = filled(recorded, *(recorded.put(number, 10 * number) for number in range(1, 6)))
    del recorded.entries[2], recorded.entries[4]
    assert numbers(tail.pull(10, 1000)) == [1, 3, 5]
    assert recorded.lost == [(2, 60)]
    assert (len(tail), tail.bytes) == (0, 0)
    for batch in ((11, 12), (13, 14)):  # which join one run
        tail.arrivals.extend(recorded.put(number, 100) for number in batch)
        tail.take_in(PAGEABLE, 100, 100)
    recorded.entries.clear()
    assert tail.pull(10, 1000) == []
    assert recorded.lost[1:] == [(4, 400)]


def test_a_snapshot_of_a_queue_that_has_ended_reads_nothing() -> None:
    recorded = Recorded()
    tail = filled(recorded, *(recorded.put(number) for number in range(1, 11)))
    snapshot = tail.snapshot()
    tail.take_all()
    assert list(snapshot) == []
    assert recorded.read == 0


class TailMachine(RuleBasedStateMachine):
    """A level with a tail against a list. Numbers come in any order that a queue can have."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded = Recorded()
        self.level = PriorityLevel(4)
        self.model: list[Entry] = []
        self.next = 1
        self.written = 1

    @rule(
        kinds=st.lists(st.sampled_from([LOGGED, LOGGED, LOGGED, 0, LOGGED | 2]), min_size=1, max_size=12),
        gap=st.booleans(),
    )
    def publish(self, kinds: list[int], gap: bool) -> None:
        for flags in kinds:
            self.next += 1 + gap
            entry = self.recorded.put(self.next, self.next % 7, self.next % 5 * 100, flags)
            self.level.arrivals.append(entry)
            self.model.append(entry)

    @rule()
    def write(self) -> None:
        self.written = self.next + 1

    @precondition(lambda self: self.level.tail is None)
    @rule()
    def page(self) -> None:
        self.level.begin_tail(self.recorded.tail())

    @precondition(lambda self: self.level.tail is not None)
    @rule(most=st.integers(1, 20))
    def take_in(self, most: int) -> None:
        assert self.level.tail is not None
        self.level.tail.take_in(PAGEABLE, self.written, most)

    @precondition(lambda self: self.level.tail is not None)
    @rule(keep=st.integers(0, 5), most=st.integers(1, 20))
    def take_back(self, keep: int, most: int) -> None:
        assert self.level.tail is not None
        if all(entry[NUMBER] < self.written for entry in self.level.fresh) and len(self.level.fresh) > keep:
            self.level.tail.take_back(self.level.fresh, keep, PAGEABLE, most)

    @precondition(lambda self: self.level.tail is not None)
    @rule(most=st.integers(1, 20), most_bytes=st.integers(1, 60))
    def pull(self, most: int, most_bytes: int) -> None:
        self.level.pull(most, most_bytes)

    @rule(count=st.integers(1, 6))
    def consume(self, count: int) -> None:
        for _ in range(count):
            if self.level.fresh:
                assert self.level.fresh.popleft() == self.model.pop(0)

    @precondition(lambda self: self.level.tail is not None and self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.model))
        tail = self.level.tail
        assert tail is not None
        elsewhere = {each[NUMBER] for each in (*self.level.fresh, *tail.arrivals)}
        if entry[NUMBER] in elsewhere:
            assert tail.remove(entry) is None
            return
        assert tail.remove(entry) == entry
        self.model.remove(entry)

    @precondition(lambda self: self.level.tail is not None)
    @rule()
    def drop_newest(self) -> None:
        tail = self.level.tail
        assert tail is not None
        entry = tail.pop_newest()
        if entry is not None:
            assert entry == self.model.pop()

    @invariant()
    def holds_the_same(self) -> None:
        assert len(self.level) == len(self.model)
        assert list(self.level.all_fresh()) == self.model
        tail = self.level.tail
        if tail is not None:
            in_log = [entry for entry in self.model if entry not in (*tail.in_memory(), *self.level.fresh)]
            assert (tail.runs_count, tail.bytes) == (len(in_log), sum(len(entry[1]) for entry in in_log))
        assert not self.recorded.lost


TestTail = TailMachine.TestCase
TestTail.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_snapshot_has_no_message_that_left_and_came_again_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number is still in the piece, as the numbers of what has left are forgotten later."""
    monkeypatch.setattr(tail_pieces, "MOST_KEPT", 100)
    tail = PagedTail(Recorded().source, lambda count, size: None)
    (first, second) = (Recorded().put(number, flags=0) for number in (4, 5))

    def come(*entries: Entry) -> None:
        tail.arrivals.extend(entries)
        tail.take_in(pageable_if(lambda entry: False), 100, 100)

    come(first, second)
    snapshot = tail.snapshot()
    assert tail.remove(second) == second
    come(second)
    assert list(snapshot) == [first]
