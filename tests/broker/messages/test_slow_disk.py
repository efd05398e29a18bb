"""Large messages that come faster than the disk syncs: their senders wait, and nobody else does."""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from proton import Message
from support.broker_site import HeldSyncer
from support.large_messages import DURABLE, MIB, PART, VOLATILE, Uploading, digest, encoded
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream

from penstock_broker.access.connection import Connection, Phase
from penstock_broker.log import FileLayer

BOUND = 2 * MIB
READ = 64 * 1024
"""What is read at once."""
LARGE = 12 * MIB
MINUTE_MS = 60_000


class Disk:
    """A broker whose log is synced when the test says so."""

    def __init__(self) -> None:
        self.timed = SteppedBroker(
            {"log": {"max_unsynced_bytes": BOUND}, "max_message_bytes": 64 * MIB}, syncer=self._make, segment_bytes=MIB
        )
        self.streams: list[Eager] = []

    def _make(self, files: FileLayer) -> HeldSyncer:
        self.syncer = HeldSyncer(files)
        return self.syncer

    def catch_up(self) -> None:
        """The fdatasyncs that are under way end, and others may begin."""
        self.syncer.complete()
        self.timed.pass_ms(10)


class Eager(SteppedStream):
    """A client that sends whenever its socket takes something, and turns the broker meanwhile. While it waits for an
    answer, the disk works.
    """

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk.timed)
        self._disk = disk
        self.waiting = b""

    def sendall(self, data: bytes) -> None:
        self.waiting += data

    def offer(self) -> int:
        """Send what the socket takes; how much that was."""
        try:
            sent = self._sock.send(self.waiting[: 4 * PART]) if self.waiting else 0
        except BlockingIOError:
            sent = 0
        self.waiting = self.waiting[sent:]
        return sent

    def push(self) -> None:
        """Send until the broker takes nothing more for a while."""
        idle = 0
        while idle < 20:
            idle = 0 if self.offer() else idle + 1
            self._disk.timed.turn()

    def recv(self, size: int) -> bytes:
        self.push()
        while not self.has_something():
            self._disk.catch_up()
            self.push()
        return super().recv(size)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    for stream in disk.streams:
        stream.close()
    disk.timed.close()


def connection_of(disk: Disk, container: str) -> Connection:
    connections = disk.timed.broker.clients.connections.values()
    (found,) = [each for each in connections if each.client.container_id == container]
    return found


def started(disk: Disk, header: bytes = DURABLE, idle_ms: int | None = None) -> tuple[Eager, Uploading]:
    """A client that wants to send a large message, and has come as far as the disk lets it."""
    disk.timed.make_queue("q")
    disk.catch_up()
    stream = Eager(disk)
    disk.streams.append(stream)
    client = RawClient(0, "c", stream=stream, idle_time_out=idle_ms)
    client.begin()
    up = Uploading.to(client, "q")
    up.send(encoded(LARGE, header))
    stream.push()
    return stream, up


@pytest.mark.parametrize("header", [DURABLE, VOLATILE], ids=["durable", "volatile"])
def test_no_more_is_taken_than_may_wait_for_the_disk(disk: Disk, header: bytes) -> None:
    stream, up = started(disk, header)
    log = disk.timed.broker.log
    before = len(stream.waiting)
    assert before > LARGE - BOUND - 2 * MIB, "what it sent is out but for the bound and what its socket holds"
    assert BOUND < log.unsynced_body_bytes <= BOUND + READ
    stream.push()
    assert (len(stream.waiting), connection_of(disk, "c").reading.is_held) == (before, True)
    while stream.waiting:
        disk.catch_up()
        stream.push()
        assert log.unsynced_body_bytes <= BOUND + READ
    assert up.outcome() == "Accepted"
    (entry,) = disk.timed.queue("q")
    sent, size = digest(encoded(LARGE, header)), len(entry[1])
    assert digest(iter([entry[1].read(0, size)])) == sent  # type: ignore[attr-defined]  # a LargePayload


