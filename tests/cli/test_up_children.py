"""`penstock up` keeps its children running: real processes that die, that can't run, that hang on SIGTERM."""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from penstock_api.failure import CannotRun, Failure, Misuse
from penstock_cli.up import children
from penstock_cli.up.children import Backoff, ChildProcess, keep_running, run_once


def python(tmp_path: Path, code: str) -> ChildProcess:
    """A child that runs a piece of Python."""
    return ChildProcess("child", (sys.executable, "-c", code), tmp_path / "child.log")


def is_alive(pid: int) -> bool:
    """Whether a process with this id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_child_that_is_killed_starts_again_and_stop_ends_it(tmp_path: Path) -> None:
    stop = asyncio.Event()
    pids: list[int] = []
    said: list[str] = []

    async def started(pid: int) -> None:
        pids.append(pid)
        if len(pids) == 1:
            os.kill(pid, signal.SIGKILL)
        else:
            stop.set()

    await keep_running(python(tmp_path, "import time; time.sleep(600)"), stop, said.append, started)
    assert len(pids) == 2
    assert not any(is_alive(pid) for pid in pids)
    (told,) = said
    assert re.fullmatch(r"child was ended by SIGKILL after \d+ s; it starts again in 0\.1 s", told)


async def test_a_child_with_wrong_settings_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    child = python(tmp_path, "import sys; print('no such listener'); sys.exit(2)")

    async def started(_pid: int) -> None: ...

    with pytest.raises(Misuse, match="no such listener"):
        await keep_running(child, asyncio.Event(), lambda _: None, started)


async def test_a_child_that_lacks_something_is_given_up_and_of_its_log_only_the_reason_is_told(tmp_path: Path) -> None:
    lines = ("penstock: an older reason", "INFO here", "penstock: no port", "Name another.")
    child = python(tmp_path, f"import sys; print({chr(10).join(lines)!r}); sys.exit(3)")

    async def started(_pid: int) -> None: ...

    with pytest.raises(CannotRun) as told:
        await keep_running(child, asyncio.Event(), lambda _: None, started)
    assert told.value.cause == "child can't run:\n    no port\n    Name another."
    assert told.value.cure == f"Its whole log: {child.log}"


async def test_what_goes_wrong_after_a_start_ends_the_child_and_comes_through(tmp_path: Path) -> None:
    pids: list[int] = []

    async def started(pid: int) -> None:
        pids.append(pid)
        raise Failure("the broker refuses the topology")

    with pytest.raises(Failure, match="refuses the topology"):
        await keep_running(python(tmp_path, "import time; time.sleep(600)"), asyncio.Event(), lambda _: None, started)
    assert not is_alive(pids[0])


async def test_a_child_that_dies_while_it_is_told_what_to_do_starts_again(tmp_path: Path) -> None:
    """Whoever tells it sees its connection end before the system says that the child has."""
    stop = asyncio.Event()
    pids: list[int] = []

    async def started(pid: int) -> None:
        pids.append(pid)
        if len(pids) == 1:
            os.kill(pid, signal.SIGKILL)
            raise Failure("the broker was lost while topology was declared")
        stop.set()

    await keep_running(python(tmp_path, "import time; time.sleep(600)"), stop, lambda _: None, started)
    assert len(pids) == 2


async def test_run_once_returns_the_exit_code_and_keeps_the_output(tmp_path: Path) -> None:
    child = python(tmp_path, "print('done'); raise SystemExit(7)")
    assert await run_once(child, asyncio.Event()) == 7
    assert child.log.read_text() == "done\n"


async def test_a_child_has_its_variables_beside_those_of_its_parent(tmp_path: Path) -> None:
    shown = replace(
        python(tmp_path, "import os; print(os.environ['MORE'], os.environ['PATH'] != '')"), environment={"MORE": "yes"}
    )
    assert await run_once(shown, asyncio.Event()) == 0
    assert shown.log.read_text() == "yes True\n"


async def test_a_long_log_is_set_aside_at_a_start_and_one_of_them_is_kept(tmp_path: Path) -> None:
    child = python(tmp_path, "print('again')")
    older = tmp_path / "child.log.1"
    for letter in ("a", "b"):
        with child.log.open("w") as log:
            log.write(letter)
            log.truncate(16 * 1024 * 1024 + 1)
        assert await run_once(child, asyncio.Event()) == 0
        assert child.log.read_text() == "again\n"
        assert older.read_bytes()[:1] == letter.encode()
    assert await run_once(child, asyncio.Event()) == 0
    assert child.log.read_text() == "again\nagain\n"


TALKATIVE = """
import os
longest = 0
for number in range(1_000_000):
    os.write(1, f"line {number}\\n".encode())
    length = os.fstat(1).st_size
    if length < longest:
        print("the end")
        break
    longest = length
else:
    raise SystemExit(5)
"""


async def test_a_log_is_bounded_while_its_child_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child runs on until the log was set aside, and goes on at the beginning of the file."""
    monkeypatch.setattr(children, "LONGEST_LOG_BYTES", 10_000)
    monkeypatch.setattr(children, "LOG_LOOK_SECONDS", 0.01)
    child = python(tmp_path, TALKATIVE)
    assert await run_once(child, asyncio.Event()) == 0
    assert child.log.read_text().endswith("the end\n")
    assert "\0" not in child.log.read_text()
    assert (tmp_path / "child.log.1").read_text().startswith("line 0\n")


async def test_a_log_is_emptied_where_the_disk_has_no_room_for_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "LONGEST_LOG_BYTES", 10)
    (tmp_path / "child.log").write_text("x" * 11)
    (tmp_path / "child.log.1").symlink_to("/dev/full")
    assert await run_once(python(tmp_path, "print('the end')"), asyncio.Event()) == 0
    assert (tmp_path / "child.log").read_text() == "the end\n"
    assert not (tmp_path / "child.log.1").is_symlink()


PARENT = """
import asyncio, sys
from pathlib import Path
from penstock_cli.up.children import ChildProcess, keep_running
log = Path(sys.argv[1])
async def started(pid):
    while not log.read_text():  # until then it may not be tied to us
        await asyncio.sleep(0.01)
    print(pid, flush=True)
child = ChildProcess("child", (sys.executable, "-uc", "import time; print('runs'); time.sleep(600)"), log)
asyncio.run(keep_running(child, asyncio.Event(), print, started))
"""


def test_children_end_when_the_command_is_killed_outright(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "child.log")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
        child = os.pidfd_open(pid)
        try:
            parent.kill()
            parent.wait()
            readable, _, _ = select.select([child], [], [], 300)
            assert readable, "the child lives on"
        finally:
            os.close(child)


def test_backoff_doubles_up_to_its_longest_and_begins_anew_after_a_steady_life() -> None:
    delays: list[float] = []
    backoff = Backoff()
    for _ in range(9):
        delays.append(backoff.seconds)
        backoff = backoff.after(lived_seconds=1)
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert backoff.after(lived_seconds=30).seconds == 0.1
