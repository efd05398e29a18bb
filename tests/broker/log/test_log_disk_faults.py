"""What a start makes of a log whose files were lost, shortened, mixed up or can't be read, and of a start cut short.

Each outcome is a row of docs/reference/disk-faults.md.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from broker.log.log_steps import SMALL, a_queue, opened, settle
from broker.log.simulated_files import PowerCut, SimulatedFiles

from penstock_broker.log import ForeignSegment, Log, LogOptions, Recovered, SyncChoice, Unreadable
from penstock_broker.log.disk.files import Buffer, RealFiles, write_all


def segment(folder: Path, number: int) -> Path:
    return folder / f"segment-{number:016x}.log"


class Sixteen:
    """A log of sixteen messages of 3000 bytes in one queue, three in each of five segments and the last in the sixth;
    all of them synced, and called synced by the next block, which is the "closed" one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, SimulatedFiles()
        log, _ = opened(folder, self.files)
        self.queue, route = a_queue(log)
        self.messages: list[int] = []
        for number in range(16):
            self.messages.append(log.put(route, bytes([number]) * 3000, 0))
            log.write()
            log.sync()
        log.close()
        assert segment(folder, 6) in self.files.paths()

    def reopened(self) -> Recovered:
        log, recovered = opened(self.folder, self.files)
        log.close()
        return recovered

    def found(self) -> list[int]:
        return [message.number for message in self.reopened().messages[self.queue]]


@pytest.fixture
def sixteen(tmp_path: Path) -> Sixteen:
    return Sixteen(tmp_path)


# Headers --------------------------------------------------------------------------------------------------------------


def test_a_header_lost_with_its_page_is_written_anew(sixteen: Sixteen) -> None:
    sixteen.files.content(segment(sixteen.folder, 2))[:4096] = bytes(4096)
    assert sixteen.found() == sixteen.messages
    assert sixteen.files.content(segment(sixteen.folder, 2))[:8] == b"PENSTOCK"


def test_a_log_whose_headers_are_all_lost_is_found_by_its_blocks(
    sixteen: Sixteen, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1, 7):
        sixteen.files.content(segment(sixteen.folder, number))[:4096] = bytes(4096)
    recovered = sixteen.reopened()
    assert [message.number for message in recovered.messages[sixteen.queue]] == sixteen.messages
    assert "its id was found by its blocks" in caplog.text
    assert recovered.epoch == 1
    assert sixteen.found() == sixteen.messages, "and the same with the headers that were written anew"


def test_headers_and_blocks_that_are_all_spoiled_are_no_new_log(sixteen: Sixteen) -> None:
    for number in range(1, 7):
        content = sixteen.files.content(segment(sixteen.folder, number))
        content[:4096] = bytes(4096)
        at = 4096
        while (at := content.find(b"PSTB", at)) >= 0:
            content[at + 12] ^= number  # the checksum, of each block in another way
            content[at + 13] ^= at // 64 % 255 + 1
            at += 1
    before = {path: bytes(sixteen.files.content(path)) for path in sixteen.files.paths()}
    with pytest.raises(Unreadable, match=r"no segment in .* has a header that can be read"):
        sixteen.reopened()
    assert {path: bytes(sixteen.files.content(path)) for path in sixteen.files.paths()} == before


@pytest.mark.parametrize("longest_lost", [1 << 30, 4096 + 500])
def test_a_first_start_that_lost_power_at_any_step_leaves_a_log_that_lasts(tmp_path: Path, longest_lost: int) -> None:
    """What the second life accepts, the third must find: the header of the first may never have reached the disk."""
    steps = 0
    for steps in range(100):  # left when the first start needs no more steps
        files, folder = SimulatedFiles(), tmp_path / str(steps)
        files.steps_left = steps
        try:
            opened(folder, files)
        except PowerCut:
            files.crash(lambda length: length if length > longest_lost else 0, names_kept=99)
        else:
            break
        log, _ = opened(folder, files)
        queue, route = a_queue(log)
        number = log.put(route, b"accepted", 0)
        assert log.write() == log.sequence
        log.sync()
        log.crash()
        _, recovered = opened(folder, files)
        assert [message.number for message in recovered.messages[queue]] == [number], steps
    assert steps > 4


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_truncated_segment_costs_what_was_cut_off(sixteen: Sixteen) -> None:
    del sixteen.files.content(segment(sixteen.folder, 3))[4096 + 3200 :]
    recovered = sixteen.reopened()
    lost = sixteen.messages[7:9]
    assert [message.number for message in recovered.messages[sixteen.queue]] == [
        number for number in sixteen.messages if number not in lost
    ]
    assert [damage.segment for damage in recovered.damage] == [3]
    assert sixteen.reopened().damage[0].segment == 3


