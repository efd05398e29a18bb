"""Digests of sealed segments: a start that uses them finds the same, and one that can't use them reads the segments."""

from __future__ import annotations

import itertools
import logging
import zlib
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack

import pytest
from broker.log.log_steps import settle
from broker.log.recoveries import SmallRule, assert_digests_find_the_same, assert_paging_finds_the_same
from broker.log.simulated_files import PowerCut, SimulatedFiles

from penstock_broker.log import Log, LogOptions, Recovered, SyncChoice
from penstock_broker.log.format.blocks import BlockFlag, BlockHeader, seed_of
from penstock_broker.log.format.record_codec import Malformed, put_record
from penstock_broker.log.format.records import Closed, Part
from penstock_broker.log.recovery.digest_builder import DigestBuilder
from penstock_broker.log.recovery.recover import recover
from penstock_broker.log.segments import segment_digest
from penstock_broker.log.segments.block_index import BlockIndex
from penstock_broker.log.segments.segment_digest import (
    HEAD_BYTES,
    DigestHead,
    PlacedRecords,
    PutRun,
    decode_digest,
    digest_name,
)

LOG_ID = b"\7" * 16
SEED = seed_of(LOG_ID)
ANY = 1 << 30
SEGMENT = 16384


def opened(
    folder: Path,
    files: SimulatedFiles,
    *,
    after_ms: int = 0,
    log_id: bytes = LOG_ID,
    clock: Iterator[int] | None = None,
) -> tuple[Log, Recovered]:
    ticks = clock or itertools.count(1)
    options = LogOptions(segment_bytes=SEGMENT, sync=SyncChoice.INLINE, kept_bytes=0, digest_after_ms=after_ms)
    return Log.open(
        folder,
        files=files,
        options=options,
        clock=lambda: next(ticks),
        entropy=lambda size: log_id,
        pageable=SmallRule(),
    )


class Written:
    """Two queues; `bodies` has what waits in each. Every twentieth message has to stay in memory at a start."""

    def __init__(self, folder: Path, count: int = 120, log_id: bytes = LOG_ID) -> None:
        self.folder, self.files = folder, SimulatedFiles()
        self.log, _ = opened(folder, self.files, log_id=log_id)
        self.queues = [self.log.next_incarnation() for _ in range(2)]
        for name, incarnation in zip("ab", self.queues, strict=True):
            self.log.topology("queue", name, b"", incarnation)
        self.bodies: list[dict[int, bytes]] = [{}, {}]
        self.write(count)

    def write(self, count: int, first: int = 0) -> None:
        sets = [self.log.route_set(tuple(self.queues[:1])), self.log.route_set(tuple(self.queues))]
        for at in range(first, first + count):
            body = bytes((30 if at % 20 == 4 else 104,)) + at.to_bytes(4, "big") * (60 + at % 3)
            number = self.log.put(sets[at % 2], body, at + 1)
            self.bodies[0][number] = body
            if at % 2:
                self.bodies[1][number] = body
            if at % 7 == 3:
                self.take(0, number)
            self.log.write()
        self.log.sync()

    def take(self, queue: int, number: int) -> None:
        self.log.ack(self.queues[queue], number)
        del self.bodies[queue][number]

    def restart(self) -> Recovered:
        self.log.crash()
        self.log, recovered = opened(self.folder, self.files)
        return recovered

    def found(self, recovered: Recovered, queue: int) -> dict[int, bytes]:
        """What the queue has after a start, read from the log where that left it there."""
        incarnation = self.queues[queue]
        found = {each.number: bytes(each.payload) for each in recovered.messages[incarnation]}
        paged = recovered.paged.get(incarnation)
        for run in paged.runs if paged is not None else ():
            for first, last in zip(run.firsts, run.lasts, strict=True):
                for put in self.log.read(incarnation, first, last, ANY, ANY).puts:
                    found[put.message] = put.payload
        return found

    def digests(self) -> list[Path]:
        return [path for path in self.files.paths() if path.name.startswith("digest-")]

    def sealed(self) -> list[int]:
        return sorted(int(path.name[8:-4], 16) for path in self.files.paths() if path.name.startswith("segment-"))[:-1]


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    made = Written(tmp_path, 116)
    settle(made.log)
    made.write(3, 200)  # which says that what is before is synced
    yield made
    made.log.crash()


