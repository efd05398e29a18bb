"""A course of traffic over three lives of a log, and a crash tried at each of its steps: what the log must find then.

The traffic makes the log begin, compact and recycle segments and write checkpoints. At a step, which is one change of a
file, the disk is copied, and the machine or the process ends on the copy in one of several ways. What the next start
finds must be what the naive log had after some block, a synced one or a later; and it must last, also if the power
fails again at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from broker.log.log_steps import SMALL, recovered_state
from broker.log.naive_log import NaiveLog, NaiveMessage, NaiveState
from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import CommitAck, CommitPut, Log, Recovered

__all__ = ["ENDS", "Course"]


TURNS: Final = 50
"""Of each life."""
KEPT: Final = 11
"""One message in so many is not taken with the others."""
LATE: Final = 0.2
"""How likely it is that half of the kept messages are taken when compaction has just written something."""
WINDOW: Final = 5
"""Messages that wait in a queue before the oldest of them is taken."""


def _nothing(_: int) -> int:
    return 0


def _all(length: int) -> int:
    return length


@dataclass(frozen=True)
class _End:
    """One way for a machine or a process to end. `crash` does it to a disk."""

    name: str
    crash: Callable[[SimulatedFiles, Random], None]
    keeps_written: bool = False
    """The process alone has ended: all that was written can be read."""


def _power(survives: Callable[[int], int], names_kept: int) -> Callable[[SimulatedFiles, Random], None]:
    return lambda disk, chance: disk.crash(survives, names_kept)


def _torn(disk: SimulatedFiles, chance: Random) -> None:
    disk.crash(
        lambda length: chance.choice((0, length, chance.randint(0, length))), lambda most: chance.randint(0, most)
    )


def _some(disk: SimulatedFiles, chance: Random) -> None:
    disk.crash(lambda length: length * chance.randint(0, 1), lambda most: chance.randint(0, most))


ENDS: Final = (
    _End("power, only what is synced stays", _power(_nothing, 0)),
    _End("kill", lambda disk, chance: disk.kill(), keeps_written=True),
    _End("power, writes stay in part, names in any order", _torn),
    _End("power, names stay and writes do not", _power(_nothing, 99)),
    _End("power, some writes stay, names in any order", _some),
    _End("power, writes stay and names do not", _power(_all, 0)),
    _End("the disk fails to sync, then kill", lambda disk, chance: disk.fail_syncs(), keeps_written=True),
)


class _Watched(SimulatedFiles):
    """Tells of each change before it is made."""

    def __init__(self, reached: Callable[[], None]) -> None:
        super().__init__()
        self._reached = reached
        self.is_sync_to_fail = False

    def _step(self, call: str) -> None:
        self._reached()
        super()._step(call)

    def fdatasync(self, handle: int) -> None:
        if self.is_sync_to_fail:
            self.broken = {"fdatasync"}
            self.is_sync_to_fail = False
        try:
            super().fdatasync(handle)
        finally:
            self.broken = set()


@dataclass(frozen=True)
class _Snapshot:
    disk: SimulatedFiles
    promised: int
    """The last block that was called synced."""
    step: int


class Course:
    """`run` raises AssertionError, or what the log raises, if a crash finds something else than it must."""

    def __init__(self, folder: Path, *, every: int = 1, seed: int = 1) -> None:
        """`every`: crashes are tried at one step in so many, in turn by each of `ENDS`."""
        self._folder, self._twin = folder / "course", folder / "copy"
        self._every, self._chance = every, Random(seed)
        self._files = _Watched(self._reached)
        self._naive = NaiveLog()
        self._naive.written(0)
        self._numbers: set[int] = set()
        self._promised = self._clock = 0
        self._snapshots: list[_Snapshot] = []
        self._waiting: dict[int, list[int]] = {}
        self.steps = self.tried = 0

    def run(self) -> None:
        """Three lives: one ends by a kill, one by a failed sync, one in order."""
        for life in range(3):
            self._live(life)
            self._look_back()

    # Traffic ----------------------------------------------------------------------------------------------------------

    def _live(self, life: int) -> None:
        self._log, recovered = self._open(self._folder, self._files)
        if life:
            self._is_as_expected(recovered, self._naive.at(recovered.sequence), "the next life", all_delivered=False)
            assert recovered.sequence >= max(self._naive.after)
        self._naive.written(self._log.sequence)
        self._promised = self._log.synced
        if not life:
            for name in ("first", "second"):
                self._begin_queue(name)
        for turn in range(TURNS):
            self._turn(turn)
        self._fresh(self._log.next_message())  # is not logged, and must not be given again
        if life == 1:
            self._put(300)
            self._write()
            self._files.is_sync_to_fail = True
            self._sync()
            self._snapshot()
            assert self._log.failed is not None
        if life == 2:
            self._log.close()
        else:
            self._log.crash()
            self._files.kill()

    def _open(self, folder: Path, files: SimulatedFiles) -> tuple[Log, Recovered]:
        return Log.open(folder, files=files, options=SMALL, clock=self._tick, entropy=lambda size: b"\7" * size)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _begin_queue(self, name: str) -> None:
        incarnation = self._log.next_incarnation()
        assert incarnation not in self._waiting
        before, _ = self._naive.now.documents.get(("queue", name), (0, b""))
        self._waiting.pop(before, None)
        self._log.topology("queue", name, b"", incarnation)
        self._naive.now.topology(("queue", name), incarnation, b"")
        self._waiting[incarnation] = []

    def _turn(self, turn: int) -> None:
        log, now, chance = self._log, self._naive.now, self._chance
        if turn % 23 == 20:
            self._begin_queue("second")
        if turn % 4 == 1:
            payload = bytes([turn]) * 200
            log.topology("exchange", f"x{turn % 8}", payload)
            now.topology(("exchange", f"x{turn % 8}"), 0, payload)
        if turn % 9 == 5:
            self._put_large(turn)
        elif turn % 5 == 3:
            self._move()
        for _ in range(chance.randint(1, 3)):
            self._put(chance.choice((300, 900, 1500)))
        self._take()
        self._write()
        if turn % 5 not in (1, 2, 4):
            self._sync()
        for _ in range(chance.choice((0, 4, 12))):
            before = log.sequence
            log.maintain(chance.choice((0, 0, 1000)))
            if log.sequence > before and chance.random() < LATE:
                self._take_kept()
                self._write()
            log.collect()
        self._look_back()

    def _queues(self) -> tuple[int, ...]:
        return tuple(each for each in sorted(self._waiting) if self._chance.random() < 0.7) or (min(self._waiting),)

    def _fresh(self, number: int) -> int:
        assert number not in self._numbers, "a number was given twice"
        self._numbers.add(number)
        return number

    def _note(self, route: tuple[int, ...], message: NaiveMessage, *, is_kept: bool = False) -> None:
        self._naive.now.put(route, message)
        for incarnation in route:
            if message.number % KEPT and not is_kept:
                self._waiting[incarnation].append(message.number)

    def _put(self, size: int) -> None:
        route, arrival = self._queues(), self._tick()
        payload = bytes([arrival % 251]) * size
        number = self._fresh(self._log.put(self._log.route_set(route), payload, arrival, 3))
        self._note(route, NaiveMessage(number, payload, 3, arrival))

    def _put_large(self, turn: int) -> None:
        log, route = self._log, self._queues()
        body, content = log.stage(), bytes([turn]) * 6000
        log.append(body, content)
        payload = log.payload_of(body, b"head", 0)
        number = self._fresh(log.put(log.route_set(route), payload, turn))
        self._note(route, NaiveMessage(number, b"head" + content, 0, turn), is_kept=turn == 14)

    def _move(self) -> None:
        """A transaction: the oldest messages of each queue leave, others come."""
        log, now = self._log, self._naive.now
        self._write()
        acks = [
            CommitAck(incarnation, waiting[:2]) for incarnation, waiting in sorted(self._waiting.items()) if waiting
        ]
        route, number = self._queues(), self._fresh(log.next_messages(1))
        log.commit([CommitPut(number, log.route_set(route), b"moved" * 40, 0)], acks)
        for ack in acks:
            del self._waiting[ack.incarnation][:2]
            for message in ack.messages:
                now.ack(ack.incarnation, message)
        self._note(route, NaiveMessage(number, b"moved" * 40, 0, 0))

    def _take(self) -> None:
        log, now = self._log, self._naive.now
        for incarnation, waiting in self._waiting.items():
            while len(waiting) > WINDOW:
                message = waiting.pop(0)
                log.ack(incarnation, message)
                now.ack(incarnation, message)
            if waiting:
                log.delivered_up_to({incarnation: waiting[-1]})
                now.delivered_up_to[incarnation] = max(waiting[-1], now.delivered_up_to.get(incarnation, 0))
                log.delivery_count(incarnation, waiting[0], 1)
                now.counts[incarnation, waiting[0]] = 1

    def _take_kept(self) -> None:
        """Half of those that are not taken with the others: compaction may be about to copy them."""
        now, chance = self._naive.now, self._chance
        for incarnation, waiting in self._waiting.items():
            for message in sorted(now.queues[incarnation].keys() - set(waiting)):
                if chance.random() < 0.5:
                    self._log.ack(incarnation, message)
                    now.ack(incarnation, message)

    def _write(self) -> None:
        self._naive.written(self._log.write())

    def _sync(self) -> None:
        self._log.request_sync()
        self._promised = self._log.collect()

    # Crashes ----------------------------------------------------------------------------------------------------------

    def _reached(self) -> None:
        self.steps += 1
        if self.steps % self._every == 0:
            self._snapshot()

    def _snapshot(self) -> None:
        self._snapshots.append(_Snapshot(self._files.copy(self._twin), self._promised, self.steps))

    def _look_back(self) -> None:
        """Try what was noted, now that it is known what the steps were about."""
        for snapshot in self._snapshots:
            self._try(snapshot)
        self._snapshots.clear()

    def _try(self, snapshot: _Snapshot) -> None:
        end = ENDS[self.tried % len(ENDS)]
        self.tried += 1
        disk = snapshot.disk
        end.crash(disk, self._chance)
        where = f"step {snapshot.step}, {end.name}"
        with self._started(disk) as recovered:
            found = recovered.sequence
            assert found >= snapshot.promised, where
            self._is_as_expected(recovered, self._naive.at(found), where, all_delivered=not end.keeps_written)
        is_power = self.tried % 2 == 0
        if is_power:
            disk.crash(_nothing, 0)
        else:
            disk.kill()
        where += ", and then power" if is_power else ", and then kill"
        with self._started(disk) as again:
            assert again.sequence > found, where
            all_delivered = is_power or not end.keeps_written
            self._is_as_expected(again, self._naive.at(found), where, all_delivered=all_delivered)

    @contextmanager
    def _started(self, disk: SimulatedFiles) -> Generator[Recovered, None, None]:
        log, recovered = self._open(self._twin, disk)
        try:
            yield recovered
        finally:
            log.crash()

    def _is_as_expected(self, recovered: Recovered, expected: NaiveState, where: str, *, all_delivered: bool) -> None:
        assert recovered.damage == () and recovered.lost == {}, where
        state = recovered_state(recovered)
        assert state.documents == expected.documents, where
        assert state.queues == expected.queues, where
        for incarnation, queue in recovered.messages.items():
            reached = expected.delivered_up_to.get(incarnation, 0)
            for item in queue:
                count = expected.counts.get((incarnation, item.number), 0)
                assert item.deliveries == count, where
                if all_delivered or count or item.number <= reached:
                    assert item.delivered, where
