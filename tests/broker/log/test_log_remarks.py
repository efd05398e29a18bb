"""What a consumer has changed of a message (a remark) comes back with it at a start that leaves bodies in the log: such
a message is looked for and read into memory, past blocks that are damaged.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from broker.log.log_steps import a_queue, settle
from broker.log.recoveries import SmallRule
from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import Log, LogOptions, Recovered, SyncChoice

MESSAGES = 150
"""One in each block of about 350 bytes; a segment of 16 KiB holds some 40, of which the index notes one or two."""


def opened(folder: Path, files: SimulatedFiles) -> tuple[Log, Recovered]:
    options = LogOptions(segment_bytes=16384, sync=SyncChoice.INLINE, kept_bytes=0, digest_after_ms=0)
    return Log.open(folder, files=files, options=options, clock=itertools.count(1).__next__, pageable=SmallRule())


def body(at: int) -> bytes:
    return b"h" + at.to_bytes(4, "big") * 60


def places(files: SimulatedFiles, text: bytes) -> list[tuple[Path, int]]:
    """Where it stands in segments."""
    segments = [path for path in files.paths() if path.name.startswith("segment-")]
    found = [(path, bytes(files.content(path)).find(text)) for path in segments]
    return [(path, at) for path, at in found if at >= 0]


def spoil(files: SimulatedFiles, *bodies: bytes) -> None:
    """Flip a bit of each of these bodies on the disk."""
    for each in bodies:
        for path, at in places(files, each):
            files.content(path)[at + 20] ^= 1


def a_remarked_message(folder: Path) -> tuple[SimulatedFiles, int, int]:
    """A disk with `MESSAGES` in one queue, the thirty-first of them with a remark; the queue, and its number."""
    files = SimulatedFiles()
    log, _ = opened(folder, files)
    queue, route = a_queue(log)
    numbers: list[int] = []
    for at in range(MESSAGES):
        numbers.append(log.put(route, body(at), at + 1))
        log.write()
    assert log.remark(queue, numbers[30], b"changed")
    log.delivery_count(queue, numbers[30], 3)
    settle(log)
    log.put(route, body(MESSAGES), 1)  # its block says that what is before is synced
    log.write()
    log.sync()
    log.crash()
    return files, queue, numbers[30]


@pytest.mark.parametrize("has_digests", [True, False])
def test_a_remark_is_found_behind_blocks_that_are_damaged(tmp_path: Path, *, has_digests: bool) -> None:
    files, queue, number = a_remarked_message(tmp_path)
    digests = [path for path in files.paths() if path.name.startswith("digest-")]
    assert len(digests) >= 2
    for path in () if has_digests else digests:
        files.unlink(path)
    spoil(files, body(1), body(2), body(28), body(29))

    log, recovered = opened(tmp_path, files)
    [found] = [each for each in recovered.messages[queue] if each.number == number]
    assert (bytes(found.payload), found.remark, found.deliveries) == (body(30), b"changed", 3)
    assert bool(recovered.damage) is not has_digests, "a segment with a digest is not read at a start"
    log.crash()


def test_of_a_message_that_can_not_be_read_again_it_is_told_that_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, queue, number = a_remarked_message(tmp_path)
    spoil(files, body(30))

    log, recovered = opened(tmp_path, files)
    assert not any(each.number == number for each in recovered.messages[queue])
    assert f"message {number} can't be read again: no sound block at " in caplog.text
    log.crash()


def test_a_remark_is_there_again_once_the_disk_reads_its_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """That it can't be read now says nothing of whether it is there."""
    files, queue, number = a_remarked_message(tmp_path)
    [(path, at)] = places(files, body(30))
    files.unreadable[path] = at, at + 1
    log, recovered = opened(tmp_path, files)
    assert not any(each.number == number for each in recovered.messages[queue])
    assert f"message {number} can't be read again: {path} can't be read at " in caplog.text
    settle(log)
    log.close()
    files.unreadable.clear()

    log, recovered = opened(tmp_path, files)
    assert [each.remark for each in recovered.messages[queue] if each.number == number] == [b"changed"]
    log.crash()
