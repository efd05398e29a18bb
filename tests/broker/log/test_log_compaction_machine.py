"""Compaction of messages under random traffic, power failures and restarts: what is live is what the model says, and
the log stays within its bound."""

import os
import shutil
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from broker.log.log_steps import SMALL, whole
from broker.log.recoveries import assert_digests_find_the_same, assert_paging_finds_the_same
from broker.log.simulated_files import SimulatedFiles
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock_broker.log import CommitAck, CommitPut, Log

EXAMPLES = int(os.environ.get("PENSTOCK_LOG_EXAMPLES", "8"))  # more for a long search
SEGMENT = SMALL.segment_bytes
A_FEW = 14
"""Segments: 2 of slack and up to 4 kept for their acks, both raised by a seventh; those since the last checkpoint; and
what small segments leave empty at their ends."""

CHANCE = st.integers(0, 1 << 32).map(Random)
"""What happens within a step, which would otherwise be too many choices of Hypothesis'."""
State = dict[int, dict[int, bytes]]  # incarnation -> message -> payload


class CompactionMachine(RuleBasedStateMachine):
    """A log of three queues. What is not synced may survive a crash or not; `after` has the states it may show."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(mkdtemp())
        self.files = SimulatedFiles()
        self.clock = 0
        self.live: State = {}
        self.after: dict[int, State] = {}
        self.log = self.opened()
        self.incarnations = [self.log.next_incarnation() for _ in range(3)]
        for index, incarnation in enumerate(self.incarnations):
            self.log.topology("queue", str(index), b"", incarnation)
            self.live[incarnation] = {}
        self.write(True)

    def opened(self) -> Log:
        assert_paging_finds_the_same(self.files, self.folder, SMALL.inline_bytes)
        assert_digests_find_the_same(self.files, self.folder, SMALL.inline_bytes)
        log, recovered = Log.open(self.folder, files=self.files, options=SMALL, clock=self.tick)
        assert recovered.damage == () and recovered.lost == {}
        self.found = {
            incarnation: {each.number: whole(each.payload) for each in queue}
            for incarnation, queue in recovered.messages.items()
        }
        self.found_sequence = recovered.sequence
        queues = sorted((item.key, item.incarnation) for item in recovered.documents if item.kind == "queue")
        self.named = [incarnation for _, incarnation in queues]
        return log

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.crash()
            shutil.rmtree(self.folder)

    def note(self) -> None:
        self.after[self.log.sequence] = {incarnation: dict(queue) for incarnation, queue in self.live.items()}

    @rule(is_synced=st.booleans())
    def write(self, is_synced: bool) -> None:
        self.log.write()
        self.note()
        if is_synced:
            self.log.request_sync()
            self.log.collect()

    @rule(
        chance=CHANCE,
        count=st.sampled_from([250, 100, 500]),
        kept=st.sampled_from([0.05, 0.01, 0.2]),
        is_synced=st.booleans(),
        slices=st.sampled_from([1, 3, 0]),
    )
    def traffic(self, chance: Random, count: int, kept: float, is_synced: bool, slices: int) -> None:
        """Messages to some of the queues, most of them taken a little later; idle work in between."""
        waiting: list[tuple[int, int]] = []
        for _ in range(count):
            route = tuple(each for each in self.incarnations if chance.random() < 0.6) or (self.incarnations[0],)
            size = chance.choice((0, 30, 400, 400, 2500))
            payload = bytes([chance.randrange(256)]) * size
            number = self.log.put(self.log.route_set(route), payload, 0)
            for incarnation in route:
                self.live[incarnation][number] = payload
                if chance.random() >= kept:
                    waiting.append((incarnation, number))
            if chance.random() < 0.5:
                self.write(is_synced)
            while len(waiting) > 20:
                self.take(*waiting.pop(chance.randrange(len(waiting))))
            for _ in range(slices):
                self.log.maintain(chance.choice((0.0, 0.0, 1000)))
                self.log.collect()
        self.write(is_synced)

    def take(self, incarnation: int, number: int) -> None:
        if self.live[incarnation].pop(number, None) is not None:
            self.log.ack(incarnation, number)

    @rule(chance=CHANCE, share=st.sampled_from([0.05, 0.5, 0.97, 1.0]))
    def take_some(self, chance: Random, share: float) -> None:
        for incarnation, queue in self.live.items():
            for number in list(queue):
                if chance.random() < share:
                    self.take(incarnation, number)

    @rule(index=st.integers(0, 2))
    def begin_queue_anew(self, index: int) -> None:
        del self.live[self.incarnations[index]]
        incarnation = self.incarnations[index] = self.log.next_incarnation()
        self.log.topology("queue", str(index), b"", incarnation)
        self.live[incarnation] = {}

    @rule(chance=CHANCE, count=st.integers(0, 10))
    def commit(self, chance: Random, count: int) -> None:
        self.write(False)
        numbers = [self.log.next_messages(1) for _ in range(count)]
        puts = [CommitPut(each, self.log.route_set(tuple(self.incarnations)), b"commit" * 20, 0) for each in numbers]
        acks: list[CommitAck] = []
        for incarnation, queue in self.live.items():
            chosen = [number for number in queue if chance.random() < 0.2]
            acks.append(CommitAck(incarnation, chosen))
            for number in chosen:
                del queue[number]
        self.log.commit(puts, acks)
        for number in numbers:
            for incarnation in self.incarnations:
                self.live[incarnation][number] = b"commit" * 20
        self.write(False)

    @rule(chance=CHANCE)
    def slices(self, chance: Random) -> None:
        """Idle work, and between its slices acks of what is being copied."""
        budget = chance.choice((0.0, 1000))
        for _ in range(chance.randint(1, 300)):
            self.log.maintain(budget)
            if chance.random() < 0.1:
                incarnation = chance.choice(self.incarnations)
                if self.live[incarnation]:
                    self.take(incarnation, chance.choice(list(self.live[incarnation])))
                self.write(chance.random() < 0.5)
            self.log.collect()

    @rule(data=st.data(), chance=CHANCE, slices=st.integers(1, 3))
    def cut_the_power(self, data: st.DataObject, chance: Random, slices: int) -> None:
        self.traffic(chance, chance.randint(50, 300), 0.05, True, slices)
        self.slices(chance)
        synced = self.log.synced
        kind = data.draw(st.sampled_from(["none", "all", "some"]))
        self.log.crash()
        share = {"none": 0.0, "all": 1.0, "some": 0.5}[kind]
        self.files.crash(lambda length: length if chance.random() < share else 0, data.draw(st.integers(0, 3)))
        self.compare(synced)

    @rule(chance=CHANCE, slices=st.integers(1, 3))
    def kill(self, chance: Random, slices: int) -> None:
        self.traffic(chance, chance.randint(50, 300), 0.05, True, slices)
        self.slices(chance)
        written = self.log.sequence
        self.log.crash()
        self.files.kill()
        self.compare(written)

    def compare(self, at_least: int) -> None:
        self.log = self.opened()
        assert self.found_sequence >= at_least
        expected = self.after[max(known for known in self.after if known <= self.found_sequence)]
        if self.found_sequence not in self.after and self.found != expected:
            # A turn that is due for a checkpoint writes more than one block, and the first has all that happened.
            expected = self.after[min(known for known in self.after if known > self.found_sequence)]
        assert self.found == expected
        self.live = {incarnation: dict(queue) for incarnation, queue in expected.items()}
        self.incarnations = list(self.named)
        self.after.clear()
        self.note()

    @precondition(lambda self: hasattr(self, "log"))
    @rule()
    def settle(self) -> None:
        """Nothing happens any more, until there is no idle work left: then the bound holds."""
        for _ in range(40):  # so that a checkpoint follows what was written last
            self.log.topology("exchange", "x", bytes(1000))
            self.write(True)
        while self.log.wants_maintenance:
            self.log.maintain(1000)
            self.write(True)
        alive = {number: len(payload) + 64 for queue in self.live.values() for number, payload in queue.items()}
        assert self.log.segments <= 2 * sum(alive.values()) / SEGMENT + A_FEW

    @invariant()
    def it_works(self) -> None:
        if hasattr(self, "log"):
            assert self.log.failed is None


CompactionMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=10,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a step is long: to find a shorter example takes minutes
    suppress_health_check=[HealthCheck.too_slow],
)
TestCompactionMachine = CompactionMachine.TestCase
