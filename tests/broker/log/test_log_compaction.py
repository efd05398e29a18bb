"""What compaction of messages relies on, one case each, step by step."""

from collections.abc import Callable
from pathlib import Path

import pytest
from broker.log.log_steps import a_queue, opened, settle, whole
from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import Log


class Sparse:
    """A log of one queue in which one message of each ten stays, and its segments are much emptier than the bound."""

    def __init__(self, folder: Path, one_in: int = 10) -> None:
        self.folder, self.files = folder, SimulatedFiles()
        self.log, _ = opened(folder, self.files)
        self.queue, self.route = a_queue(self.log)
        self.live: dict[int, bytes] = {}
        for index in range(400):
            payload = bytes([index % 256]) * 400
            number = self.log.put(self.route, payload, 0)
            if index % one_in:
                self.log.ack(self.queue, number)
            else:
                self.live[number] = payload
            self.log.write()
        for _ in range(30):  # a checkpoint behind them
            self.log.topology("exchange", "x", bytes(1000))
            self.log.write()
        self.log.sync()

    def step(self) -> None:
        """One slice, as short as possible; nothing is synced."""
        self.log.maintain(0.0)

    def until_copied(self) -> None:
        """Slices until the first copies are written."""
        usage = self.log._usage  # pyright: ignore[reportPrivateUsage]
        before = {number: usage.segment_of(number) for number in self.live}
        while all(usage.segment_of(number) is segment for number, segment in before.items()):
            assert self.log.wants_maintenance
            self.step()
            self.log.collect()

    def take(self, number: int) -> None:
        del self.live[number]
        self.log.ack(self.queue, number)

    def restart(self, survives: Callable[[int], int] | None) -> None:
        """Kill the process, or cut the power; what is live must be there, and nothing else."""
        self.log.crash()
        if survives is None:
            self.files.kill()
        else:
            self.files.crash(survives, 9)
        self.log, recovered = opened(self.folder, self.files)
        assert recovered.damage == ()
        assert {each.number: whole(each.payload) for each in recovered.messages[self.queue]} == self.live


@pytest.fixture
def sparse(tmp_path: Path) -> Sparse:
    return Sparse(tmp_path)


def test_what_is_alive_is_moved_together(sparse: Sparse) -> None:
    before = sparse.log.segments
    settle_synced(sparse.log)
    assert before > 12
    assert sparse.log.segments <= 6
    sparse.restart(None)
    sparse.log.close()


def test_a_crash_before_the_copies_are_synced_loses_nothing(sparse: Sparse) -> None:
    sparse.until_copied()
    for _ in range(300):  # nothing is synced: no segment with an original may be used again
        sparse.step()
    sparse.restart(lambda length: 0)
    sparse.log.close()


def test_a_segment_of_which_a_part_was_copied_before_a_kill_is_copied_to_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for slices in range(0, 60, 3):
        sparse = Sparse(tmp_path / str(slices), one_in=3)
        sparse.until_copied()
        for _ in range(slices):
            sparse.step()
        sparse.restart(None)
        settle_synced(sparse.log)
        sparse.restart(None)
        sparse.log.close()
    assert "is left as it is" not in caplog.text


def in_parts(log: Log, payload: bytes) -> bytes:
    """The same payload, as one that came in parts."""
    body = log.stage()
    log.append(body, payload)
    return log.payload_of(body, b"", 0)


def test_a_crash_before_moved_parts_are_synced_loses_no_body(tmp_path: Path) -> None:
    """Of bodies in parts one of eight stays; their parts are copied, nothing is synced, and the power fails."""
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    queue, route = a_queue(log)
    live: dict[int, bytes] = {}
    for index in range(80):
        payload = bytes([index]) * 4000
        live[log.put(route, in_parts(log, payload), 0)] = payload
        log.write()
    for number in [number for index, number in enumerate(live) if index % 8]:
        log.ack(queue, number)
        del live[number]
    for _ in range(30):  # a checkpoint behind them
        log.topology("exchange", "x", bytes(1000))
        log.write()
    log.sync()
    before = log.sequence
    for _ in range(1500):
        log.maintain(0.0)
        log.collect()
    assert log.sequence > before + 10, "much was copied"
    log.crash()
    files.crash(lambda length: 0, 99)
    log, recovered = opened(tmp_path, files)
    assert recovered.damage == () and recovered.lost == {}
    assert {each.number: whole(each.payload) for each in recovered.messages[queue]} == live
    settle_synced(log)
    log.crash()
    files.kill()
    log, recovered = opened(tmp_path, files)
    assert {each.number: whole(each.payload) for each in recovered.messages[queue]} == live
    log.close()


