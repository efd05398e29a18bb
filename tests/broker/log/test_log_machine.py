"""Any operations, any crash: recovery finds what the naive log had after some block, the last synced one or a later."""

import shutil
from pathlib import Path
from tempfile import mkdtemp

from broker.log.log_steps import SMALL, recovered_state, whole
from broker.log.naive_log import NaiveLog, NaiveMessage, NaiveState
from broker.log.recoveries import assert_digests_find_the_same, assert_paging_finds_the_same
from broker.log.simulated_files import SimulatedFiles
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.examples import examples

from penstock_broker.log import CommitAck, CommitPut, Log, Recovered, StagedBody


class LogMachine(RuleBasedStateMachine):
    """One log on simulated files beside a naive one, through operations, kills, power cuts and orderly ends."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(mkdtemp())  # holds the lock only
        self.files = SimulatedFiles()
        self.naive = NaiveLog()
        self.numbers: set[int] = set()
        self.bodies: list[tuple[StagedBody, bytes]] = []  # under way, with what came of them
        self.held: list[tuple[bytes, bytes]] = []  # payloads in somebody's hand, with what they must read as
        self.clock = self.pending = 0
        self.log, recovered = self.open()
        assert recovered_state(recovered) == NaiveState()
        self.naive.written(self.log.sequence)

    def open(self) -> tuple[Log, Recovered]:
        assert_paging_finds_the_same(self.files, self.folder, SMALL.inline_bytes)
        assert_digests_find_the_same(self.files, self.folder, SMALL.inline_bytes)
        return Log.open(
            self.folder, files=self.files, options=SMALL, clock=self.tick, entropy=lambda size: b"\7" * size
        )

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            shutil.rmtree(self.folder)

    def fresh(self, number: int) -> int:
        assert number not in self.numbers, "a number was given twice"
        self.numbers.add(number)
        return number

    # Topology ---------------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from("abcd"), payload=st.binary(max_size=300), anew=st.booleans())
    def set_queue(self, name: str, payload: bytes, anew: bool) -> None:
        key = ("queue", name)
        before = self.naive.now.documents.get(key, (0, b""))[0]
        incarnation = before if before and not anew else -self.fresh(-self.log.next_incarnation())
        self.log.topology(*key, payload, incarnation)
        self.naive.now.topology(key, incarnation, payload)

    @rule(name=st.sampled_from("xyz"), payload=st.binary(max_size=40))
    def set_exchange(self, name: str, payload: bytes) -> None:
        self.log.topology("exchange", name, payload)
        self.naive.now.topology(("exchange", name), 0, payload)

    @precondition(lambda self: bool(self.naive.now.documents))
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.naive.now.documents)))
        self.log.delete(*key)
        self.naive.now.delete(key)

    # Messages ---------------------------------------------------------------------------------------------------------

    @precondition(lambda self: bool(self.naive.now.queues))
    @rule(data=st.data(), sizes=st.lists(st.sampled_from([0, 1, 40, 256, 512, 900, 3000]), min_size=1, max_size=6))
    def put(self, data: st.DataObject, sizes: list[int]) -> None:
        queues = data.draw(st.sets(st.sampled_from(sorted(self.naive.now.queues)), min_size=1))
        route = tuple(sorted(queues))
        for size in sizes:
            flags, arrival = size % 256, self.tick()
            payload = bytes([arrival % 251]) * size
            number = self.fresh(self.log.put(self.log.route_set(route), payload, arrival, flags))
            self.naive.now.put(route, NaiveMessage(number, payload, flags, arrival))
            self.pending += size
            if self.pending > 5000:
                self.write()  # so that no turn has to be split, which the oracle could not follow

    @precondition(lambda self: bool(self.naive.now.queues))
    @rule(data=st.data(), sizes=st.lists(st.sampled_from([0, 40, 900]), min_size=1, max_size=4))
    def put_volatile(self, data: st.DataObject, sizes: list[int]) -> None:
        """What memory pressure writes to the log: it is there for readers, and gone with the process."""
        route = self.some_queues(data)
        written: dict[int, bytes] = {}
        for size in sizes:
            arrival = self.tick()
            payload = bytes([arrival % 251]) * size
            number = self.fresh(self.log.put_volatile(self.log.route_set(route), payload, arrival))
            self.naive.now.put(route, NaiveMessage(number, payload, 0, arrival, is_volatile=True))
            written[number] = payload
        self.write()
        found = self.log.read(route[0], min(written), max(written), 10, 10_000).puts
        assert {put.message: put.payload for put in found} == written

    @rule()
    def number(self) -> None:
        self.fresh(self.log.next_message())

    @precondition(lambda self: any(self.naive.now.queues.values()))
    @rule(data=st.data(), all_of_them=st.booleans())
    def ack(self, data: st.DataObject, all_of_them: bool) -> None:
        live = {incarnation: queue for incarnation, queue in self.naive.now.queues.items() if queue}
        incarnation = data.draw(st.sampled_from(sorted(live)))
        messages = sorted(live[incarnation])
        chosen = messages if all_of_them else data.draw(st.sets(st.sampled_from(messages), min_size=1))
        for message in chosen:
            self.log.ack(incarnation, message)
            self.naive.now.ack(incarnation, message)

    @precondition(lambda self: any(self.naive.now.queues.values()))
    @rule(data=st.data(), count=st.integers(1, 9))
    def deliver(self, data: st.DataObject, count: int) -> None:
        live = {incarnation: queue for incarnation, queue in self.naive.now.queues.items() if queue}
        incarnation = data.draw(st.sampled_from(sorted(live)))
        message = data.draw(st.sampled_from(sorted(live[incarnation])))
        self.log.delivered_up_to({incarnation: message})
        now = self.naive.now
        now.delivered_up_to[incarnation] = max(message, now.delivered_up_to.get(incarnation, 0))
        self.log.delivery_count(incarnation, message, count)
        now.counts[incarnation, message] = count

    @precondition(lambda self: any(self.naive.now.queues.values()))
    @rule(data=st.data(), text=st.binary(max_size=60))
    def remark(self, data: st.DataObject, text: bytes) -> None:
        live = {incarnation: queue for incarnation, queue in self.naive.now.queues.items() if queue}
        incarnation = data.draw(st.sampled_from(sorted(live)))
        message = data.draw(st.sampled_from(sorted(live[incarnation])))
        assert self.log.remark(incarnation, message, text)
        self.naive.now.remarks[incarnation, message] = text

    # Bodies in parts, and transactions --------------------------------------------------------------------------------

    @precondition(lambda self: len(self.bodies) < 4)
    @rule()
    def stage(self) -> None:
        self.bodies.append((self.log.stage(), b""))

    @precondition(lambda self: bool(self.bodies))
    @rule(data=st.data(), size=st.sampled_from([0, 1, 50, 900, 7000, 40000]))
    def append_to_body(self, data: st.DataObject, size: int) -> None:
        index = data.draw(st.integers(0, len(self.bodies) - 1))
        body, so_far = self.bodies[index]
        part = bytes([self.tick() % 251]) * size
        self.log.append(body, part)
        self.bodies[index] = (body, so_far + part)

    @precondition(lambda self: bool(self.bodies))
    @rule(data=st.data(), by_reference=st.booleans())
    def give_up_body(self, data: st.DataObject, by_reference: bool) -> None:
        body, _ = self.bodies.pop(data.draw(st.integers(0, len(self.bodies) - 1)))
        if not by_reference:
            self.log.discard(body)

    @precondition(lambda self: bool(self.bodies) and bool(self.naive.now.queues))
    @rule(data=st.data(), hold=st.booleans(), sizes=st.tuples(st.integers(1, 40), st.integers(0, 40)))
    def put_what_came_in_parts(self, data: st.DataObject, hold: bool, sizes: tuple[int, int]) -> None:
        body, so_far = self.bodies.pop(data.draw(st.integers(0, len(self.bodies) - 1)))
        head, offset = b"h" * sizes[0], min(sizes[1], len(so_far))
        payload = self.log.payload_of(body, head, offset)
        expected = head + so_far[offset:]
        assert len(payload) == len(expected)
        for route in {self.some_queues(data), self.some_queues(data)}:  # one body for several messages
            arrival = self.tick()
            number = self.fresh(self.log.put(self.log.route_set(route), payload, arrival, 3))
            self.naive.now.put(route, NaiveMessage(number, expected, 3, arrival))
        if hold:
            self.held.append((payload, expected))

    def some_queues(self, data: st.DataObject) -> tuple[int, ...]:
        return tuple(sorted(data.draw(st.sets(st.sampled_from(sorted(self.naive.now.queues)), min_size=1))))

    @precondition(lambda self: bool(self.naive.now.queues))
    @rule(data=st.data(), kinds=st.lists(st.sampled_from(["inline", "staged", "large"]), max_size=5))
    def commit(self, data: st.DataObject, kinds: list[str]) -> None:
        self.write()
        bodies: list[tuple[bytes | StagedBody, bytes]] = []
        for kind in kinds:
            if kind == "inline" or not self.bodies:
                text = b"i" * data.draw(st.integers(0, 400))
                bodies.append((text, text))
            else:
                body, so_far = self.bodies.pop()
                bodies.append((self.log.payload_of(body, b"", 0) if kind == "large" else body, so_far))
        numbers = [self.fresh(self.log.next_messages(1)) for _ in bodies]
        routes = [self.some_queues(data) for _ in bodies]
        acks: list[CommitAck] = []
        for incarnation, queue in sorted(self.naive.now.queues.items()):
            chosen = data.draw(st.sets(st.sampled_from(sorted(queue)))) if queue else set[int]()
            acks.append(CommitAck(incarnation, chosen))
        puts = [
            CommitPut(number, self.log.route_set(route), body, number, 7)
            for number, route, (body, _) in zip(numbers, routes, bodies, strict=True)
        ]
        self.log.commit(puts, acks)
        for number, route, (_, expected) in zip(numbers, routes, bodies, strict=True):
            self.naive.now.put(route, NaiveMessage(number, expected, 7, number))
        for ack in acks:
            for message in ack.messages:
                self.naive.now.ack(ack.incarnation, message)

    @precondition(lambda self: bool(self.naive.now.queues))
    @rule(data=st.data(), sizes=st.lists(st.sampled_from([0, 40, 900]), max_size=4), happens=st.booleans())
    def unit(self, data: st.DataObject, sizes: list[int], happens: bool) -> None:
        self.write()
        before = self.naive.now.copy()
        self.log.begin_unit()
        for size in sizes:
            route, arrival = self.some_queues(data), self.tick()
            number = self.fresh(self.log.put(self.log.route_set(route), b"u" * size, arrival))
            self.naive.now.put(route, NaiveMessage(number, b"u" * size, 0, arrival))
        for incarnation, queue in sorted(self.naive.now.queues.items()):
            for message in data.draw(st.sets(st.sampled_from(sorted(queue)))) if queue else set[int]():
                self.log.ack(incarnation, message)
                self.naive.now.ack(incarnation, message)
        if happens:
            self.log.end_unit()
        else:
            self.log.abandon_unit()
            self.naive.now = before

    @precondition(lambda self: bool(self.held))
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))

    # Turns ------------------------------------------------------------------------------------------------------------

    @rule()
    def write(self) -> None:
        self.pending = 0
        before = self.log.sequence
        sequence = self.log.write()
        assert sequence >= before
        self.naive.written(sequence)

    @rule()
    def write_and_sync(self) -> None:
        self.write()
        self.log.request_sync()
        assert self.log.collect() == self.log.sequence

    @rule(times=st.integers(1, 6))
    def maintain(self, times: int) -> None:
        for _ in range(times):
            self.log.maintain(1000)
            self.log.collect()

    @precondition(lambda self: bool(self.naive.now.queues))
    @rule(data=st.data(), rounds=st.integers(1, 8), keep=st.integers(0, 2), synced=st.booleans())
    def churn(self, data: st.DataObject, rounds: int, keep: int, synced: bool) -> None:
        """Traffic: each round fills part of a segment, and acknowledges all but the newest `keep` of one queue."""
        incarnation = data.draw(st.sampled_from(sorted(self.naive.now.queues)))
        for _ in range(rounds):
            for size in (3000, 1500):
                arrival = self.tick()
                number = self.fresh(self.log.put(self.log.route_set((incarnation,)), b"c" * size, arrival))
                self.naive.now.put((incarnation,), NaiveMessage(number, b"c" * size, 0, arrival))
            self.write()
            messages = sorted(self.naive.now.queues[incarnation])
            for message in messages[: len(messages) - keep]:
                self.log.ack(incarnation, message)
                self.naive.now.ack(incarnation, message)
            self.write()
            if synced:
                self.log.request_sync()
                self.log.collect()
            self.maintain(3)

    # Ends -------------------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def cut_the_power(self, data: st.DataObject) -> None:
        synced = self.log.synced
        survival = data.draw(st.sampled_from(["none", "all", "some", "torn"]))

        def survives(length: int) -> int:
            match survival:
                case "none":
                    return 0
                case "all":
                    return length
                case "some":
                    return length if data.draw(st.booleans()) else 0
                case _:
                    return data.draw(st.integers(0, length))

        self.end_process()
        self.files.crash(survives, data.draw(st.integers(0, 3)))
        self.compare(synced, delivered_is_known=False)

    @rule()
    def kill(self) -> None:
        written = self.log.sequence
        self.end_process()
        self.files.kill()
        self.compare(written, delivered_is_known=True)

    @rule()
    def close(self) -> None:
        self.log.close()
        self.naive.written(self.log.sequence)
        self.bodies.clear()
        self.held.clear()
        recovered = self.compare(self.log.sequence, delivered_is_known=True)
        assert recovered.clean

    def end_process(self) -> None:
        """What the kernel does when a process ends: the lock and the eventfd go."""
        self.bodies.clear()
        self.held.clear()
        self.log.crash()

    def compare(self, at_least: int, *, delivered_is_known: bool) -> Recovered:
        self.log, recovered = self.open()
        found = recovered.sequence
        assert found >= at_least
        expected = self.naive.at(found).next_epoch()
        state = recovered_state(recovered)
        assert state.documents == expected.documents
        assert state.queues == expected.queues
        assert recovered.damage == () and recovered.lost == {}
        for incarnation, queue in recovered.messages.items():
            assert [item.number for item in queue] == sorted(item.number for item in queue)
            for item in queue:
                count = expected.counts.get((incarnation, item.number), 0)
                reached = item.number <= expected.delivered_up_to.get(incarnation, 0)
                assert item.deliveries == count
                assert item.remark == expected.remarks.get((incarnation, item.number), b"")
                assert item.delivered == (reached or count > 0 or not delivered_is_known)
        self.naive.now = expected.copy()
        if not delivered_is_known:  # what was concluded once holds in the lives that follow
            for incarnation, naive in expected.queues.items():
                if naive:
                    self.naive.now.delivered_up_to[incarnation] = max(naive)
        self.naive.after = {}
        self.pending = 0
        self.naive.written(self.log.sequence)
        return recovered

    @invariant()
    def what_is_held_can_be_read(self) -> None:
        for payload, expected in getattr(self, "held", ()):
            assert whole(payload) == expected

    @invariant()
    def space_is_given_back(self) -> None:
        if not hasattr(self, "log") or self.log.wants_maintenance or self.log.synced < self.log.sequence:
            return
        if self.bodies or self.held or self.naive.now != self.naive.at(self.log.sequence):
            return
        live = sum(len(item.payload) + 300 for queue in self.naive.now.queues.values() for item in queue.values())
        # Not a tight bound: one old live message may pin acks behind it, until there is compaction.
        if not live:
            assert self.log.segments <= 6


LogMachine.TestCase.settings = settings(
    max_examples=examples(25),
    stateful_step_count=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLogMachine = LogMachine.TestCase