@pytest.mark.parametrize("length", [0, 100, 4096])
def test_a_segment_cut_down_to_nothing_is_damage_too(sixteen: Sixteen, length: int) -> None:
    del sixteen.files.content(segment(sixteen.folder, 3))[length:]
    recovered = sixteen.reopened()
    assert len(recovered.messages[sixteen.queue]) == 13
    assert [damage.segment for damage in recovered.damage] == [3]


def test_a_foreign_segment_is_set_aside_and_the_rest_is_served(sixteen: Sixteen, tmp_path: Path) -> None:
    other = SimulatedFiles()
    log, _ = opened(tmp_path / "other", other)
    log.close()
    content = bytes(other.content(segment(tmp_path / "other", 1)))
    handle = sixteen.files.open(segment(sixteen.folder, 4), create=False)
    sixteen.files.pwrite(handle, content, 0)
    sixteen.files.close(handle)
    recovered = sixteen.reopened()
    assert len(recovered.messages[sixteen.queue]) == 13
    [damage] = recovered.damage
    assert (damage.segment, damage.reason) == (4, "it is a segment of another log")
    assert damage.copy is not None
    assert sixteen.files.content(damage.copy) == content
    assert segment(sixteen.folder, 4) not in sixteen.files.paths()
    assert sixteen.reopened().damage == ()


def test_segments_of_two_logs_half_and_half_are_refused(tmp_path: Path) -> None:
    one, other = SimulatedFiles(), SimulatedFiles()
    for files in (one, other):
        log, _ = opened(tmp_path, files)
        log.close()
    handle = one.open(segment(tmp_path, 2), create=True)
    one.pwrite(handle, bytes(other.content(segment(tmp_path, 1))), 0)
    one.close(handle)
    before = {path: bytes(one.content(path)) for path in one.paths()}
    with pytest.raises(ForeignSegment, match=r"0001\.log, segment-.*0002\.log in .* belong to several logs"):
        opened(tmp_path, one)
    assert {path: bytes(one.content(path)) for path in one.paths()} == before


def test_files_with_other_names_are_left_alone(sixteen: Sixteen, caplog: pytest.LogCaptureFixture) -> None:
    strange = [sixteen.folder / name for name in ("segment-1.log.bak", "segment-copy.log", "spare-old.log", "notes")]
    for path in strange:
        sixteen.files.close(sixteen.files.open(path, create=True))
    assert sixteen.found() == sixteen.messages
    assert set(strange) <= set(sixteen.files.paths())
    assert "segment-1.log.bak is not a file of the log: it is ignored" in caplog.text
    assert "notes" not in caplog.text


# What the disk can't read ---------------------------------------------------------------------------------------------


def test_a_page_that_the_disk_can_not_read_is_damage_like_any_other(
    sixteen: Sixteen, caplog: pytest.LogCaptureFixture
) -> None:
    sixteen.files.unreadable = {
        segment(sixteen.folder, 2): (8192, 8193)
    }  # in the second message of three; its page reaches into the third
    recovered = sixteen.reopened()
    assert [message.number for message in recovered.messages[sixteen.queue]] == [
        *sixteen.messages[:4],
        *sixteen.messages[6:],
    ]
    assert [damage.segment for damage in recovered.damage] == [2]
    assert "0002.log, bytes 8192 to 12288: they are taken as zeros" in caplog.text


def test_a_header_that_the_disk_can_not_read_costs_nothing(sixteen: Sixteen) -> None:
    sixteen.files.unreadable = {segment(sixteen.folder, 2): (0, 4096)}
    assert sixteen.found() == sixteen.messages


