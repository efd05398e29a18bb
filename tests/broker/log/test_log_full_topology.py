"""A full disk where the topology is large: it can be drained, and takes no more topology than leaves room for acks."""

# pyright: reportPrivateUsage=false

import itertools
from pathlib import Path

import pytest
from broker.log.log_steps import a_queue, settle
from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import Log, LogOptions, Recovered, SyncChoice

SEGMENT = 16384
OPTIONS = LogOptions(segment_bytes=SEGMENT, sync=SyncChoice.INLINE)


class FullDisk:
    """A log of so many documents of 400 bytes that was filled with messages until it refused them."""

    def __init__(self, folder: Path, *, segments: int, documents: int) -> None:
        self.folder, self.files = folder, SimulatedFiles()
        self.files.space = segments * SEGMENT
        self.clock = itertools.count(1, 500)
        self.log, _ = self._opened()
        for number in range(documents):
            self.log.topology("subscription", f"s{number}", bytes(400))
            if number % 20 == 0:
                settle(self.log)
        self.incarnation, self.route = a_queue(self.log)
        self.messages: list[int] = []
        self.fill()

    def _opened(self) -> tuple[Log, Recovered]:
        return Log.open(self.folder, files=self.files, options=OPTIONS, clock=lambda: next(self.clock))

    def fill(self) -> None:
        for _ in range(2000):
            if not self.log.accepts_publishing() and not self.log.makes_room():
                return
            if self.log.accepts_publishing():
                self.messages.append(self.log.put(self.route, bytes(500), 0))
            settle(self.log)
        raise AssertionError("a full disk was never noticed")

    def drain(self) -> None:
        """A consumer takes everything, one message after the other."""
        while self.messages:
            self.log.ack(self.incarnation, self.messages.pop(0))
            settle(self.log)

    def start_again(self) -> None:
        self.log.crash()
        self.log, _ = self._opened()
        self.route = self.log.route_set((self.incarnation,))


@pytest.mark.parametrize("documents", [10, 20, 36, 60, 75, 100])
@pytest.mark.parametrize("is_started_again", [False, True])
def test_it_can_be_drained_and_filled_again(tmp_path: Path, documents: int, is_started_again: bool) -> None:
    """The topology takes a quarter of a segment, half, nearly one, one and a half, nearly two, or two and a half."""
    disk = FullDisk(tmp_path, segments=24, documents=documents)
    for _ in range(3):
        count = len(disk.messages)
        assert count > 150, "much of the space holds messages"
        if is_started_again:
            disk.start_again()
            disk.fill()
        disk.drain()
        assert disk.log.failed is None
        assert disk.log.accepts_publishing()
        disk.fill()
        assert disk.log.failed is None
    disk.log.close()


def test_room_is_kept_from_the_start(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = Log.open(tmp_path, files=files, options=OPTIONS)
    for number in range(25):
        log.topology("subscription", f"s{number}", bytes(400))
    settle(log)
    log.crash()
    log, _ = Log.open(tmp_path, files=files, options=OPTIONS)
    assert log._spares.reserve == 3, "two, and one for two thirds of a segment"
    log.close()


def test_a_checkpoint_that_finds_no_room_is_left_out(tmp_path: Path) -> None:
    """Other files have filled the volume before the segments that it takes could be made."""
    files, clock = SimulatedFiles(), itertools.count(1, 500)
    log, _ = Log.open(tmp_path, files=files, options=OPTIONS, clock=lambda: next(clock))
    incarnation, route = a_queue(log)
    settle(log)
    for number in range(100):
        log.topology("subscription", f"s{number}", bytes(400))
        log.write()
        log.sync()
    messages: list[int] = []
    for _ in range(160):
        messages.append(log.put(route, bytes(500), 0))
        log.write()
        log.sync()
    endless, files.space = files.space, 0
    spares = len(log._spares)
    while len(log._spares) == spares:
        log.ack(incarnation, messages.pop(0))
        settle(log)
    assert log.full and log.failed is None
    assert len(log._spares) == spares - 1 > 0, "acks began one segment"
    files.space = endless
    for _ in range(4):
        next(clock)  # it looks again after a second
    settle(log)
    assert log.accepts_publishing() and log.failed is None
    log.close()


def test_topology_does_not_take_the_room_of_acks(tmp_path: Path) -> None:
    disk = FullDisk(tmp_path, segments=24, documents=10)
    log = disk.log
    assert log.takes_topology(), "some more is taken on a full disk"
    for number in itertools.count():
        if not log.takes_topology():
            break
        log.topology("subscription", f"t{number}", bytes(400))
        settle(log)
    assert log.full and log.failed is None
    assert len(log._spares) == 1, "what is left is for acks"
    disk.drain()
    assert log.failed is None
    assert log.takes_topology() and log.accepts_publishing()
    log.close()
