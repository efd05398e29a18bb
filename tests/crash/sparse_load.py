"""Traffic that leaves one message of many unconsumed, and how much of the disk the log uses beside what is alive.

All messages are for a subscription that is consumed; a few of them are also for one that nobody has consumed since it
was made.
The rate is a maximum at any time: what a stall kept from being sent is not made up for afterwards.
"""

import random
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crash.kills import SEGMENT_BYTES, Victim
from crash.load_client import Peer, encoded

BODY_BYTES = 1000
STAYS = b"\x00\x53\x74\xc1\x09\x02\xa1\x05stays\x41"
"""Application properties: stays = true."""
_LEFT = "left|global"
_DURABLE: dict[str, Any] = {"capabilities": ("topic", "shared", "global"), "durable": True}
PER_RECORD = 40
BATCH = 64
LONGEST_BURST = 0.05
"""Seconds: after a stall, so much of the rate is sent at once at most."""
TELL_SECONDS = 60
SILENT_SECONDS = 60
A_FEW = 12
"""Segments that may be in use besides twice what is alive."""


class Pace:
    """How many messages are due, at most `most` a second. Pure: the caller knows the time, in seconds."""

    def __init__(self, most: float, now: float) -> None:
        self._most, self._since = most, now

    def due(self, now: float) -> int:
        """How many may be sent now."""
        self._since = max(self._since, now - max(LONGEST_BURST, 1 / self._most))
        return int((now - self._since) * self._most + 1e-9)

    def sent(self, count: int) -> None:
        """So many were sent."""
        self._since += count / self._most


@dataclass
class Sparse:
    """`peak`: the most segments in use at any look; `worst`: the most beyond twice what was alive at that time;
    `ratio`: the most in use for each that was alive, of looks at which at least one was alive.
    """

    accepted: int = 0
    received: int = 0
    left: int = 0
    returned: int = 0
    """Of those that were left, what came when they were asked for at the end: no less."""
    seconds: float = 0.0
    peak: int = 0
    worst: float = 0.0
    ratio: float = 0.0
    alive: float = 0.0
    """Segments that the messages would fill which are left, or on their way."""
    on_their_way: int = 0
    """The most messages at any look that were sent and had not come yet. On a busy machine they are many."""
    segments: int = 0
    """In use at the last look."""
    resident: int = 0
    """The most bytes that the broker had in memory at any look."""

    @property
    def rate(self) -> float:
        """Durable messages accepted per second."""
        return self.accepted / self.seconds if self.seconds else 0.0

    @property
    def is_within_bound(self) -> bool:
        """Space in use was never above twice what was alive and a few segments."""
        return self.worst <= A_FEW


def run_sparse(
    folder: Path,
    seconds: float,
    one_in: int,
    *,
    most: float,
    least: int = 0,
    seed: int = 1,
    tell: Callable[[Sparse], None] = lambda found: None,
) -> Sparse:
    """Publish and consume for so many seconds, at most `most` messages a second; about one message in `one_in` stays.

    It goes on until `least` messages were received, however slow the machine is.
    What is left is consumed at the end. Raises AssertionError if the broker does not accept a message or give back one
    that was left. `tell` is called once a minute.
    """
    chance, found = random.Random(seed), Sparse()
    victim = Victim(folder, "aio")
    taken = encoded(bytes(BODY_BYTES), durable=True)
    left = encoded(bytes(BODY_BYTES), durable=True, properties=STAYS)

    def next_message() -> bytes:
        is_left = chance.randrange(one_in) == 0
        found.left += is_left
        return left if is_left else taken

    def take(_: bytes) -> bool:
        found.received += 1
        return True

    def accepted(numbers: list[int]) -> None:
        found.accepted += len(numbers)

    try:
        host, port = victim.start()
        _subscribe(host, port)
        consumer, producer = Peer(host, port, "consumer"), Peer(host, port, "producer")
        peers = {peer.sock.fileno(): peer for peer in (consumer, producer)}
        poll = select.poll()
        for fd in peers:
            poll.register(fd, select.POLLIN)
        receiver = consumer.receiver("sparse|global", "amq.topic/load", take, **_DURABLE)
        sender = producer.sender("sparse", "amq.topic/load", accepted)
        began = looked = told = time.monotonic()
        pace, sent = Pace(most, began), 0
        while (now := time.monotonic()) < began + seconds or found.received < least:
            if receiver.attached:
                count = min(BATCH, sender.credit, pace.due(now))
                if count > 0:
                    sender.send([next_message() for _ in range(count)])
                    pace.sent(count)
                    sent += count
            for fd, peer in peers.items():
                poll.modify(fd, select.POLLIN if peer.flush() else select.POLLIN | select.POLLOUT)
            for fd, mask in poll.poll(5):
                if mask & ~select.POLLOUT:
                    peers[fd].read()
            if now - looked >= 1:
                looked = now
                _look(folder / "data", found, len(left), sent - found.received)
                found.resident = max(found.resident, victim.resident_bytes())
                found.seconds = now - began
                if now - told >= TELL_SECONDS:
                    told = now
                    tell(found)
        found.seconds = time.monotonic() - began
        _serve(producer, lambda: found.accepted == sent)
        for peer in peers.values():
            peer.free()
        _take_left(host, port, found)
    finally:
        victim.end()
    return found


def _subscribe(host: str, port: int) -> None:
    """Make the subscription of what stays, and leave it."""
    peer = Peer(host, port, "absent")
    receiver = peer.receiver(_LEFT, "amq.topic/load", _never, credit=0, selector="stays = TRUE", **_DURABLE)
    _serve(peer, lambda: receiver.attached)
    peer.free()


def _take_left(host: str, port: int, found: Sparse) -> None:
    """Consume what stayed; returns when all of it has come."""

    def take(message: bytes) -> bool:
        assert STAYS in message[:64], "a message that does not stay"
        found.returned += 1
        return True

    peer = Peer(host, port, "back")
    peer.receiver(_LEFT, "amq.topic/load", take, selector="stays = TRUE", **_DURABLE)
    _serve(peer, lambda: found.returned >= found.left)
    peer.free()


def _never(_: bytes) -> bool:
    raise AssertionError("a message without credit")


def _serve(peer: Peer, reached: Callable[[], bool | None]) -> None:
    """Read and write until `reached`. Raises AssertionError if nothing comes for a minute."""
    poll, silent = select.poll(), 0
    poll.register(peer.sock.fileno(), select.POLLIN)
    while not reached():
        poll.modify(peer.sock.fileno(), select.POLLIN if peer.flush() else select.POLLIN | select.POLLOUT)
        ready = poll.poll(1000)
        silent = 0 if ready else silent + 1
        assert silent < SILENT_SECONDS, "the broker has not given what it should"
        for _, mask in ready:
            if mask & ~select.POLLOUT:
                peer.read()


def _look(data: Path, found: Sparse, length: int, on_their_way: int) -> None:
    """`length`: bytes of a message; `on_their_way`: those that were sent and have not come yet."""
    segments = len(list(data.rglob("segment-*.log")))
    found.on_their_way = max(found.on_their_way, on_their_way)
    found.alive = (found.left + on_their_way) * (length + PER_RECORD) / SEGMENT_BYTES
    found.segments = segments
    found.peak = max(found.peak, segments)
    found.worst = max(found.worst, segments - 2 * found.alive)
    if found.alive >= 1:
        found.ratio = max(found.ratio, segments / found.alive)