def test_what_is_taken_while_it_is_copied_does_not_come_back(sparse: Sparse) -> None:
    """The first are copied; then half of all are taken, those included whose turn would come next."""
    sparse.until_copied()
    for number in list(sparse.live)[::2]:
        sparse.take(number)
    sparse.log.write()
    settle_synced(sparse.log)
    sparse.restart(None)
    sparse.log.close()


def test_acks_between_any_two_slices_are_noted(sparse: Sparse) -> None:
    for number in list(sparse.live)[::-1]:
        sparse.step()
        sparse.take(number)
        sparse.log.write()
        sparse.log.sync()
        sparse.log.collect()
    settle_synced(sparse.log)
    sparse.restart(None)
    sparse.log.close()


def test_a_message_taken_behind_its_copy_does_not_come_back_with_the_old_segment(sparse: Sparse) -> None:
    """Everything is taken after it was copied. The newer segments are used again at once, an old one is kept."""
    usage = sparse.log._usage  # pyright: ignore[reportPrivateUsage]
    before = {number: usage.segment_of(number) for number in sparse.live}
    sparse.until_copied()
    old = next(segment for number, segment in before.items() if usage.segment_of(number) is not segment)
    old.miscounted = True  # so that its file stays
    for number in list(sparse.live):
        sparse.take(number)
    sparse.log.write()
    for _ in range(3):
        for _ in range(60):
            sparse.log.topology("exchange", "x", bytes(1000))
            sparse.log.write()
        settle_synced(sparse.log)
    assert old in usage.segments
    sparse.restart(None)
    sparse.log.close()


def test_messages_are_read_back_while_they_are_copied(sparse: Sparse) -> None:
    """A queue that is paged reads its messages a few at a time; between any two reads some are moved."""
    last = max(sparse.live)

    def passed() -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        number = min(sparse.live)
        while number <= last:
            reading = sparse.log.read(sparse.queue, number, last, 3, 5000)
            found |= {put.message: put.payload for put in reading.puts if put.message in sparse.live}
            number = reading.following
            for _ in range(7):
                sparse.step()
                sparse.log.request_sync()
                sparse.log.collect()
        return found

    passes = 0
    before = sparse.log.segments
    while sparse.log.wants_maintenance or not passes:
        assert passed() == sparse.live
        passes += 1
    assert passes > 1
    assert sparse.log.segments < before - 5
    sparse.restart(None)
    assert passed() == sparse.live
    sparse.log.close()


def test_what_was_said_of_a_message_stays_with_its_copy(sparse: Sparse) -> None:
    number = next(iter(sparse.live))
    assert sparse.log.remark(sparse.queue, number, b"changed")
    sparse.log.delivery_count(sparse.queue, number, 3)
    settle_synced(sparse.log)
    sparse.log.close()
    _, recovered = opened(sparse.folder, sparse.files)
    (found,) = [each for each in recovered.messages[sparse.queue] if each.number == number]
    assert (found.remark, found.deliveries, whole(found.payload)) == (b"changed", 3, sparse.live[number])


def test_a_segment_that_can_not_be_read_is_left_alone(sparse: Sparse, caplog: pytest.LogCaptureFixture) -> None:
    usage = sparse.log._usage  # pyright: ignore[reportPrivateUsage]
    sparse.files.content(usage.segments[2].path)[8000] ^= 1
    bad = usage.segments[2]
    settle_synced(sparse.log)
    assert sparse.log.failed is None
    assert bad in usage.segments
    assert "can't be compacted" in caplog.text


def settle_synced(log: Log) -> None:
    """Idle turns, until nothing is left to do."""
    settle(log)
    while log.wants_maintenance or log.synced < log.sequence:
        log.write()
        log.sync()
        log.maintain(1000)
        log.collect()