def test_each_sealed_segment_gets_a_digest_and_is_not_read_at_the_next_start(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [path.name for path in written.digests()] == [digest_name(number) for number in written.sealed()]
    assert len(written.sealed()) >= 2
    written.log.crash()
    read: dict[str, int] = {}
    pread = written.files.pread

    def counted(handle: int, length: int, offset: int) -> bytes:
        data = pread(handle, length, offset)
        name = written.files.path_of(handle).name
        read[name] = read.get(name, 0) + len(data)
        return data

    monkeypatch.setattr(written.files, "pread", counted)
    written.log, recovered = opened(written.folder, written.files)
    for number in written.sealed():
        assert read[f"segment-{number:016x}.log"] == 4096 + 64  # its header page, and its seal
    assert [written.found(recovered, queue) for queue in (0, 1)] == written.bodies


def test_a_digest_has_no_bodies_but_of_messages_that_memory_needs(written: Written) -> None:
    data = bytes(written.files.content(written.digests()[0]))
    assert b"\x1e\0\0\0\x04" in data, "message 4 is to be kept in memory"
    assert b"h\0\0\0\0\0" not in data


def test_a_segment_gets_its_digest_only_when_it_was_sealed_long_enough(tmp_path: Path) -> None:
    written = Written(tmp_path)
    settle(written.log)
    for path in written.digests():
        written.files.unlink(path)
    written.log.crash()
    now = [1_000_000]
    written.log, _ = opened(tmp_path, written.files, after_ms=10_000, clock=iter(lambda: now[0], None))
    settle(written.log)
    now[0] += 9_999
    settle(written.log)
    assert written.digests() == []
    now[0] += 1
    settle(written.log)
    assert len(written.digests()) == len(written.sealed())
    written.log.crash()


def flipped(at: int) -> Callable[[bytearray], None]:
    def flip(content: bytearray) -> None:
        content[at] ^= 0x10

    return flip


def cut(at: int) -> Callable[[bytearray], None]:
    def truncate(content: bytearray) -> None:
        del content[at:]

    return truncate


def test_a_digest_of_which_any_byte_is_wrong_or_missing_is_not_used(written: Written) -> None:
    path = written.digests()[0]
    whole = bytes(written.files.content(path))
    assert decode_digest(whole, SEED) is not None
    step = len(whole) // 200 + 1  # each byte of the head, and others
    places = [*range(HEAD_BYTES), *range(HEAD_BYTES, len(whole), step)]
    for at in places:
        for damage in (flipped(at), cut(at)):
            content = bytearray(whole)
            damage(content)
            assert decode_digest(bytes(content), SEED) is None
    assert decode_digest(whole + b"\0", SEED) is None
    assert decode_digest(whole, seed_of(b"\x08" * 16)) is None
    for damage in (flipped(HEAD_BYTES + 9), cut(len(whole) - 1), cut(0)):
        damage(written.files.content(path))
        assert [written.found(written.restart(), queue) for queue in (0, 1)] == written.bodies
        assert path not in written.digests(), "what can't be used is deleted"
        settle(written.log)
        assert bytes(written.files.content(path)) == whole, "and made again"


def test_a_digest_of_another_segment_log_or_seal_is_not_used(written: Written, tmp_path: Path) -> None:
    first, second = written.digests()[:2]
    own, others = bytes(written.files.content(first)), bytes(written.files.content(second))
    foreign = Written(tmp_path / "foreign", 60, b"\x08" * 16)
    settle(foreign.log)
    foreigner = bytes(foreign.files.content(foreign.digests()[0]))
    foreign.log.crash()
    for content in (others, foreigner):
        written.files.content(first)[:] = content
        assert [written.found(written.restart(), queue) for queue in (0, 1)] == written.bodies
        assert first not in written.digests()
        settle(written.log)
        assert bytes(written.files.content(first)) == own
    at = own_seal(own)
    written.files.content(first.with_name("segment-" + first.name[7:]))[at + 32] ^= 1  # the epoch of the seal
    assert_digests_find_the_same(written.files, written.folder, 2000)
    written.restart()
    assert first not in written.digests()


@pytest.mark.parametrize("version", [segment_digest.DIGEST_VERSION - 1, segment_digest.DIGEST_VERSION + 1])
def test_a_digest_of_another_release_is_not_used_but_made_again(
    written: Written, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """An upgrade, and a rollback: what the other release wrote is whole, and has another version."""
    paths, own = written.digests(), segment_digest.DIGEST_VERSION
    contents = [bytes(written.files.content(path)) for path in paths]
    monkeypatch.setattr(segment_digest, "DIGEST_VERSION", version)
    assert [written.found(written.restart(), queue) for queue in (0, 1)] == written.bodies
    assert written.digests() == []
    settle(written.log)
    assert written.digests() == paths, "the other release has written its own"
    monkeypatch.setattr(segment_digest, "DIGEST_VERSION", own)
    assert [written.found(written.restart(), queue) for queue in (0, 1)] == written.bodies
    assert written.digests() == []
    settle(written.log)
    assert [bytes(written.files.content(path)) for path in paths] == contents


@pytest.mark.parametrize("is_unreadable", [False, True])
def test_a_body_in_parts_is_checked_although_its_segment_is_not_read(written: Written, is_unreadable: bool) -> None:
    """Else a flipped bit reached a consumer as good data, and a page that can't be read kept the log from opening."""
    incarnation, body = written.queues[0], bytes(range(256)) * 120
    number = written.log.put(written.log.route_set((incarnation,)), body, 1)
    written.bodies[0][number] = body
    written.write(60, 300)
    settle(written.log)
    written.write(3, 400)
    assert written.found(written.restart(), 0) == written.bodies[0]
    pattern = bytes(range(256)) * 2
    spoiled = next(each for each in written.digests() if pattern in written.files.content(_segment_of(each)))
    at = written.files.content(_segment_of(spoiled)).index(pattern) + 300
    if is_unreadable:
        written.files.unreadable = {_segment_of(spoiled): (at, at + 1)}
    else:
        written.files.content(_segment_of(spoiled))[at] ^= 1
    recovered = written.restart()
    del written.bodies[0][number]
    assert written.found(recovered, 0) == written.bodies[0]
    assert recovered.lost == {incarnation: 1}
    assert [each.segment for each in recovered.damage] == [int(spoiled.name[7:-4], 16)]
    written.write(1, 500)
    assert written.restart().lost == {}, "it is said once"


def _segment_of(digest: Path) -> Path:
    return digest.with_name("segment-" + digest.name.removeprefix("digest-"))


def own_seal(digest: bytes) -> int:
    found = decode_digest(digest, SEED)
    assert found is not None
    return found.head.seal.offset


def test_what_is_damaged_in_a_segment_with_a_digest_is_found_when_it_is_read(
    written: Written, caplog: pytest.LogCaptureFixture
) -> None:
    path = next(path for path in written.files.paths() if path.name.startswith("segment-"))
    content = written.files.content(path)
    victim = next(
        number for number, body in written.bodies[0].items() if body[0] == 104 and number in written.bodies[1]
    )
    content[content.index(written.bodies[0][victim]) + 10] ^= 1
    recovered = written.restart()
    assert recovered.damage == ()
    with caplog.at_level(logging.ERROR):
        found = written.found(recovered, 1)
    assert set(written.bodies[1]) - set(found) == {victim}
    assert "the log is damaged" in caplog.text


def test_damage_in_a_segment_without_digest_has_all_segments_read(written: Written) -> None:
    """So that damage in a segment with a digest is found, too."""
    first, last = written.digests()[0], written.digests()[-1]
    written.log.crash()
    written.files.unlink(last)
    victims: set[int] = set()
    for digest in (first, last):
        content = written.files.content(digest.with_name("segment-" + digest.name[7:]))
        victim = max(number for number, body in written.bodies[0].items() if body in content)
        content[content.index(written.bodies[0][victim]) + 10] ^= 1
        victims.add(victim)
    bare = written.files.copy()
    for each in written.digests():
        bare.unlink(each)
    expected = recover(bare, written.folder, 2000, pageable=SmallRule(), kept_bytes=0).recovered
    written.log, recovered = opened(written.folder, written.files)
    assert [(each.segment, each.start, each.end) for each in recovered.damage] == [
        (each.segment, each.start, each.end) for each in expected.damage
    ]
    assert len(recovered.damage) == 2
    assert set(written.bodies[0]) - set(written.found(recovered, 0)) == victims


def test_the_digest_goes_with_its_segment_and_one_without_segment_is_deleted(written: Written) -> None:
    before = written.sealed()
    for queue in (0, 1):
        for number in list(written.bodies[queue]):
            written.take(queue, number)
    settle(written.log)
    assert len(written.sealed()) < len(before)
    assert [path.name for path in written.digests()] == [digest_name(number) for number in written.sealed()]
    stray = written.folder / digest_name(before[0] + 100)
    written.files.close(written.files.open(stray, create=True))
    written.restart()
    assert stray not in written.files.paths()


@pytest.mark.parametrize("names_kept", [0, ANY])
@pytest.mark.parametrize("survives", [0, 1, 5000, ANY])
def test_a_digest_that_was_lost_or_torn_by_a_loss_of_power_loses_nothing(
    written: Written, survives: int, names_kept: int
) -> None:
    written.log.crash()
    written.files.crash(lambda length: min(survives, length), names_kept)
    written.log, recovered = opened(written.folder, written.files)
    assert [written.found(recovered, queue) for queue in (0, 1)] == written.bodies


ENDS: dict[str, Callable[[SimulatedFiles], None]] = {
    "kill": SimulatedFiles.kill,
    "power, only what is synced stays": lambda files: files.crash(lambda length: 0, 0),
    "power, writes stay and names do not": lambda files: files.crash(lambda length: length, 0),
    "power, names stay and writes do not": lambda files: files.crash(lambda length: 0, ANY),
    "power, writes are torn": lambda files: files.crash(lambda length: length // 2, ANY),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_crash_at_any_step_of_writing_and_deleting_digests_loses_nothing(tmp_path: Path, end: str) -> None:
    before = Written(tmp_path, 70)
    settle(before.log)
    before.write(90, 100)
    for queue in (0, 1):  # so that segments become free, one of which has a digest
        for number in list(before.bodies[queue])[:60]:
            before.take(queue, number)
    before.log.write()
    before.log.sync()
    before.log.crash()
    before.files.kill()
    disk = files = before.files.copy()
    step, is_through = 0, False
    digests = {path.name for path in disk.paths() if path.name.startswith("digest-")}
    made: set[str] = set()
    while not is_through:
        files = disk.copy()
        log, _ = opened(tmp_path, files)
        files.steps_left = step
        try:
            settle(log)
            is_through = True
        except PowerCut:
            step += 1
        made |= {path.name for path in files.paths() if path.name.startswith("digest-")}
        log.crash()
        ENDS[end](files)
        assert_paging_finds_the_same(files, tmp_path, 2000)
        before.log, recovered = opened(tmp_path, files)
        assert [before.found(recovered, queue) for queue in (0, 1)] == before.bodies
        before.log.crash()
    assert made - digests and digests - {path.name for path in files.paths()}, "some were written, some deleted"


def test_no_digest_is_written_before_its_segment_is_synced(tmp_path: Path) -> None:
    written = Written(tmp_path, 3)
    log, synced = written.log, written.log.synced
    for at in range(60):
        log.put(log.route_set(tuple(written.queues)), b"h" * 500, at + 1)
        log.write()
    for _ in range(1000):
        log.maintain(1000)
        log.collect()
    assert log.segments >= 3 and log.synced == synced
    assert not log.wants_maintenance
    assert [bytes(written.files.content(path)) for path in written.digests()] == []
    settle(log)
    assert len(written.digests()) == len(written.sealed())
    log.crash()


def test_a_segment_that_is_recycled_while_its_digest_is_made_leaves_no_digest(tmp_path: Path) -> None:
    for steps in itertools.count():
        written = Written(tmp_path, 0)
        log, queue = written.log, written.queues[0]
        numbers: list[int] = []
        while log.segments < 3:
            numbers += [log.put(log.route_set((queue,)), b"h" * 700, at + 1) for at in range(10)]
            log.write()
        log.sync()
        for _ in range(steps):
            log.maintain(0)  # one step of whatever there is to do
        made = written.digests()
        for number in numbers:
            log.ack(queue, number)
        log.write()
        log.sync()
        while log.wants_maintenance:  # what is recycled comes before digests
            log.maintain(0)
            log.sync()
            log.collect()
        assert [path.name for path in written.digests()] == [digest_name(number) for number in written.sealed()]
        log.crash()
        if made:
            break


def test_a_digest_that_can_not_be_written_does_not_fail_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written = Written(tmp_path)
    open_file = written.files.open

    def refused(path: Path, *, create: bool) -> int:
        if path.name.startswith("digest-"):
            raise OSError(28, "no space left")
        return open_file(path, create=create)

    monkeypatch.setattr(written.files, "open", refused)
    with caplog.at_level(logging.WARNING):
        settle(written.log)
    assert written.log.failed is None and written.digests() == []
    assert "can't be written, so the next start reads the segment: [Errno 28]" in caplog.text
    monkeypatch.undo()
    assert [written.found(written.restart(), queue) for queue in (0, 1)] == written.bodies


def test_a_segment_of_which_too_much_would_stand_in_its_digest_has_none(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    incarnation = log.next_incarnation()
    log.topology("queue", "q", b"", incarnation)
    for at in range(60):
        log.put(log.route_set((incarnation,)), b"\x1e" * 500, at)  # all have to be kept in memory
        log.write()
    settle(log)
    assert log.segments > 1
    assert not any(path.name.startswith("digest-") for path in files.paths())
    log.crash()


def test_numbers_that_are_far_from_each_other_stand_in_runs_of_their_own() -> None:
    """As copies of one block have them, if a crash of the broker lies between their first puts."""
    block = b"".join(
        put_record(1, number, number, bytes((104,)) * 9, 0) for number in (7, 8, 7 + (1 << 32), 8 + (1 << 32))
    )
    builder = DigestBuilder(3, 1, SEED, SmallRule(), ANY)
    first = BlockHeader(3, 4096, len(block), BlockFlag.NONE, 1, 10, 9, 0)
    seal = BlockHeader(3, 8192, 0, BlockFlag.SEAL, 1, 11, 9, 0)
    for header, records in ((first, block), (seal, b"")):
        assert all(step is None for step in builder.add(header, memoryview(records)))
    digest = decode_digest(b"".join(builder.finished()), SEED)
    assert digest is not None
    runs = [item for item in digest.items if isinstance(item, PutRun)]
    assert [(list(run.firsts), list(run.lasts), list(run.lengths)) for run in runs] == [
        ([7], [8], [9, 9]),
        ([7 + (1 << 32)], [8 + (1 << 32)], [9, 9]),
    ]


def test_a_digest_is_what_the_reference_says() -> None:
    """docs/reference/log-format.md, "Digest", byte by byte."""
    index = BlockIndex()
    for first, last, offset in ((100, 102, 4096), (110, 111, 30000)):
        index.note(first, last, offset)
    alike = PutRun(3, array("Q", [100, 110]), array("Q", [102, 111]), array("I", [50] * 5), 1000, 2000)
    other = PutRun(4, array("Q", [120]), array("Q", [121]), array("I", [50, 51]), 3000, 0)
    closed = b"\x0c\0\0\0\0\0\0\0"
    items = b"".join(
        (
            segment_digest.run_item(alike),
            segment_digest.run_item(other),
            segment_digest.part_item(4160, Part(9, 1000, 24, 500)),
            segment_digest.records_item(4224, closed),
            *segment_digest.index_items(index, {3: 4096, 4: 30000}),
        )
    )
    typed = (
        (b"\2\1\0\0" + pack("<I", 52), pack("<IIQQQ", 3, 2, 100, 1000, 2000) + pack("<5I", 0, 10, 3, 2, 50)),
        (b"\2\0\0\0" + pack("<I", 48), pack("<IIQQQ", 4, 1, 120, 3000, 0) + pack("<4I", 0, 2, 50, 51)),
        (b"\3\0\0\0" + pack("<I", 28), pack("<QQIII", 9, 1000, 4160, 24, 500)),
        (b"\1\0\0\0" + pack("<I", 12), pack("<I", 4224) + closed),
        (b"\5\0\0\0" + pack("<I", 40), pack("<5Q", 100, 110, 4096, 30000, 111)),
        (b"\4\0\0\0" + pack("<I", 32), pack("<4Q", 3, 4096, 4, 30000)),
    )
    assert items == b"".join(head + rest for head, rest in typed)
    seal = BlockHeader(7, 16320, 0, BlockFlag.SEAL, 2, 99, 98, 1234)
    head = pack("<8sHHI4QII4Q", b"PENSTDIG", 3, 0, len(items), 7, 100, 2, 40, 16320, 0, 2, 99, 98, 1234)
    checksum = zlib.crc32(head + bytes(8), zlib.crc32(items, zlib.crc32(LOG_ID)))
    digest = DigestHead(7, 100, 2, 40, seal)
    data = segment_digest.encode_head(digest, len(items), zlib.crc32(items, SEED)) + items
    assert data == head + pack("<II", checksum, 0) + items
    found = decode_digest(data, SEED)
    assert found is not None and found.head == digest
    assert found.items == [alike, other, PlacedRecords(4160, [Part(9, 1000, 24, 500)]), PlacedRecords(4224, [Closed()])]
    assert found.definitions == {3: 4096, 4: 30000}
    assert [(list(firsts), list(offsets), last) for firsts, offsets, last in found.blocks.stretches()] == [
        ([100, 110], [4096, 30000], 111)
    ]


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(b"\6\0\0\0\0\0\0\0", id="unknown type"),
        pytest.param(b"\5\0\0\0\x10\0\0\0" + bytes(16), id="index without a last message"),
        pytest.param(b"\3\0\0\0\4\0\0\0" + bytes(4), id="short part"),
    ],
)
def test_items_that_contradict_their_checksum_are_named(item: bytes) -> None:
    head = DigestHead(7, 100, 2, 40, BlockHeader(7, 16320, 0, BlockFlag.SEAL, 2, 99, 98, 1234))
    with pytest.raises(Malformed, match="a digest of segment 7"):
        decode_digest(segment_digest.encode_head(head, len(item), zlib.crc32(item, SEED)) + item, SEED)


def test_a_run_reaches_no_further_than_its_distances_can_say() -> None:
    """They have 4 bytes each."""
    for reach in (0xFFFF_FFFF, 0x1_0000_0000):
        run = PutRun(1, array("Q", [7, 7 + reach]), array("Q", [7, 7 + reach]), array("I", [1, 1]), 0, 0)
        if reach >> 32:
            with pytest.raises(ValueError, match="too long"):
                segment_digest.run_item(run)
        else:
            assert segment_digest.run_item(run)
