"""Space in use stays within twice what is alive and a few segments, whatever the sizes and whatever is taken."""

import os
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from broker.log.log_steps import whole
from broker.log.simulated_files import SimulatedFiles
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_broker.log import Log, LogOptions, SyncChoice
from penstock_broker.log.compaction import ack_compaction

EXAMPLES = int(os.environ.get("PENSTOCK_LOG_EXAMPLES", "10"))  # more for a long search
SEGMENT = 64 * 1024
OPTIONS = LogOptions(segment_bytes=SEGMENT, inline_bytes=25_000, sync=SyncChoice.INLINE)
A_FEW = 13
"""Segments: 4 of slack and up to 4 kept for their acks, both raised by a seventh; those since the last checkpoint."""
RECORD = 32
"""Bytes of a put besides its payload."""
MOST_TURNS = 2000
"""In so many turns of nothing but idle work everything is done that is worth doing."""


class Kept:
    """A log of some queues, and what is alive in it."""

    def __init__(self, folder: Path, queues: int = 2) -> None:
        self.folder, self.files, self.now = folder, SimulatedFiles(), 0
        self.log = self._opened()
        self.queues = tuple(self.log.next_incarnation() for _ in range(queues))
        for index, queue in enumerate(self.queues):
            self.log.topology("queue", str(index), b"", queue)
        self.live: dict[int, dict[int, bytes]] = {queue: {} for queue in self.queues}

    def _opened(self) -> Log:
        log, recovered = Log.open(self.folder, files=self.files, options=OPTIONS, clock=lambda: self.now)
        assert recovered.damage == () and recovered.lost == {}
        self.found = {
            incarnation: {each.number: whole(each.payload) for each in queue}
            for incarnation, queue in recovered.messages.items()
        }
        return log

    def put(self, size: int, queues: tuple[int, ...]) -> int:
        payload = self.log.next_number.to_bytes(8, "big") * (size // 8)
        number = self.log.put(self.log.route_set(queues), self._payload(payload), 0)
        for queue in queues:
            self.live[queue][number] = payload
        return number

    def _payload(self, payload: bytes) -> bytes:
        if len(payload) <= OPTIONS.inline_bytes:
            return payload
        body = self.log.stage()
        for start in range(0, len(payload), 5000):
            self.log.append(body, payload[start : start + 5000])
        return self.log.payload_of(body, b"", 0)

    def take(self, queue: int, number: int) -> None:
        if self.live[queue].pop(number, None) is not None:
            self.log.ack(queue, number)

    def turn(self) -> None:
        self.log.write()
        self.log.sync()
        self.log.maintain(1000)

    @property
    def alive_bytes(self) -> int:
        return sum(
            {each: len(payload) + RECORD for queue in self.live.values() for each, payload in queue.items()}.values()
        )

    def settle(self) -> None:
        """Nothing happens any more; two segments of topology, so that there is a checkpoint behind everything."""
        for _ in range(2 * SEGMENT // 4000):
            self.log.topology("exchange", "x", bytes(4000))
            self.turn()
        turns = 0
        while True:
            self.now += 10_000  # after which it may look again
            if not self.log.wants_maintenance:
                return
            while self.log.wants_maintenance:
                self.turn()
                turns += 1
                assert turns < MOST_TURNS, f"idle work without end, with {self.log.segments} segments"

    def restart(self) -> None:
        """kill -9; the same is alive as before."""
        self.log.crash()
        self.files.kill()
        self.log = self._opened()
        assert self.found == self.live

    def check(self) -> None:
        """The bound holds, and the same is alive after a kill as before."""
        self.settle()
        assert self.log.segments <= 2 * self.alive_bytes / SEGMENT + A_FEW
        self.restart()
        self.log.close()


def taken(order: str, size: int, chance: Random, kept: float) -> bool:
    match order:
        case "the longest":
            return size > 5000 or chance.random() < kept / 20
        case "the shortest":
            return size < 5000 or chance.random() < kept / 20
        case _:
            return chance.random() >= kept


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    chance=st.integers(0, 1 << 32).map(Random),
    phases=st.lists(
        st.tuples(
            st.sampled_from([(0, 16), (40, 40, 40, 20_000), (8, 24, 400), (8,) * 200 + (24_000,), (200, 60_000)]),
            st.integers(1, 12),
            st.sampled_from(["the longest", "the shortest", "any"]),
            st.sampled_from([0.01, 0.1, 0.5]),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_the_bound_holds_for_any_sizes(chance: Random, phases: list[tuple[tuple[int, ...], int, str, float]]) -> None:
    with TemporaryDirectory() as folder:
        log = Kept(Path(folder))
        for sizes, segments, order, share in phases:
            written, put = 0, list[tuple[int, int]]()
            while written < segments * SEGMENT:
                for _ in range(chance.randint(1, 60)):
                    size = chance.choice(sizes)
                    queues = log.queues if chance.random() < 0.3 else (chance.choice(log.queues),)
                    put.append((log.put(size, queues), size))
                    written += size + RECORD
                log.turn()
            for number, size in put:
                for queue in log.queues:
                    if taken(order, size, chance, share):
                        log.take(queue, number)
            log.turn()
        log.check()


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("stays", ["the long", "the short"])
def test_one_long_message_among_many_short_ones(tmp_path: Path, stays: str, is_restarted: bool) -> None:
    """Of sixty-one messages one takes nine tenths of the bytes: by number nearly all stay, or nearly all leave."""
    log = Kept(tmp_path)
    (queue, *_) = log.queues
    put: list[tuple[int, bool]] = []
    for _ in range(120):
        put.append((log.put(20_000, (queue,)), True))
        for _ in range(60):
            put.append((log.put(8, (queue,)), False))
        log.turn()
    if is_restarted:
        log.restart()
    for number, is_long in put:
        if is_long != (stays == "the long"):
            log.take(queue, number)
    log.check()


def test_a_body_in_parts_of_which_few_stay(tmp_path: Path) -> None:
    """One body of eight stays, and is moved out of its segments part by part."""
    log = Kept(tmp_path)
    (queue, *_) = log.queues
    for _ in range(64):
        log.put(50_000, (queue,))
        log.turn()
    assert log.log.segments > 40
    for index, number in enumerate(list(log.live[queue])):
        if index % 8:
            log.take(queue, number)
    log.turn()
    log.check()


@pytest.mark.parametrize("spans", [ack_compaction.MOST_SPANS, 1000])
def test_acks_that_need_as_much_room_when_they_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spans: int
) -> None:
    """Three queues have taken every other message of short ones that the fourth keeps, so no acks follow each other."""
    monkeypatch.setattr(ack_compaction, "MOST_SPANS", spans)
    log = Kept(tmp_path, queues=4)
    put: list[int] = []
    while len(put) < 30_000:
        put += [log.put(8, log.queues) for _ in range(60)]
        log.turn()
    for queue in log.queues[1:]:
        for number in put[::2]:
            log.take(queue, number)
    log.turn()
    log.settle()
    settled = log.log.sequence
    log.settle()
    assert log.log.sequence < settled + 100, "nothing more is written than what was put"
    log.restart()
    for number in put[1:]:
        for queue in log.queues:
            log.take(queue, number)
    log.turn()
    log.settle()
    assert log.log.segments <= A_FEW
    log.check()


def test_a_body_that_is_still_arriving_is_moved(tmp_path: Path) -> None:
    log = Kept(tmp_path)
    (queue, *_) = log.queues
    body = log.log.stage()
    text = bytes(range(256)) * 400
    for index in range(100):
        log.log.append(body, text[index * 1024 : (index + 1) * 1024])
        for _ in range(30):
            log.take(queue, log.put(2000, (queue,)))
        log.turn()
    log.settle()
    assert log.log.segments <= 2 * len(text) / SEGMENT + A_FEW
    number = log.log.put(log.log.route_set((queue,)), log.log.payload_of(body, b"", 0), 0)
    log.live[queue][number] = text[: 100 * 1024]
    log.turn()
    del body
    log.check()
