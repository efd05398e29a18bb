"""One message that nobody takes keeps its segment, and no more, however much is written behind it."""

import random
from collections import deque
from pathlib import Path

import pytest
from broker.log.log_steps import opened
from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import CommitAck, EndReason, LargePayload, Log


def settle(log: Log) -> None:
    """Sync, and do what idle turns do."""
    log.write()
    log.sync()
    while log.wants_maintenance:
        log.maintain(1000)
        log.write()
        log.sync()


def a_queue(log: Log, key: str) -> int:
    incarnation = log.next_incarnation()
    log.topology("queue", key, b"", incarnation)
    return incarnation


class Flow:
    """Messages that pass through two queues, forty behind the last; `live` is what has to be there."""

    def __init__(self, folder: Path, files: SimulatedFiles, *, in_commits: bool = False) -> None:
        self.folder, self.files, self.in_commits = folder, files, in_commits
        self.log, _ = opened(folder, files)
        self.queues = a_queue(self.log, "one"), a_queue(self.log, "two")
        self.live: dict[int, set[int]] = {queue: set() for queue in self.queues}
        self._waiting: deque[int] = deque()

    def put(self, size: int = 500) -> int:
        number = self.log.put(self.log.route_set(self.queues), bytes(size), 0)
        for queue in self.queues:
            self.live[queue].add(number)
        return number

    def take(self, number: int) -> None:
        for queue in self.queues:
            self.live[queue].discard(number)
            if self.in_commits:
                self.log.commit([], [CommitAck(queue, [number])])
            else:
                self.log.ack(queue, number, EndReason.ACCEPTED)

    def run(self, count: int, *, maintained: bool = True) -> None:
        for _ in range(count):
            self._waiting.append(self.put())
            self.log.write()
            if len(self._waiting) > 40:
                self.take(self._waiting.popleft())
                self.log.write()
            self.log.sync()
            if maintained:
                self.log.maintain(1000)

    def restart(self) -> None:
        """kill -9, and recovery finds what has to be there."""
        self.log.crash()
        self.files.kill()
        self.log, recovered = opened(self.folder, self.files)
        assert recovered.damage == ()
        assert {queue: {each.number for each in found} for queue, found in recovered.messages.items()} == self.live


@pytest.mark.parametrize("in_commits", [False, True])
def test_an_old_message_keeps_one_segment(tmp_path: Path, in_commits: bool) -> None:
    flow = Flow(tmp_path, SimulatedFiles(), in_commits=in_commits)
    old = flow.put()
    for _ in range(4):
        flow.run(250)
        settle(flow.log)
        assert flow.log.segments <= 14
        flow.restart()
    flow.take(old)
    settle(flow.log)
    assert flow.log.segments <= 7
    flow.restart()
    flow.log.close()


def test_a_queue_of_its_own_may_hold_the_old_message(tmp_path: Path) -> None:
    """Its neighbours in the segment were taken by others; a message of two queues may be left in one."""
    flow = Flow(tmp_path, SimulatedFiles())
    half = flow.put()
    flow.run(20)
    for queue in flow.queues[:1]:
        flow.log.ack(queue, half)
        flow.live[queue].discard(half)
    flow.run(400)
    settle(flow.log)
    assert flow.log.segments <= 14
    flow.restart()
    assert half in flow.live[flow.queues[1]]
    flow.log.close()


def test_an_old_large_message_keeps_the_segments_of_its_body(tmp_path: Path) -> None:
    flow = Flow(tmp_path, SimulatedFiles())
    body = flow.log.stage()
    flow.log.append(body, bytes(range(256)) * 200)
    payload = flow.log.payload_of(body, b"head", 0)
    number = flow.log.put(flow.log.route_set(flow.queues), payload, 0)
    for queue in flow.queues:
        flow.live[queue].add(number)
    del body, payload
    flow.run(500)
    settle(flow.log)
    assert flow.log.segments <= 20
    flow.restart()
    flow.log.close()
    _, recovered = opened(tmp_path, flow.files)
    (found,) = [each for each in recovered.messages[flow.queues[0]] if each.number == number]
    assert isinstance(found.payload, LargePayload)
    assert found.payload.read(0, 1 << 20) == b"head" + bytes(range(256)) * 200


