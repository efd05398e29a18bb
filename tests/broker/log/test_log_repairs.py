"""Repairs of segments of which the disk can't read some pages; the rest is in tests/cli/test_log_commands.py."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from broker.log.log_steps import a_queue, opened
from broker.log.simulated_files import PowerCut, SimulatedFiles

from penstock_broker.log import Unreadable, carry_out, inspect_log, plan_repairs, plan_replacements


def _progress(_done: int, _total: int) -> None:
    pass


class Failing:
    """A log of four messages in one segment; the disk can't read the second half of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, SimulatedFiles()
        log, _ = opened(folder, self.files)
        self.queue, route = a_queue(log)
        self.messages: list[int] = []
        for number in range(4):
            self.messages.append(log.put(route, bytes([65 + number]) * 2000, 0))
            log.write()
            log.sync()
        log.close()
        self.path = folder / "segment-0000000000000001.log"
        self.whole = bytes(self.files.content(self.path))
        self.files.unreadable = {self.path: (8192, 16384)}

    def damaged(self) -> dict[str, int]:
        folder = self.folder / "damaged"
        return {path.name: len(self.files.content(path)) for path in self.files.paths() if path.parent == folder}


def test_what_can_be_read_takes_the_place_of_a_failing_segment(tmp_path: Path) -> None:
    failing = Failing(tmp_path)
    files = failing.files
    with pytest.raises(Unreadable):
        inspect_log(files, tmp_path)
    [step] = plan_replacements(files, tmp_path, _progress)
    assert (step.path, step.reason) == (failing.path, "the disk can't read bytes 8192 to 16384")
    carry_out(files, [step], None)
    files.unreadable = {tmp_path / "damaged" / failing.path.name: (8192, 16384)}
    assert plan_replacements(files, tmp_path, _progress) == []
    assert files.content(failing.path) == failing.whole[:8192] + bytes(8192)
    assert failing.damaged() == {failing.path.name: len(failing.whole)}
    found = inspect_log(files, tmp_path)
    assert plan_repairs(found) == []
    assert [queue.messages for queue in found.queues] == [1], "the second message reaches into the page"
    log, recovered = opened(tmp_path, files)
    assert [message.number for message in recovered.messages[failing.queue]] == failing.messages[:1]
    log.close()


def test_a_repair_can_stop_at_any_step_and_be_done_again(tmp_path: Path) -> None:
    failing = Failing(tmp_path)
    steps = 0
    for steps in range(1, 30):
        files = failing.files.copy()
        files.steps_left = steps
        try:
            carry_out(files, plan_replacements(files, tmp_path, _progress), None)
        except PowerCut:
            files.crash(lambda length: length // 2, names_kept=steps % 4)
            in_place = {path.name for path in files.paths() if path.parent == tmp_path}
            aside = [path for path in files.paths() if path.parent == tmp_path / "damaged"]
            assert failing.path.name in in_place, steps
            original = None if _is_replaced(files, failing) else failing.path
            kept = [path for path in aside if bytes(files.content(path)) == failing.whole]
            assert original or kept, steps
            files.unreadable = {original or kept[0]: (8192, 16384)}
            carry_out(files, plan_replacements(files, tmp_path, _progress), None)
            assert files.content(failing.path) == failing.whole[:8192] + bytes(8192), steps
            continue
        break
    assert 4 < steps < 29


def _is_replaced(files: SimulatedFiles, failing: Failing) -> bool:
    return bytes(files.content(failing.path)) != failing.whole


def test_on_a_volume_without_second_names_the_file_is_moved(tmp_path: Path) -> None:
    failing = Failing(tmp_path)
    files = failing.files

    def refuse(old: Path, new: Path) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    files.link = refuse  # type: ignore[method-assign]
    carry_out(files, plan_replacements(files, tmp_path, _progress), None)
    assert files.content(failing.path) == failing.whole[:8192] + bytes(8192)
    assert failing.damaged() == {failing.path.name: len(failing.whole)}
