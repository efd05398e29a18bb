"""Transactions in the log: one record, all or nothing, whatever is left of the disk."""

import itertools
from pathlib import Path
from tempfile import mkdtemp

import pytest
from broker.log.log_steps import a_queue, opened, whole
from broker.log.simulated_files import SimulatedFiles
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_broker.log import (
    CommitAck,
    CommitPut,
    EndReason,
    NoRoom,
    RecordTooLarge,
    Recovered,
)
from penstock_broker.log.format.record_codec import decode_records
from penstock_broker.log.format.records import Commit, Record

TEXTS = (b"inline", b"staged " * 20, b"parts " * 900)


class Transacted:
    """Two queues with two messages each, all synced; then one transaction that is only written.

    It takes the first message of each queue and puts three into both: one inline, one staged, one over two segments.
    """

    def __init__(self, folder: Path) -> None:
        self.files = SimulatedFiles()
        log, _ = opened(folder, self.files)
        self.queues = log.next_incarnation(), log.next_incarnation()
        for index, incarnation in enumerate(self.queues):
            log.topology("queue", f"{index}", b"", incarnation)
        route = log.route_set(self.queues)
        self.before = [log.put(route, b"before", 0) for _ in range(2)]
        log.write()
        log.sync()
        puts: list[CommitPut] = []
        first = log.next_messages(len(TEXTS))
        for number, text in enumerate(TEXTS, first):
            body = log.stage()
            for start in range(0, len(text), 1000):
                log.append(body, text[start : start + 1000])
            puts.append(CommitPut(number, route, text if text == TEXTS[0] else body, number))
        log.commit(puts, [CommitAck(queue, [self.before[0]]) for queue in self.queues])
        log.write()
        self.numbers = [put.number for put in puts]
        log.crash()

    def outcome(self, folder: Path, files: SimulatedFiles) -> bool:
        """Whether the transaction holds; that it holds whole or not at all is asserted."""
        log, recovered = opened(folder, files)
        found = [
            [(message.number, whole(message.payload)) for message in recovered.messages[queue]] for queue in self.queues
        ]
        log.close()
        nothing = [(number, b"before") for number in self.before]
        everything = [nothing[1], *zip(self.numbers, TEXTS, strict=True)]
        assert found in ([nothing, nothing], [everything, everything])
        return found == [everything, everything]


def test_a_commit_is_there_as_a_whole(tmp_path: Path) -> None:
    done = Transacted(tmp_path)
    assert done.outcome(tmp_path, done.files)
    assert done.outcome(tmp_path, done.files), "and at the next start"


def test_a_disk_cut_at_any_byte_holds_all_of_it_or_nothing(tmp_path: Path) -> None:
    done = Transacted(tmp_path)
    outcomes: set[bool] = set()
    for path in [path for path in done.files.paths() if path.name.startswith("segment-")]:
        size = len(done.files.copy().content(path))
        used = len(bytes(done.files.copy().content(path)).rstrip(b"\0"))
        for kept in {*range(4096, used + 1, 7), *range(max(4096, used - 900), used + 1)}:
            disk = done.files.copy()
            content = disk.content(path)
            content[kept:] = bytes(size - kept)
            if not disk_lost_what_was_synced(done, disk, tmp_path):
                outcomes.add(done.outcome(tmp_path, disk))
    assert outcomes == {True, False}


def disk_lost_what_was_synced(done: Transacted, disk: SimulatedFiles, folder: Path) -> bool:
    """Whether this cut took away what a returned sync had covered, which no crash does."""
    log, recovered = opened(folder, disk.copy())
    log.close()
    return bool(recovered.damage) or not set(done.queues) <= set(recovered.messages)


