"""kill -9 and a power failure at every point of the log's work: nothing promised is lost, nothing acknowledged is back.

The same with a whole broker under load is tests/crash.
"""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from broker.log.crash_points import BEFORE, BEHIND, WITHIN, Books, PointFiles, Step, live, opened, work
from broker.log.simulated_files import PowerCut, SimulatedFiles

from penstock_broker.log import NoRoom, ReadOnlyFiles, RealFiles, inspect_log

WRITES: Final = (
    *("ack", "checkpoint", "closed", "commit", "copy", "epoch", "moved part", "part", "put", "seal"),
    *("segment header", "segment over", "spare filled", "staged put", "topology", "volatile put"),
)
OTHERS: Final = ("deleted", "named", "names synced", "recycled", "spare synced", "synced")
POINTS: Final = [(point, when) for point in WRITES for when in (BEFORE, WITHIN, BEHIND)] + [
    (point, when) for point in OTHERS for when in (BEFORE, BEHIND)
]


class Noted:
    """How often each point is passed in the workload, and what it makes of the books."""

    def __init__(self, folder: Path) -> None:
        self.times: dict[tuple[str, str], int] = {}
        work(folder, PointFiles(SimulatedFiles(), self._reached), lambda step: None)

    def _reached(self, point: str, when: str) -> None:
        self.times[point, when] = self.times.get((point, when), 0) + 1


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Noted:
    return Noted(tmp_path_factory.mktemp("noted"))


def test_the_workload_passes_every_point_that_there_is(noted: Noted) -> None:
    """Recovery of a torn or damaged log has more points: test_log_recover stops it at every step."""
    assert set(noted.times) == set(POINTS)


def visits(times: int) -> list[int]:
    """Which of the times that a point is passed are tried: one early and the last."""
    return sorted({(times + 2) // 3, times})


class Unsynced(RealFiles):
    """Syncs nothing, which costs time: what a killed process wrote is in the kernel's memory, synced or not."""

    def fdatasync(self, handle: int) -> None:
        pass

    def fsync_folder(self, folder: Path) -> None:
        pass


class At:
    """Acts at one visit of one point."""

    def __init__(self, point: str, when: str, visit: int, act: Callable[[], None]) -> None:
        self._at, self._left, self._act = (point, when), visit, act

    def __call__(self, point: str, when: str) -> None:
        if (point, when) == self._at:
            self._left -= 1
            if not self._left:
                self._act()


@pytest.mark.parametrize(("point", "when"), POINTS)
def test_kill_9_at_this_point(point: str, when: str, noted: Noted, tmp_path: Path) -> None:
    for visit in visits(noted.times[point, when]):
        folder = tmp_path / str(visit)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            _work_until_killed(folder, writer, At(point, when, visit, lambda: os.kill(os.getpid(), signal.SIGKILL)))
        os.close(writer)
        books = _books(reader)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        before = inspect_log(ReadOnlyFiles(), folder)
        assert before.flaws == (), "a crash is never damage"
        log, recovered = opened(folder, Unsynced())
        log.close()
        assert recovered.damage == ()
        assert books.is_explained(live(recovered)), (visit, live(recovered), books.possible(books.promised))
        after = inspect_log(ReadOnlyFiles(), folder)
        assert after.is_sound and after.is_closed
        assert sum(queue.messages for queue in after.queues) == len(live(recovered))


def _work_until_killed(folder: Path, writer: int, at: At) -> None:
    """In the child: never returns."""
    try:

        def tell(step: Step | None) -> None:
            os.write(writer, (json.dumps(None if step is None else [step.puts, step.acks]) + "\n").encode())

        work(folder, PointFiles(Unsynced(), at), tell)
    finally:
        os._exit(1)


def _books(reader: int) -> Books:
    books = Books()
    with open(reader, encoding="utf-8") as lines:
        for line in lines:
            told = json.loads(line)
            if told is None:
                books.promised = len(books.steps)
            else:
                puts, acks = told
                books.steps.append(Step(tuple((message, size) for message, size in puts), tuple(acks)))
    return books


def _first_part(part: float) -> Callable[[int], int]:
    return lambda length: int(length * part)


@pytest.mark.parametrize(("point", "when"), POINTS)
def test_power_failure_at_this_point(point: str, when: str, noted: Noted, tmp_path: Path) -> None:
    """`survives`: of each write that no returned sync covers, this part of its bytes is on the disk afterwards."""
    for visit in visits(noted.times[point, when]):
        for survives, names_kept in ((0.0, 99), (0.5, 0), (1.0, 0)):
            files, books = SimulatedFiles(), Books()

            def tell(step: Step | None, books: Books = books) -> None:
                if step is None:
                    books.promised = len(books.steps)
                else:
                    books.steps.append(step)

            def cut() -> None:
                raise PowerCut

            with pytest.raises(PowerCut):
                work(tmp_path, PointFiles(files, At(point, when, visit, cut)), tell)
            files.crash(_first_part(survives), names_kept)
            log, recovered = opened(tmp_path, files)
            log.close()
            assert recovered.damage == ()
            assert books.is_explained(live(recovered)), (visit, survives, live(recovered))
            files.kill()
            log, again = opened(tmp_path, files)
            log.close()
            assert live(again) == live(recovered)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize(("point", "when"), [each for each in POINTS if each[1] != BEHIND])
def test_one_error_at_this_point(point: str, when: str, number: int, noted: Noted, tmp_path: Path) -> None:
    """Every later call succeeds, as on a volume that recovers: the log must not go on as if nothing had happened."""
    for visit in visits(noted.times[point, when]):
        files, books = SimulatedFiles(), Books()

        def tell(step: Step | None, books: Books = books) -> None:
            if step is None:
                books.promised = len(books.steps)
            else:
                books.steps.append(step)

        def fail(files: SimulatedFiles = files) -> None:
            if point in ("synced", "spare synced"):
                files.forget_unsynced()
            raise OSError(number, "only once")

        with suppress(AssertionError, NoRoom, OSError):  # a promise is not kept, or the log takes nothing more
            work(tmp_path, PointFiles(files, At(point, when, visit, fail)), tell)
        files.crash(lambda length: 0, 0)
        log, recovered = opened(tmp_path, files)
        log.close()
        assert recovered.damage == ()
        assert books.is_explained(live(recovered)), (visit, live(recovered))


def test_without_its_syncs_the_log_is_caught(tmp_path: Path) -> None:
    """The same on a disk whose syncs do nothing: what was promised is lacking, and the books see it."""

    class Forgetful(SimulatedFiles):
        def fdatasync(self, handle: int) -> None:
            pass

    files, books = Forgetful(), Books()

    def tell(step: Step | None) -> None:
        if step is None:
            books.promised = len(books.steps)
        else:
            books.steps.append(step)

    def cut() -> None:
        raise PowerCut

    with pytest.raises(PowerCut):
        work(tmp_path, PointFiles(files, At("put", BEHIND, 3, cut)), tell)
    files.crash(lambda length: 0, 99)
    _, recovered = opened(tmp_path, files)
    assert books.promised
    assert not books.is_explained(live(recovered))