@pytest.mark.parametrize("number", [5, 6])
def test_where_the_log_may_end_nothing_unreadable_is_given_up_in_silence(sixteen: Sixteen, number: int) -> None:
    """In 5 the seal and all of 6 follow, so it is damage; in 6 nobody can say what followed."""
    path = segment(sixteen.folder, number)
    sixteen.files.unreadable = {path: (4096, 8192)}
    if number == 5:
        assert len(sixteen.found()) < 16
        return
    before = {each: bytes(sixteen.files.content(each)) for each in sixteen.files.paths()}
    with pytest.raises(Unreadable, match=r"0006\.log, bytes 4096 to 8192, can't be read, and may hold"):
        sixteen.reopened()
    assert {each: bytes(sixteen.files.content(each)) for each in sixteen.files.paths()} == before
    sixteen.files.unreadable = {}
    assert sixteen.found() == sixteen.messages, "once the volume is back, nothing is lost"


def test_a_segment_that_can_not_be_read_at_all_stops_the_start(tmp_path: Path) -> None:
    """A volume that fails as a whole must not be taken for a log without contents."""
    big = LogOptions(segment_bytes=2 * 1024 * 1024, sync=SyncChoice.INLINE)
    files = SimulatedFiles()
    log, _ = Log.open(tmp_path, files=files, options=big)
    _, route = a_queue(log)
    for _ in range(3):
        log.put(route, bytes(900_000), 0)
        log.write()
        log.sync()
    log.close()
    files.unreadable = {segment(tmp_path, 1): (4096, 2 * 1024 * 1024)}
    with pytest.raises(Unreadable, match="more than 1048576 bytes can't be read from byte 4096 on"):
        Log.open(tmp_path, files=files, options=big)


def test_an_error_of_the_whole_volume_is_no_damage(sixteen: Sixteen, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> bytes:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(sixteen.files, "pread", refused)
    with pytest.raises(OSError, match="Stale file handle"):
        sixteen.reopened()


def test_a_copy_that_a_crash_left_in_part_is_written_again(sixteen: Sixteen) -> None:
    content = sixteen.files.content(segment(sixteen.folder, 2))
    content[8192] ^= 1
    [damage] = sixteen.reopened().damage
    assert damage.copy is not None
    whole = bytes(sixteen.files.content(damage.copy))
    del sixteen.files.content(damage.copy)[10:]
    sixteen.reopened()
    assert sixteen.files.content(damage.copy) == whole


# Clock, signals, short writes -----------------------------------------------------------------------------------------


def test_a_clock_that_is_put_back_does_not_keep_a_full_log_full(tmp_path: Path) -> None:
    files, now = SimulatedFiles(), [2_000_000_000_000]
    files.space = 8 * 16384
    log, _ = Log.open(tmp_path, files=files, options=SMALL, clock=lambda: now[0])
    _, route = a_queue(log)
    for _ in range(1000):
        if not log.accepts_publishing():
            break
        log.put(route, b"m" * 500, 0)
        settle(log)
    assert log.full
    files.space *= 2
    now[0] -= 3_600_000
    settle(log)
    assert log.accepts_publishing()
    log.close()


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000, -2_000_000_000_000])
def test_a_log_does_not_depend_on_the_clock(tmp_path: Path, jump_ms: int) -> None:
    files, now = SimulatedFiles(), [2_000_000_000_000]
    found: list[int] = []
    for life in range(3):
        log, recovered = Log.open(tmp_path, files=files, options=SMALL, clock=lambda: now[0])
        if not life:
            queue, route = a_queue(log)
        else:
            queue = next(iter(recovered.messages))
            route = log.route_set((queue,))
            assert [message.number for message in recovered.messages[queue]] == found
        found.append(log.put(route, b"m" * 500, 0))
        now[0] = max(now[0] + jump_ms, 0)
        log.write()
        log.sync()
        log.crash()


class Stingy(RealFiles):
    """Takes at most a hundred bytes at a time, and after `most` of them none."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def pwrite(self, handle: int, data: Buffer, offset: int) -> int:
        taken = min(100, len(data), self.most)
        self.most -= taken
        return os.pwrite(handle, memoryview(data)[:taken], offset) if taken else 0


def test_a_write_taken_in_pieces_is_whole_and_one_that_stops_is_an_error(tmp_path: Path) -> None:
    files = Stingy(1000)
    handle = files.open(tmp_path / "file", create=True)
    write_all(files, handle, b"x" * 950, 0)
    assert (tmp_path / "file").read_bytes() == b"x" * 950
    with pytest.raises(OSError, match="took no byte"):
        write_all(files, handle, b"y" * 950, 0)
    files.close(handle)