@pytest.mark.parametrize("seed", range(40))
def test_any_loss_of_unsynced_writes_keeps_all_of_it_or_nothing(tmp_path: Path, seed: int) -> None:
    done = Transacted(tmp_path)
    fate = itertools.cycle([bool(seed >> bit & 1) for bit in range(6)])
    done.files.crash(lambda length: length if next(fate) else length * (seed % 3) // 3, names_kept=seed % 3)
    first = done.outcome(tmp_path, done.files)
    assert done.outcome(tmp_path, done.files) == first


def test_acks_of_a_queue_that_has_ended_are_left_out(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    gone, kept = log.next_incarnation(), log.next_incarnation()
    log.topology("queue", "gone", b"", gone)
    log.topology("queue", "kept", b"", kept)
    number = log.put(log.route_set((gone, kept)), b"x", 0)
    log.write()
    log.delete("queue", "gone")
    log.commit([], [CommitAck(gone, [number]), CommitAck(kept, [number], EndReason.REJECTED)])
    log.close()
    log, recovered = opened(tmp_path, files)
    assert recovered.messages == {kept: []}
    log.close()


def test_an_empty_commit_writes_nothing(tmp_path: Path) -> None:
    log, _ = opened(tmp_path, SimulatedFiles())
    before = log.sequence
    log.commit([], [])
    assert log.write() == before
    log.close()


def contents(recovered: Recovered, incarnation: int) -> list[tuple[int, bytes]]:
    return [(message.number, whole(message.payload)) for message in recovered.messages[incarnation]]


def test_bodies_too_large_for_one_record_are_written_before_it(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    incarnation, route = a_queue(log)
    first = log.next_messages(9)
    log.commit([CommitPut(first + index, route, bytes([index]) * 1000, 0) for index in range(9)], [])
    log.close()
    log, recovered = opened(tmp_path, files)
    assert contents(recovered, incarnation) == [(first + index, bytes([index]) * 1000) for index in range(9)]
    log.close()


def test_a_commit_of_too_many_messages_is_refused_whole(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    incarnation, route = a_queue(log)
    number = log.put(route, b"stays", 0)
    log.write()
    first = log.next_messages(200)
    puts = [CommitPut(first + index, route, b"x", 0) for index in range(200)]
    with pytest.raises(RecordTooLarge, match=r"a commit of \d+ bytes is more than half a log segment"):
        log.commit(puts, [CommitAck(incarnation, [number])])
    log.close()
    log, recovered = opened(tmp_path, files)
    assert contents(recovered, incarnation) == [(number, b"stays")]
    log.close()


def test_a_unit_is_one_record_and_leaves_the_rest_of_the_turn_alone(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    incarnation, route = a_queue(log)
    old = log.put(route, b"old", 0)
    log.write()
    before = log.put(route, b"before", 0)
    log.begin_unit()
    one, two = log.put(route, b"one", 0), log.put(route, b"two", 0)
    log.ack(incarnation, old)
    log.ack(incarnation, one)  # expired, say
    dead, dead_route = a_queue(log, "made within")
    three = log.put(dead_route, b"three", 0)
    log.end_unit()
    after = log.put(route, b"after", 0)
    log.ack(incarnation, before)
    log.close()
    log, recovered = opened(tmp_path, files)
    assert contents(recovered, incarnation) == [(two, b"two"), (after, b"after")]
    assert contents(recovered, dead) == [(three, b"three")]
    log.close()
    records = [record for record in all_records(files) if isinstance(record, Commit)]
    [commit] = records
    assert [type(record).__name__ for record in commit.records] == ["Put", "Put", "Put", "Ack"]


def all_records(files: SimulatedFiles) -> list[Record]:
    """Every record of the first segment, with no regard for what counts."""
    [path, *_] = [path for path in files.paths() if path.name.startswith("segment-")]
    content = bytes(files.copy().content(path))
    records: list[Record] = []
    offset = 4096
    while content[offset : offset + 4] == b"PSTB":
        length = int.from_bytes(content[offset + 8 : offset + 12], "little")
        records += decode_records(memoryview(content)[offset + 64 : offset + 64 + length])
        offset += -(-(64 + length) // 64) * 64
    return records


def test_an_abandoned_unit_leaves_nothing_but_topology(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    incarnation, route = a_queue(log)
    kept = log.put(route, b"kept", 0)
    log.begin_unit()
    log.put(route, b"one", 0)
    log.ack(incarnation, kept)
    made, _ = a_queue(log, "made within")
    log.abandon_unit()
    log.close()
    log, recovered = opened(tmp_path, files)
    assert contents(recovered, incarnation) == [(kept, b"kept")]
    assert contents(recovered, made) == []
    log.close()


def test_a_unit_larger_than_a_record_is_whole_as_well(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    incarnation, route = a_queue(log)
    log.begin_unit()
    texts = [bytes([index]) * 1700 for index in range(20)]
    numbers = [log.put(route, text, 0) for text in texts]
    log.ack(incarnation, numbers[0])
    log.end_unit()
    log.close()
    log, recovered = opened(tmp_path, files)
    assert contents(recovered, incarnation) == list(zip(numbers[1:], texts[1:], strict=True))
    log.close()


def test_a_commit_in_a_turn_larger_than_a_segment_is_not_torn(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    incarnation, route = a_queue(log)
    numbers = [log.put(route, bytes(3000), 0) for _ in range(4)]
    first = log.next_messages(2)
    log.commit(
        [CommitPut(first + index, route, bytes(1500), 0) for index in range(2)], [CommitAck(incarnation, numbers)]
    )
    numbers += [log.put(route, bytes(3000), 0) for _ in range(3)]
    log.close()
    log, recovered = opened(tmp_path, files)
    assert [message.number for message in recovered.messages[incarnation]] == [first, first + 1, *numbers[4:]]
    for message in recovered.messages[incarnation]:
        log.ack(incarnation, message.number)
    log.write()
    log.sync()
    while log.wants_maintenance:
        log.maintain(1000)
        log.collect()
    assert log.segments <= 2
    log.close()


def test_a_unit_that_was_let_pass_takes_no_notice_of_a_disk_that_fills_meanwhile(tmp_path: Path) -> None:
    """What makes one payload a body of its own must not be refused in the middle."""
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    incarnation, route = a_queue(log)
    texts = [bytes([index]) * 9000 for index in range(3)]  # each larger than half a segment
    log.check_unit([texts], 0)
    files.space = sum(len(files.copy().content(path)) for path in files.paths())
    log.begin_unit()
    numbers = [log.put(route, text, 0) for text in texts]
    log.end_unit()
    files.space = 1 << 40
    log.close()
    log, recovered = opened(tmp_path, files)
    assert contents(recovered, incarnation) == list(zip(numbers, texts, strict=True))
    log.close()


@pytest.mark.parametrize("segments", (1, 2, 5))
def test_on_a_nearly_full_disk_a_unit_is_taken_whole_or_refused_before(tmp_path: Path, segments: int) -> None:
    """The reserve is left for draining: after the last unit that was let pass, all of it can be acknowledged."""
    files = SimulatedFiles()
    files.space = (3 + segments) * 16384
    log, _ = opened(tmp_path, files)
    incarnation, route = a_queue(log)
    kept: list[int] = []
    with pytest.raises(NoRoom, match="the disk is full"):
        for _ in range(1000):
            texts = [bytes(1500)] * 4
            log.check_unit([texts], 1)
            log.begin_unit()
            kept += [log.put(route, text, 0) for text in texts]
            log.ack(incarnation, kept.pop(0))
            log.end_unit()
            log.write()
            assert log.failed is None
    log.check_unit([], 3)
    for number in kept:
        log.ack(incarnation, number)
        log.write()
        log.sync()
    assert log.failed is None
    log.close()


def test_a_unit_is_measured_before_it_begins(tmp_path: Path) -> None:
    log, _ = opened(tmp_path, SimulatedFiles())
    log.check_unit([[b"x"] * 90], 0)
    with pytest.raises(RecordTooLarge, match="bytes of one record"):
        log.check_unit([[b"x"] * 100] * 2, 0)
    with pytest.raises(RecordTooLarge):
        log.check_unit([], 1000)
    body = log.stage()
    log.append(body, bytes(5000))
    large = log.payload_of(body, bytes(2900), 0)
    log.check_unit([[large] * 2], 0)
    with pytest.raises(RecordTooLarge):
        log.check_unit([[large, b"x", large, large]], 0)
    with pytest.raises(RecordTooLarge):
        log.check_unit([], 0, growing=[(large, 2000)] * 2)
    log.close()


@pytest.mark.parametrize("size", (1, 300, 9000))
def test_the_sets_of_queues_of_a_unit_are_measured_too(tmp_path: Path, size: int) -> None:
    """Each of them has to be defined in the segment of the record."""
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    queues = [log.next_incarnation() for _ in range(120)]
    for queue in queues:
        log.topology("queue", f"{queue}", b"", queue)
    routes = [log.route_set(tuple(queues[first : first + 100])) for first in range(20)]
    taken = 0
    for count in range(1, len(routes) + 1):
        try:
            log.check_unit([[bytes(size)]] * count, 0, routes[:count])
        except RecordTooLarge as error:
            assert "different sets of queues" in str(error)
            break
        log.begin_unit()
        for route in routes[:count]:
            log.put(route, bytes(size), 0)
        log.end_unit()
        log.write()
        assert log.failed is None
        taken += count
    else:
        pytest.fail("all were let pass")
    assert count > 8
    log.put(routes[0], b"later", 0)
    log.close()
    log, recovered = opened(tmp_path, files)
    assert len(recovered.messages[queues[50]]) == taken + 1
    log.close()


@given(
    sizes=st.lists(st.sampled_from([0, 1, 300, 1999, 2001, 9000]), max_size=60),
    acks=st.integers(0, 150),
    holes=st.integers(1, 2),
)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_let_pass_is_taken(tmp_path: Path, sizes: list[int], acks: int, holes: int) -> None:
    files = SimulatedFiles()
    folder = Path(mkdtemp(dir=tmp_path))
    log, _ = opened(folder, files)
    incarnation, route = a_queue(log)
    old = [log.put(route, b"old", 0) for _ in range(acks * holes)][::holes]
    log.write()
    puts = [bytes(size) for size in sizes]
    try:
        log.check_unit([puts], acks)
    except RecordTooLarge:
        assert 64 * len(puts) + 40 * acks > 6080
        log.close()
        return
    log.begin_unit()
    for payload in puts:
        log.put(route, payload, 0)
    log.ack_many(incarnation, list(old))
    log.end_unit()
    log.close()
    log, recovered = opened(folder, files)
    assert len(recovered.messages[incarnation]) == len(puts) + acks * (holes - 1)
    log.close()


def test_what_makes_room_does_not_count_against_a_unit(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    incarnation, route = a_queue(log)
    old = [log.put(route, b"x", 0) for _ in range(4000)]
    log.write()
    log.check_unit([[b"new"]], 0)
    log.begin_unit()
    new = log.put(route, b"new", 0)
    for number in old[::2]:
        log.ack(incarnation, number, EndReason.DROPPED)
    log.end_unit()
    log.close()
    log, recovered = opened(tmp_path, files)
    assert [message.number for message in recovered.messages[incarnation]] == [*old[1::2], new]
    log.close()
