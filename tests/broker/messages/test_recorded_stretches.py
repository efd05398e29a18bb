"""Entries of messages that are read back in whole blocks: the same as one by one, and shared by who reads the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.log.simulated_files import SimulatedFiles
from crash.load_client import encoded

from penstock_amqp.endpoint.events import NUMBER, Entry
from penstock_broker.log import Log, LogOptions, SyncChoice
from penstock_broker.messages.recorded_entries import RecordedEntries

ANY = 1 << 30
SHORT, OTHER = (
    encoded(b"x" * 50, durable=True),
    encoded(b"y" * 60, durable=True, properties=bytes.fromhex("005374c10100")),
)
TIMED = bytes.fromhex("005370c0080341407000000005") + bytes.fromhex("005375a0017a")
"""It lives for 5 ms."""


class Stored:
    """One block with messages of two kinds, and the log's numbers of them."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.queues = [log.next_incarnation() for _ in range(2)]
        for name, incarnation in zip("ab", self.queues, strict=True):
            log.topology("queue", name, b"", incarnation)
        routes = log.route_set(tuple(self.queues))
        self.bodies = [SHORT, SHORT, OTHER, TIMED, TIMED, SHORT]
        self.numbers = [log.put(routes, body, 1000 + at // 2) for at, body in enumerate(self.bodies)]
        log.write()

    def entries(self, queue: int, first: int, last: int) -> list[Entry]:
        return RecordedEntries().all_of(self.log.read(self.queues[queue], first, last, ANY, ANY))


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Stored]:
    log, _ = Log.open(tmp_path, files=SimulatedFiles(), options=LogOptions(sync=SyncChoice.INLINE))
    yield Stored(log)
    log.crash()


def expected(stored: Stored, first: int, last: int) -> list[Entry]:
    rows = zip(stored.numbers, stored.bodies, range(6), strict=True)
    all_of = [(number, body, 1000 + at // 2, 6000 + at // 2 if body == TIMED else 0, 1) for number, body, at in rows]
    return all_of[first : last + 1]


def test_a_whole_block_is_made_into_entries(stored: Stored) -> None:
    assert stored.entries(0, 0, ANY) == expected(stored, 0, 5)


def test_queues_that_read_the_same_block_share_its_entries(stored: Stored) -> None:
    mine, others = stored.entries(0, 0, ANY), stored.entries(1, 0, ANY)
    assert [entry[NUMBER] for entry in others] == stored.numbers
    assert all(one[1] is another[1] for one, another in zip(mine, others, strict=True))


def test_a_part_of_a_block_is_read_after_the_whole(stored: Stored) -> None:
    stored.entries(0, 0, ANY)
    assert stored.entries(1, stored.numbers[1], stored.numbers[3]) == expected(stored, 1, 3)
    assert stored.entries(1, 0, ANY) == expected(stored, 0, 5)


def test_what_was_taken_from_a_reading_is_not_shared(stored: Stored) -> None:
    stored.entries(0, 0, ANY).clear()
    assert stored.entries(0, 0, ANY) == expected(stored, 0, 5)
