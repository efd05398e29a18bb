"""Room in the log: what is recycled, and what a full disk refuses and still takes."""

import itertools
from pathlib import Path

from broker.log.log_steps import a_queue, settle
from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import Log, LogOptions, SyncChoice

SMALL = LogOptions(segment_bytes=16384, sync=SyncChoice.INLINE)


def test_a_queue_in_steady_flow_needs_few_segments(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = Log.open(tmp_path, files=files, options=SMALL)
    incarnation, route = a_queue(log)
    for _ in range(200):
        number = log.put(route, b"x" * 1000, 0)
        log.write()
        log.ack(incarnation, number)
        settle(log)
    assert log.segments <= 3
    assert len([path for path in files.paths() if path.name.startswith("spare")]) <= 4
    log.close()


class Full:
    """A log that was filled until it refused publishers, on a disk of `segments` segments."""

    def __init__(self, folder: Path, segments: int) -> None:
        self.files = SimulatedFiles()
        self.files.space = segments * 16384
        self.clock = itertools.count(1, 500)
        self.log, _ = Log.open(folder, files=self.files, options=SMALL, clock=lambda: next(self.clock))
        self.incarnation, self.route = a_queue(self.log)
        self.messages: list[int] = []
        while self.log.accepts_publishing():
            self.publish()
            assert len(self.messages) < 1000, "a full disk was never noticed"

    def publish(self) -> None:
        self.messages.append(self.log.put(self.route, b"m" * 500, 0))
        self.log.write()
        self.log.maintain(1000)
        self.log.sync()


def test_a_full_disk_refuses_publishing_and_can_be_drained(tmp_path: Path) -> None:
    full = Full(tmp_path, segments=8)
    log = full.log
    assert log.full and log.failed is None
    assert len(full.messages) > 80, "most of the space held messages"
    for message in full.messages:
        log.ack(full.incarnation, message)
        log.topology("exchange", "still possible", b"x" * 100)
        log.write()
        log.sync()
        log.maintain(1000)
        log.collect()
    assert log.failed is None
    assert log.accepts_publishing()
    full.publish()
    log.close()


def test_draining_in_any_order_finds_room(tmp_path: Path) -> None:
    full = Full(tmp_path, segments=8)
    backwards = full.messages[::-1]
    for message in backwards:
        full.log.ack(full.incarnation, message)
        settle(full.log)
    assert full.log.failed is None
    assert full.log.accepts_publishing()
    full.log.close()


def test_more_space_ends_the_refusal(tmp_path: Path) -> None:
    full = Full(tmp_path, segments=8)
    full.files.space *= 2
    assert not full.log.accepts_publishing()
    for _ in range(4):
        next(full.clock)  # it looks again after a second
    settle(full.log)
    assert full.log.accepts_publishing() and not full.log.full
    full.log.close()


def test_publishers_wait_while_compaction_gains_room(tmp_path: Path) -> None:
    """The disk is full, and of each segment seven tenths are dead: nobody consumes any more, and nobody is refused
    before all of that is used again."""
    full = Full(tmp_path, segments=24)
    log = full.log
    left = full.messages[::3]
    for message in set(full.messages) - set(left):
        log.ack(full.incarnation, message)
    log.write()
    full.messages = []
    waited = 0
    while True:
        if log.makes_room:
            waited += 1
            log.write()
            log.request_sync()
            log.collect()
            log.maintain(0.0)
        elif log.accepts_publishing():
            full.publish()
        else:
            break
    assert waited > 0
    assert log.failed is None
    alive = (len(left) + len(full.messages)) * 532
    assert alive > 16 * 12_000, "most of the disk is alive when the first is refused"
    log.close()
    _, recovered = Log.open(tmp_path, files=full.files, options=SMALL)
    assert [each.number for each in recovered.messages[full.incarnation]] == left + full.messages


def test_a_full_disk_without_dead_space_refuses_at_once(tmp_path: Path) -> None:
    full = Full(tmp_path, segments=12)
    assert not full.log.makes_room
    full.log.close()