def test_a_message_whose_last_part_is_too_much_holds_its_sender_as_well(disk: Disk) -> None:
    """The read that brings the last part brings a whole message, and little."""
    disk.timed.make_queue("q")
    disk.catch_up()
    stream = Eager(disk)
    disk.streams.append(stream)
    client = RawClient(0, "c", stream=stream)
    client.begin()
    up = Uploading.to(client, "q")
    message = b"".join(encoded(BOUND + 500))
    for at in range(0, BOUND - 1000, PART):
        up.part(message[at : min(at + PART, BOUND - 1000)], first=at == 0)
        stream.push()
    up.part(message[BOUND - 1000 : BOUND - 500])  # a read that brings little
    stream.push()
    connection = connection_of(disk, "c")
    assert disk.timed.broker.log.unsynced_body_bytes <= BOUND
    assert not connection.reading.is_held
    up.part(message[BOUND - 500 :], more=False)
    stream.push()
    assert connection.reading.is_held
    assert connection.transport.events_mask == 0, "nothing more is read of it"
    assert up.outcome() == "Accepted"


def test_others_are_served_meanwhile(disk: Disk) -> None:
    disk.timed.make_queue("work", durable=False)
    disk.catch_up()
    witness = disk.timed.connect()
    witness.receive("work")
    assert witness.send("work", Message(body=0)) == ["accepted"]
    started(disk)
    for number in range(1, 5):
        assert witness.send("work", Message(body=number)) == ["accepted"]
        assert witness.take().body == number - 1
    assert connection_of(disk, "c").reading.is_held


def test_who_is_held_is_not_taken_for_dead_and_hears_of_us(disk: Disk) -> None:
    stream, _ = started(disk)
    stream.take()
    disk.timed.loop.time_outs.sweep()  # as once the ports are open
    for _ in range(10):
        disk.timed.pass_ms(MINUTE_MS)
    assert connection_of(disk, "c").phase is Phase.OPEN
    assert stream.take().count(b"\x00\x00\x00\x08\x02\x00\x00\x00") >= 10
    disk.catch_up()
    assert not connection_of(disk, "c").reading.is_held
    stream.push()
    disk.timed.pass_ms(MINUTE_MS // 2)
    assert connection_of(disk, "c").phase is Phase.OPEN


def test_who_is_held_and_goes_is_forgotten(disk: Disk) -> None:
    stream, up = started(disk)
    up.client.socket.close()
    for _ in range(20):
        disk.timed.turn()
    assert not disk.timed.broker.clients.connections
    disk.catch_up()
    assert not disk.timed.broker.work.held
    assert stream.waiting


def test_nobody_is_held_for_a_log_that_has_failed(disk: Disk) -> None:
    stream, _ = started(disk)
    disk.timed.files.broken.add("fdatasync")
    disk.catch_up()
    assert disk.timed.broker.log.failed is not None
    disk.timed.turn()
    assert not connection_of(disk, "c").reading.is_held
    stream.push()
    assert not stream.waiting


@pytest.mark.parametrize("idle_ms", [250, 400, 1000, 1900])
def test_a_sender_that_waits_for_the_disk_hears_from_us_within_its_idle_time_out(disk: Disk, idle_ms: int) -> None:
    """AMQP 1.0 part 2, 2.4.5: "If a peer needs to satisfy the need to send traffic to prevent idle timeout, and has
    nothing to send, it MAY send an empty frame"; while we do not read from it, and in the second behind that.
    """
    timed = disk.timed
    timed.loop.time_outs.sweep()  # it sets its next timer itself
    stream, _ = started(disk, idle_ms=idle_ms)
    heard = [timed.now_ms]

    def listen(milliseconds: int) -> None:
        until = timed.now_ms + milliseconds
        while timed.now_ms < until:
            timed.pass_ms(5)
            if stream.take():
                heard.append(timed.now_ms)

    listen(MINUTE_MS // 10)
    assert connection_of(disk, "c").reading.is_held
    while stream.waiting or connection_of(disk, "c").reading.is_held:
        disk.syncer.complete()
        listen(5)
        stream.push()
    listen(MINUTE_MS // 10)
    assert max(later - earlier for earlier, later in pairwise([*heard, timed.now_ms])) <= idle_ms
