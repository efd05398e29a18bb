"""A segment whose file is missing is told from one that was recycled, and what is lost with it is said, once.

docs/decisions/086-lost-segments.md. Random histories with a file removed are in test_log_lost_segments_property.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from broker.log.log_steps import a_queue, opened, settle
from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import Log, Recovered, inspect_log
from penstock_broker.log.format.record_codec import decode_records
from penstock_broker.log.format.records import SegmentState
from penstock_broker.log.format.segment_states import segment_state_record
from penstock_broker.log.recovery import lost_segments
from penstock_broker.log.recovery.replay import Replay


def segment(folder: Path, number: int) -> Path:
    return folder / f"segment-{number:016x}.log"


def numbers(recovered: Recovered, queue: int) -> list[int]:
    return [message.number for message in recovered.messages[queue]]


class Written:
    """A log of `count` messages of 3000 bytes in one queue, three in each segment; all of them synced."""

    def __init__(self, folder: Path, count: int = 16) -> None:
        self.folder, self.files = folder, SimulatedFiles()
        self.log, _ = opened(folder, self.files)
        self.queue, self.route = a_queue(self.log)
        self.messages: list[int] = []
        for _ in range(count):
            self.put()

    def put(self) -> None:
        self.messages.append(self.log.put(self.route, bytes(3000), 0))
        self.log.write()
        self.log.sync()

    def take(self, *messages: int) -> None:
        self.log.ack_many(self.queue, list(messages))
        self.log.write()
        self.log.sync()

    def lose(self, number: int) -> Recovered:
        """Close it, take the file of this segment away, and open it again."""
        self.log.close()
        self.files.unlink(segment(self.folder, number))
        return self.reopen()

    def reopen(self) -> Recovered:
        self.log, recovered = opened(self.folder, self.files)
        return recovered


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def test_the_record_is_written_as_the_format_says() -> None:
    state = SegmentState(5, 16, 18, ((2, 3), (9, 1)), is_partial=True, has_copies=True)
    record = bytes.fromhex(
        "1c 06 0000 38000000"
        "0500000000000000 1000000000000000 1200000000000000"
        "0200000000000000 0300000000000000 0900000000000000 0100000000000000"
    )
    assert segment_state_record(state) == record
    assert list(decode_records(memoryview(record))) == [state]
    over = bytes.fromhex("1c 01 0000 18000000 0700000000000000 0000000000000000 0000000000000000")
    assert segment_state_record(SegmentState(7, is_over=True)) == over
    assert list(decode_records(memoryview(over))) == [SegmentState(7, is_over=True)]


def test_a_missing_segment_is_named_with_its_messages_and_the_rest_is_served(
    written: Written, caplog: pytest.LogCaptureFixture
) -> None:
    recovered = written.lose(2)
    assert numbers(recovered, written.queue) == [*written.messages[:3], *written.messages[6:]]
    [damage] = recovered.damage
    first, last = written.messages[3], written.messages[5]
    assert (damage.segment, damage.start, damage.end, damage.copy) == (2, 0, 0, None)
    assert f"it was not recycled; it held messages {first} to {last}" in damage.reason
    assert recovered.lost == {written.queue: 3}
    assert "the log is damaged: segment-0000000000000002.log: there is no such file" in caplog.text
    assert "3 messages of queue 'q' are lost with them" in caplog.text


def test_a_lost_segment_is_told_of_once(written: Written) -> None:
    assert written.lose(2).damage
    written.log.crash()
    again = written.reopen()
    assert (again.damage, again.lost) == ((), {})
    assert len(numbers(again, written.queue)) == 13


def test_recycled_segments_are_not_missing(written: Written, caplog: pytest.LogCaptureFixture) -> None:
    written.take(*written.messages[:9])
    settle(written.log)
    assert segment(written.folder, 2) not in written.files.paths()
    for end in (Log.crash, Log.close):
        end(written.log)
        recovered = written.reopen()
        assert (recovered.damage, recovered.lost) == ((), {})
    assert "no such file" not in caplog.text


def test_what_was_acknowledged_since_the_checkpoint_is_not_lost(written: Written) -> None:
    """A checkpoint counts three messages in the second segment; two of them are taken behind it."""
    written.take(*written.messages[3:5])
    recovered = written.lose(2)
    assert recovered.lost == {written.queue: 1}


def test_what_was_acknowledged_before_the_checkpoint_is_not_counted_either(written: Written) -> None:
    written.take(*written.messages[3:5])
    for _ in range(3):  # a segment is begun, and a checkpoint is written in it
        written.put()
    recovered = written.lose(2)
    assert recovered.lost == {written.queue: 1}


def test_a_segment_without_live_messages_is_missed_for_its_acks(written: Written) -> None:
    """Its messages were taken, but it may hold acks of others."""
    written.take(*written.messages[3:6])
    recovered = written.lose(2)
    assert recovered.lost == {}
    assert [damage.segment for damage in recovered.damage] == [2]


def test_the_segment_that_was_begun_last_but_one_is_missed_too(written: Written) -> None:
    """No checkpoint names it: that in its own beginning went with it."""
    recovered = written.lose(5)
    [damage] = recovered.damage
    assert damage.segment == 5
    assert "what it held is not known" in damage.reason or "it held messages" in damage.reason
    assert numbers(recovered, written.queue) == [*written.messages[:12], *written.messages[15:]]


def test_without_any_checkpoint_no_segment_may_be_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first segment has all documents; what follows it has too little for a checkpoint."""
    written = Written(tmp_path, 4)
    written.log.crash()
    content = written.files.content(segment(tmp_path, 2))
    at = content.find(bytes.fromhex("0a 00 0000 08000000"))  # a checkpoint's begin
    content[at] ^= 0xFF
    written.files.unlink(segment(tmp_path, 1))
    recovered = written.reopen()
    assert 1 in [damage.segment for damage in recovered.damage]
    assert "no checkpoint that can be read says that it was not needed any more" in caplog.text


def test_an_older_release_said_nothing_of_segments(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log is read as before: a missing segment looks recycled."""

    def says_nothing(_usage: object, _segment_bytes: int) -> list[bytes]:
        return []

    monkeypatch.setattr("penstock_broker.log.append.turn.kept_segments", says_nothing)
    old = Written(written.folder / "old", 16)
    recovered = old.lose(2)
    assert (recovered.damage, recovered.lost) == ((), {})
    assert len(numbers(recovered, old.queue)) == 13


def test_many_missing_segments_are_one_line(written: Written, caplog: pytest.LogCaptureFixture) -> None:
    lost = lost_segments.LostSegments((3, 4, 5, 9), ("why",) * 4)
    with caplog.at_level(logging.ERROR):
        lost_segments.log_lost(lost, Replay())
    assert [record.getMessage() for record in caplog.records] == [
        "the log is damaged: segment-0000000000000003.log to segment-0000000000000005.log: why",
        "the log is damaged: segment-0000000000000009.log: why",
    ]
    written.log.close()


def test_verify_names_a_missing_segment(written: Written) -> None:
    written.log.close()
    written.files.unlink(segment(written.folder, 2))
    found = inspect_log(written.files, written.folder)
    [flaw] = found.flaws
    assert (flaw.segment, flaw.is_missing, flaw.copy) == (2, True, None)
    assert found.losses == {"q": 3}
    assert not found.is_sound