def test_nothing_is_freed_before_what_was_restated_is_synced(tmp_path: Path) -> None:
    flow = Flow(tmp_path, SimulatedFiles())
    flow.put()
    flow.run(300, maintained=False)
    settled = flow.log.segments
    while flow.log.wants_maintenance:
        flow.log.maintain(1000)
    assert flow.log.sequence > flow.log.synced, "acks were restated"
    assert flow.log.segments > settled // 2
    flow.log.crash()
    flow.files.crash(lambda length: 0, 0)
    flow.log, recovered = opened(tmp_path, flow.files)
    assert {queue: {each.number for each in found} for queue, found in recovered.messages.items()} == flow.live
    settle(flow.log)
    assert flow.log.segments <= 14
    flow.restart()
    flow.log.close()


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_lost_no_message_is_and_none_comes_back(tmp_path: Path, seed: int) -> None:
    """A power failure at any step of it; what was synced before stands."""
    chance = random.Random(seed)
    flow = Flow(tmp_path, SimulatedFiles())
    kept = [flow.put()]
    for _ in range(5):
        for _ in range(chance.randint(60, 120)):
            flow.run(1)
            if chance.random() < 0.02:
                kept.append(flow.put())
        flow.log.write()
        flow.log.sync()
        for _ in range(chance.randint(0, 6)):  # some of the idle work, synced or not
            flow.log.maintain(chance.choice((0.0, 1000)))
            if chance.random() < 0.3:
                flow.log.write()
                flow.log.sync()
        flow.log.crash()
        flow.files.crash(lambda length: chance.choice((0, length, chance.randint(0, length))), chance.randint(0, 3))
        flow.log, recovered = opened(tmp_path, flow.files)
        assert recovered.damage == ()
        found = {queue: {each.number for each in messages} for queue, messages in recovered.messages.items()}
        assert found == flow.live
        settle(flow.log)
        assert flow.log.segments <= 14 + len(kept)
    flow.log.close()


def test_a_segment_that_can_not_be_read_costs_space_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flow = Flow(tmp_path, SimulatedFiles())
    flow.put(10_000)  # most of a segment, which is not rewritten for it
    flow.run(60)
    for number in range(2, 5):
        path = tmp_path / f"segment-{number:016x}.log"
        if path in flow.files.paths():
            flow.files.content(path)[5000] ^= 1
    flow.run(300)
    settle(flow.log)
    assert flow.log.failed is None
    assert "is kept until the next start" in caplog.text
    segments = flow.log.segments
    flow.run(900)
    settle(flow.log)
    assert flow.log.segments <= segments + 4, "what comes later is freed"


def test_one_of_many_that_stays_for_ever_keeps_its_own_segment_only(tmp_path: Path) -> None:
    """Of a hundred messages, which fill four segments, one is never taken: what lies between is used again."""
    flow = Flow(tmp_path, SimulatedFiles())
    for kept in range(1, 21):
        flow.put()
        flow.run(99)
        settle(flow.log)
        assert flow.log.segments <= kept * 4 // 3 + 8, "theirs, a third of these for acks, and what is under way"
    flow.restart()
    settle(flow.log)
    assert flow.log.segments <= 20 * 4 // 3 + 8
    flow.log.close()


def test_what_was_said_of_a_message_outlives_the_segment_in_which_it_was_said(tmp_path: Path) -> None:
    flow = Flow(tmp_path, SimulatedFiles())
    queue = flow.queues[0]
    old = flow.put()
    flow.run(100)
    for text in (b"once", b"twice"):
        assert flow.log.remark(queue, old, text)
        flow.log.delivery_count(queue, old, len(text))
    gone = flow.put()
    assert flow.log.remark(queue, gone, b"gone")
    flow.log.write()
    said_in = max(path for path in flow.files.paths() if path.name.startswith("segment-"))
    assert b"twice" in flow.files.content(said_in)
    flow.run(300)
    flow.take(gone)
    flow.run(300)
    settle(flow.log)
    assert said_in not in flow.files.paths(), "the segment was used again"
    flow.log.close()
    for _ in range(2):
        flow.log, recovered = opened(tmp_path, flow.files)
        (first,) = [each for each in recovered.messages[queue] if each.number == old]
        assert (first.remark, first.deliveries) == (b"twice", 5)
        assert all(not each.remark for each in recovered.messages[flow.queues[1]])
        flow.log.close()


@pytest.mark.parametrize("steps", range(12))
def test_what_acks_hold_may_leave_at_each_step(tmp_path: Path, steps: int) -> None:
    """The old message leaves when its acks are due to be compacted, or are being compacted."""
    flow = Flow(tmp_path, SimulatedFiles())
    old = flow.put()
    flow.run(250, maintained=False)
    flow.log.sync()
    for _ in range(steps):
        assert flow.log.wants_maintenance
        flow.log.maintain(0)
        flow.log.write()
        flow.log.sync()
    assert flow.log.wants_maintenance
    flow.take(old)
    settle(flow.log)
    flow.restart()
    flow.log.close()
