"""Traffic that leaves one message of many unconsumed, and how much of the disk the log uses beside what is alive.

The rate is a maximum at any time: what a stall kept from being sent is not made up for afterwards.
"""

import random
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crash.kills import SEGMENT_BYTES, Victim
from crash.load_client import Peer, encoded

BODY_BYTES = 1000
PER_RECORD = 40
BATCH = 64
LONGEST_BURST = 0.05
"""Seconds: after a stall, so much of the rate is sent at once at most."""
TELL_SECONDS = 60
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
    seconds: float = 0.0
    peak: int = 0
    worst: float = 0.0
    ratio: float = 0.0
    alive: float = 0.0
    """Segments that the messages which are left would fill."""
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
    Raises AssertionError if the broker does not accept one. `tell` is called once a minute.
    """
    chance, found = random.Random(seed), Sparse()
    victim = Victim(folder, "aio")
    message = encoded(bytes(BODY_BYTES), durable=True)

    def take(_: bytes) -> bool:
        is_left = chance.randrange(one_in) == 0
        found.received += 1
        found.left += is_left
        return not is_left

    def accepted(numbers: list[int]) -> None:
        found.accepted += len(numbers)

    try:
        host, port = victim.start()
        consumer, producer = Peer(host, port, "consumer"), Peer(host, port, "producer")
        peers = {peer.sock.fileno(): peer for peer in (consumer, producer)}
        poll = select.poll()
        for fd in peers:
            poll.register(fd, select.POLLIN)
        receiver = consumer.receiver(
            "sparse|global", "amq.topic/load", take, capabilities=("topic", "shared", "global"), durable=True
        )
        sender = producer.sender("sparse", "amq.topic/load", accepted)
        began = looked = told = time.monotonic()
        pace = Pace(most, began)
        while (now := time.monotonic()) < began + seconds or found.received < least:
            if receiver.attached:
                count = min(BATCH, sender.credit, pace.due(now))
                if count > 0:
                    sender.send([message] * count)
                    pace.sent(count)
            for fd, peer in peers.items():
                poll.modify(fd, select.POLLIN if peer.flush() else select.POLLIN | select.POLLOUT)
            for fd, mask in poll.poll(5):
                if mask & ~select.POLLOUT:
                    peers[fd].read()
            if now - looked >= 1:
                looked = now
                _look(folder / "data", found, len(message))
                found.resident = max(found.resident, victim.resident_bytes())
                found.seconds = now - began
                if now - told >= TELL_SECONDS:
                    told = now
                    tell(found)
        found.seconds = time.monotonic() - began
        for peer in peers.values():
            peer.free()
    finally:
        victim.end()
    return found


def _look(data: Path, found: Sparse, length: int) -> None:
    segments = len(list(data.rglob("segment-*.log")))
    found.alive = found.left * (length + PER_RECORD) / SEGMENT_BYTES
    found.segments = segments
    found.peak = max(found.peak, segments)
    found.worst = max(found.worst, segments - 2 * found.alive)
    if found.alive >= 1:
        found.ratio = max(found.ratio, segments / found.alive)
