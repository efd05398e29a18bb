"""Torn tails, damage and remains, byte by byte: what recovery keeps, cuts, names and refuses."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker.log.log_steps import end_of_log
from broker.log.simulated_files import PowerCut, SimulatedFiles

from penstock_broker.log import Log, LogOptions, NewerFormat, Recovered, SyncChoice
from penstock_broker.log.format.blocks import seal_block, seed_of
from penstock_broker.log.recovery import record_reader

LOG_ID = b"\7" * 16
SMALL = LogOptions(segment_bytes=16384, sync=SyncChoice.INLINE)


def open_log(folder: Path, files: SimulatedFiles, log_id: bytes = LOG_ID) -> tuple[Log, Recovered]:
    ticks: Iterator[int] = itertools.count(1)
    return Log.open(folder, files=files, options=SMALL, clock=lambda: next(ticks), entropy=lambda size: log_id)


def numbers(recovered: Recovered, incarnation: int) -> list[int]:
    return [message.number for message in recovered.messages[incarnation]]


def segment(folder: Path, number: int = 1) -> Path:
    return folder / f"segment-{number:016x}.log"


def fates(*survive: bool) -> Callable[[int], int]:
    """Which unsynced blocks survive, in order; the zeros of spares always do."""
    fate = iter(survive)
    return lambda length: length if length >= 4096 or next(fate) else 0


class Filled:
    """A log with one queue and `blocks` one-message blocks, the first `synced` of them synced."""

    def __init__(
        self, folder: Path, blocks: int, synced: int, size: int = 10, files: SimulatedFiles | None = None
    ) -> None:
        self.folder = folder
        self.files = files or SimulatedFiles()
        log, _ = open_log(folder, self.files)
        self.incarnation = log.next_incarnation()
        log.topology("queue", "q", b"", self.incarnation)
        log.write()
        route = log.route_set((self.incarnation,))
        self.messages: list[int] = []
        self.ends: list[int] = []  # where each message's block ends in the segment
        for index in range(blocks):
            self.messages.append(log.put(route, bytes([index]) * size, 0))
            log.write()
            self.ends.append(end_of_log(self.files, LOG_ID))
            if index + 1 == synced:
                log.sync()
        log.crash()

    def reopened(self, files: SimulatedFiles | None = None) -> Recovered:
        log, recovered = open_log(self.folder, files or self.files)
        log.close()
        return recovered

    def found(self, files: SimulatedFiles | None = None) -> list[int]:
        return numbers(self.reopened(files), self.incarnation)


def test_a_tail_torn_at_any_byte_keeps_the_whole_blocks_before_it(tmp_path: Path) -> None:
    filled = Filled(tmp_path, blocks=4, synced=1)
    for kept in range(filled.ends[0], filled.ends[3] + 1):
        disk = filled.files.copy()
        content = disk.content(segment(tmp_path))
        content[kept:] = bytes(len(content) - kept)
        whole = sum(1 for end in filled.ends if end <= kept + 50)  # its padding may be lacking: zeros
        found = filled.found(disk)
        assert found in (filled.messages[:whole], filled.messages[: whole - 1])
        assert len(found) >= sum(1 for end in filled.ends if end <= kept)


@pytest.mark.parametrize("survivors", list(itertools.product([False, True], repeat=5)))
def test_any_subset_of_unsynced_blocks_leaves_a_first_part(tmp_path: Path, survivors: tuple[bool, ...]) -> None:
    filled = Filled(tmp_path, blocks=7, synced=2)
    filled.files.crash(fates(*survivors), names_kept=0)
    expected = 2 + len(list(itertools.takewhile(bool, survivors)))
    assert filled.found() == filled.messages[:expected]
    assert filled.found() == filled.messages[:expected], "and the same at the next start"


def test_what_was_cut_never_comes_back(tmp_path: Path) -> None:
    """Block 3 is lost, 4 and 5 are there: they are cut. New blocks of the same size then lead up to where they were."""
    filled = Filled(tmp_path, blocks=5, synced=2)
    filled.files.crash(fates(False, True, True), names_kept=0)
    log, recovered = open_log(tmp_path, filled.files)
    assert numbers(recovered, filled.incarnation) == filled.messages[:2]
    number = log.put(log.route_set((filled.incarnation,)), b"new" * 3, 0)
    log.write()
    log.sync()
    log.crash()
    assert filled.found() == [*filled.messages[:2], number]


def test_progress_rises_to_all_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_reader, "PROGRESS_BYTES", 8192)
    filled = Filled(tmp_path, blocks=12, synced=12, size=3000)
    assert segment(tmp_path, 3) in filled.files.paths()
    told: list[tuple[int, int]] = []
    ticks: Iterator[int] = itertools.count(1)
    log, _ = Log.open(
        tmp_path,
        files=filled.files,
        options=SMALL,
        clock=lambda: next(ticks),
        entropy=lambda size: LOG_ID,
        progress=lambda read, total: told.append((read, total)),
    )
    log.close()
    reads, totals = [read for read, _ in told], [total for _, total in told]
    assert reads == sorted(reads)
    assert totals == sorted(totals)
    assert reads[-1] == told[-1][1] > reads[0] == 0
    assert len(set(reads)) >= 3


class CountingFiles(SimulatedFiles):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        found = super().pread(handle, length, offset)
        self.bytes_read += len(found)
        return found


@pytest.mark.parametrize("blocks", [3, 30, 90])
def test_recovery_reads_each_segment_once(tmp_path: Path, blocks: int) -> None:
    """One page more of each, for its header."""
    filled = Filled(tmp_path, blocks=blocks, synced=blocks, size=3000, files=CountingFiles())
    assert isinstance(filled.files, CountingFiles)
    filled.reopened()  # which writes once more what no block calls synced
    segments = [path for path in filled.files.paths() if path.name.startswith("segment-")]
    filled.files.bytes_read = 0
    assert len(filled.found()) == blocks
    assert filled.files.bytes_read == len(segments) * (16384 + 4096)


def test_a_new_folder_has_nothing_to_go_through(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    files, ticks = SimulatedFiles(), itertools.count(1)
    log, _ = Log.open(
        tmp_path,
        files=files,
        options=SMALL,
        clock=lambda: next(ticks),
        progress=lambda read, total: told.append((read, total)),
    )
    log.close()
    assert told == [(0, 0)]


def test_segments_behind_the_cut_are_deleted(tmp_path: Path) -> None:
    filled = Filled(tmp_path, blocks=5, synced=1, size=3000)
    assert segment(tmp_path, 2) in filled.files.paths()
    filled.files.content(segment(tmp_path))[filled.ends[1] :] = bytes(16384 - filled.ends[1])
    assert filled.found() == filled.messages[:2]
    assert segment(tmp_path, 2) not in filled.files.paths()


def test_damage_is_named_set_aside_and_read_past(tmp_path: Path) -> None:
    filled = Filled(tmp_path, blocks=5, synced=4)
    content = filled.files.content(segment(tmp_path))
    start, end = filled.ends[0], filled.ends[1]
    content[start + 70] ^= 1
    before = bytes(content[start:end])
    recovered = filled.reopened()
    assert numbers(recovered, filled.incarnation) == [filled.messages[0], *filled.messages[2:]]
    [damage] = recovered.damage
    assert (damage.segment, damage.start, damage.end) == (1, start, end)
    assert "blocks 4 to 4 were synced" in damage.reason
    assert damage.copy is not None
    assert filled.files.content(damage.copy) == before


def test_damage_over_several_blocks_is_one_hole(tmp_path: Path) -> None:
    filled = Filled(tmp_path, blocks=5, synced=5)
    log, _ = open_log(tmp_path, filled.files)
    log.close()
    content = filled.files.content(segment(tmp_path))
    content[filled.ends[0] : filled.ends[2]] = bytes(filled.ends[2] - filled.ends[0])
    recovered = filled.reopened()
    assert numbers(recovered, filled.incarnation) == [filled.messages[0], *filled.messages[3:]]
    [damage] = recovered.damage
    assert (damage.start, damage.end) == (filled.ends[0], filled.ends[2])
    assert "blocks 4 to 5 " in damage.reason


def test_a_bad_block_that_no_later_one_calls_synced_is_cut_silently(tmp_path: Path) -> None:
    filled = Filled(tmp_path, blocks=5, synced=2)
    content = filled.files.content(segment(tmp_path))
    content[filled.ends[2] + 70] ^= 1
    recovered = filled.reopened()
    assert numbers(recovered, filled.incarnation) == filled.messages[:3]
    assert recovered.damage == ()


def test_lost_topology_is_told_with_the_messages_it_orphans(tmp_path: Path) -> None:
    filled = Filled(tmp_path, blocks=3, synced=3)
    filled.reopened()
    content = filled.files.content(segment(tmp_path))
    content[4096 + 128 + 64] ^= 1  # the block of the document, behind the start record's
    recovered = filled.reopened()
    assert recovered.documents == ()
    assert recovered.lost == {filled.incarnation: 3}
    assert len(recovered.damage) == 1


@pytest.mark.parametrize("offset", [0, 2048])
def test_one_spoiled_copy_of_a_header_costs_nothing(tmp_path: Path, offset: int) -> None:
    filled = Filled(tmp_path, blocks=3, synced=3)
    filled.files.content(segment(tmp_path))[offset : offset + 64] = b"\xee" * 64
    assert filled.found() == filled.messages


def test_a_whole_segment_of_rubbish_is_damage(tmp_path: Path) -> None:
    filled = Filled(tmp_path, blocks=12, synced=12, size=3000)
    assert segment(tmp_path, 4) in filled.files.paths()
    filled.reopened()  # its blocks call all messages synced
    filled.files.content(segment(tmp_path, 2))[:] = b"\xaa" * 16384
    recovered = filled.reopened()
    assert numbers(recovered, filled.incarnation) == filled.messages[:3] + filled.messages[6:]
    assert [(damage.segment, damage.start, damage.end) for damage in recovered.damage] == [(2, 4096, 16384)]


def test_a_lost_seal_before_a_missing_segment_is_damage(tmp_path: Path) -> None:
    """The segment after it is gone, so nobody else could tell that its end is not there any more."""
    filled = Filled(tmp_path, blocks=12, synced=12, size=3000)
    filled.reopened()  # its blocks call all messages synced
    files = filled.files
    files.unlink(segment(tmp_path, 2))
    assert [damage.segment for damage in filled.reopened(files.copy()).damage] == [2]
    files.content(segment(tmp_path, 1))[filled.ends[2] :] = bytes(16384 - filled.ends[2])
    hole, missing = filled.reopened().damage
    assert (hole.segment, hole.start, hole.end) == (1, filled.ends[2], 16384)
    assert (missing.segment, missing.start, missing.end) == (2, 0, 0)


def test_a_log_that_ends_with_a_seal_gets_no_second_one(tmp_path: Path) -> None:
    """A power failure took what was in the segment after it. A seal behind the first would lie behind the segment."""
    filled = Filled(tmp_path, blocks=4, synced=4, size=3000)
    content = filled.files.content(segment(tmp_path, 2))
    content[:] = bytes(len(content))
    log, recovered = open_log(tmp_path, filled.files)
    assert numbers(recovered, filled.incarnation) == filled.messages[:3]
    assert len(filled.files.content(segment(tmp_path, 1))) == 16384
    log.crash()
    again = filled.reopened()
    assert (numbers(again, filled.incarnation), again.damage) == (filled.messages[:3], ())


def test_a_record_of_a_newer_version_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    filled = Filled(tmp_path, blocks=2, synced=2)
    filled.reopened()
    content = filled.files.content(segment(tmp_path))
    disk = filled.files.copy()
    log, _ = open_log(tmp_path, disk)
    end, sequence = end_of_log(disk, LOG_ID), log.sequence
    log.crash()
    block = bytearray(64) + bytes.fromhex("63000000 00000000")
    seal_block(
        block,
        seed_of(LOG_ID),
        segment=1,
        offset=end,
        flags=0,
        epoch=9,
        sequence=sequence + 1,
        synced=sequence,
        time_ms=0,
    )
    content[end : end + len(block)] = block
    before = {path: bytes(filled.files.content(path)) for path in filled.files.paths()}
    with pytest.raises(NewerFormat, match="record type 99 is unknown"):
        open_log(tmp_path, filled.files)
    assert {path: bytes(filled.files.content(path)) for path in filled.files.paths()} == before


def test_recovery_can_be_interrupted_at_every_step(tmp_path: Path) -> None:
    filled = Filled(tmp_path, blocks=6, synced=3)
    filled.files.crash(fates(True, False, True), names_kept=0)
    steps = 0
    for steps in range(1000):  # looked at behind the loop
        disk = filled.files.copy()
        disk.steps_left = steps
        try:
            log, _ = open_log(tmp_path, disk)
        except PowerCut:
            disk.crash((lambda length: length) if steps % 2 else (lambda length: length // 2), names_kept=steps % 3)
            assert filled.found(disk) == filled.messages[:4]
            continue
        log.crash()
        break
    assert steps > 5


def test_delivered_up_to_is_exact_after_a_kill_and_doubted_after_a_power_cut(tmp_path: Path) -> None:
    filled = Filled(tmp_path, blocks=3, synced=3)
    log, _ = open_log(tmp_path, filled.files)
    log.delivered_up_to({filled.incarnation: filled.messages[1]})
    log.delivery_count(filled.incarnation, filled.messages[2], 4)
    log.write()
    log.crash()
    filled.files.kill()
    killed = filled.reopened(filled.files.copy()).messages[filled.incarnation]
    assert [(message.delivered, message.deliveries) for message in killed] == [(True, 0), (True, 0), (True, 4)]
    filled.files.crash(lambda length: 0, names_kept=0)
    cut = filled.reopened().messages[filled.incarnation]
    assert [(message.delivered, message.deliveries) for message in cut] == [(True, 0), (True, 0), (True, 0)]


class Damaged(Filled):
    """A log with a damaged block, which may have told of deliveries of what is in the queue: four messages."""

    def __init__(self, folder: Path, documents: int = 0) -> None:
        super().__init__(folder, blocks=2, synced=2)
        log, _ = open_log(folder, self.files)
        for number in range(documents):
            log.topology("exchange", str(number), bytes(2500))
        log.write()
        begin = end_of_log(self.files, LOG_ID)
        log.delivered_up_to({self.incarnation: self.messages[0]})
        log.ack(self.incarnation, self.messages[0])
        log.write()
        end = end_of_log(self.files, LOG_ID)
        log.sync()
        for payload in (b"x", b"y"):  # the block of the second calls the damaged one synced
            self.messages.append(log.put(log.route_set((self.incarnation,)), payload, 0))
            log.write()
            log.sync()
        log.crash()
        self.files.kill()
        self.sound = self.files.copy()
        self.files.content(segment(folder))[begin:end] = bytes(end - begin)

    def delivered(self, recovered: Recovered) -> list[tuple[int, bool]]:
        return [(message.number, message.delivered) for message in recovered.messages[self.incarnation]]


def test_deliveries_are_doubted_if_a_damaged_block_may_have_told_of_them(tmp_path: Path) -> None:
    log = Damaged(tmp_path)
    first, second, third, fourth = log.messages
    assert log.delivered(log.reopened(log.sound)) == [(second, False), (third, False), (fourth, False)]
    assert log.delivered(log.reopened()) == [(first, True), (second, True), (third, True), (fourth, True)]


def test_damage_that_stays_makes_only_one_start_doubt_what_was_delivered(tmp_path: Path) -> None:
    damaged = Damaged(tmp_path)
    log, recovered = open_log(tmp_path, damaged.files)
    assert [delivered for _, delivered in damaged.delivered(recovered)] == [True, True, True, True]
    later = log.put(log.route_set((damaged.incarnation,)), b"z", 0)
    log.write()
    log.crash()
    damaged.files.kill()
    recovered = damaged.reopened()
    assert len(recovered.damage) == 1  # it is still there
    assert damaged.delivered(recovered) == [*((number, True) for number in damaged.messages), (later, False)]


def test_a_start_that_did_not_come_to_its_end_leaves_the_doubt_to_the_next_one(tmp_path: Path) -> None:
    damaged = Damaged(tmp_path)
    steps, doubts = 0, 0
    while True:
        disk = damaged.files.copy()
        disk.steps_left = steps = steps + 1
        try:
            log, _ = open_log(tmp_path, disk)
        except PowerCut:
            disk.kill()  # of the process alone: the boot id gives no reason to doubt
            found = damaged.delivered(damaged.reopened(disk))
            assert found == [(number, True) for number in damaged.messages]
            doubts += 1
            continue
        log.crash()
        break
    assert doubts > 5


def test_a_full_disk_has_no_room_for_the_end_of_the_doubt(tmp_path: Path) -> None:
    """The checkpoint that would end it must not take the room of acks, and the broker starts without it."""
    damaged = Damaged(tmp_path, documents=4)  # of which a checkpoint takes more than the newest segment has left
    damaged.files.space = sum(len(damaged.files.content(path)) for path in damaged.files.paths())
    for _ in range(2):
        log, recovered = open_log(tmp_path, damaged.files)
        assert log.failed is None
        assert damaged.delivered(recovered) == [(number, True) for number in damaged.messages]
        log.crash()
        damaged.files.kill()
    log, _ = open_log(tmp_path, damaged.files)
    log.put(log.route_set((damaged.incarnation,)), b"z", 0)
    log.write()
    log.crash()
    damaged.files.kill()
    assert [delivered for _, delivered in damaged.delivered(damaged.reopened())] == [True] * 5
