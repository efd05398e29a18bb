"""Processes that are forked end as others do, and never outlive who asked for them."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fork_server import ForkedProcess, ForkServer, move_to, surroundings
from support.waiting import until

HANGS = "import signal\nwhile True: signal.pause()"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("support.forked_python") as started:
        yield started


def forked(server: ForkServer, code: str, output: Path = Path(os.devnull)) -> ForkedProcess:
    return server.start("python", json.dumps(code), output=output)


def is_gone(pid: int) -> bool:
    """Whether no process has this id, not even one that has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(
    ("code", "ends_with"),
    [
        ("", 0),
        ("code = 3", 3),
        ("raise SystemExit(7)", 7),
        ("raise ValueError", 1),
        ("import os; os.kill(os.getpid(), 15)", -15),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -2),  # as an interpreter ends by Ctrl-C
    ],
)
def test_the_exit_code_is_that_of_an_interpreter(server: ForkServer, code: str, ends_with: int) -> None:
    process = forked(server, code)
    assert (process.wait(), process.poll(), process.returncode) == (ends_with,) * 3


def test_output_is_appended_and_there_is_no_input(server: ForkServer, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("before\n")
    code = "import os, sys; print(repr(sys.stdin.read())); print('told', file=sys.stderr); os.write(1, b'written\\n')"
    assert forked(server, code, output).wait() == 0
    assert output.read_text() == "before\n''\ntold\nwritten\n"


def test_a_process_has_the_streams_that_it_is_given(server: ForkServer) -> None:
    (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
    process = server.start(
        "python", json.dumps("import sys; print(sys.stdin.read()[::-1])"), streams=(read_in, write_out, write_out)
    )
    for mine in (read_in, write_out):
        os.close(mine)
    with open(write_in, "w") as typing, open(read_out) as printed:
        typing.write("abc")
        typing.close()
        assert (printed.read(), process.wait()) == ("cba\n", 0)


def test_a_process_that_nobody_asks_for_any_more_is_killed(server: ForkServer) -> None:
    process, other = forked(server, HANGS), forked(server, HANGS)
    process.close()
    until(lambda: is_gone(process.pid), "the process to end", 60)
    assert other.poll() is None
    other.kill()
    assert other.wait() == -signal.SIGKILL


def test_the_process_id_stays_that_of_a_process_that_has_ended(server: ForkServer) -> None:
    process = forked(server, "")
    assert process.wait() == 0
    assert not is_gone(process.pid)
    process.send_signal(signal.SIGKILL)
    process.close()
    until(lambda: is_gone(process.pid), "the process id to be free", 60)


def test_a_wait_that_is_too_short_says_so(server: ForkServer) -> None:
    process = forked(server, HANGS)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    process.close()


def test_who_knows_the_exit_code_waits_for_nothing() -> None:
    """Not for the end of the connection, which comes behind the code."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with theirs:
        theirs.sendall(b"7\n-9\n")
        process = ForkedProcess(ours)
        assert process.wait() == -9
        assert process.wait(0) == -9
        process.close()


def test_a_process_may_live_in_other_surroundings(server: ForkServer, tmp_path: Path) -> None:
    """`surroundings` and `move_to`, between two processes."""
    told = subprocess.run(
        [sys.executable, "-c", "from support.fork_server import surroundings; print(surroundings())"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "ONLY": "there\nand here"},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    code = f"from support.fork_server import move_to, surroundings; move_to({told!r}); print(surroundings())"
    output = tmp_path / "out"
    assert forked(server, code, output).wait() == 0
    assert json.loads(output.read_text()) == json.loads(told)
    assert json.loads(told)["environment"]["ONLY"] == "there\nand here"
    here = surroundings()
    move_to(here)
    assert surroundings() == here


def test_all_end_with_the_server(tmp_path: Path) -> None:
    with ForkServer("support.forked_python") as server:
        process = forked(server, HANGS)
        folder = server.path.parent
    assert is_gone(process.pid)
    assert not folder.exists()
    with pytest.raises(ConnectionError):
        process.poll()
    with pytest.raises(OSError) as refused:
        forked(server, "")
    assert refused.value.errno in (errno.ENOENT, errno.ECONNREFUSED)


def test_all_end_with_a_test_run_that_is_killed(tmp_path: Path) -> None:
    """The server is started by a process of its own, which is killed; its standard output is open until all have
    ended.
    """
    code = (
        "import json, signal; from support.fork_server import ForkServer; "
        f"server = ForkServer('support.forked_python'); process = server.start('x', json.dumps({HANGS!r}), "
        f"output={str(tmp_path / 'out')!r}); print(process.pid, flush=True); signal.pause()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE, text=True,
    ) as run:  # fmt: skip
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        run.kill()
        assert run.stdout.read() == ""
    until(lambda: is_gone(pid), "the process to end", 60)


def test_who_asks_and_goes_before_the_request_is_whole_asks_for_nothing(server: ForkServer) -> None:
    for begun in (b"", b"python\n"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(server.path))
            connection.sendall(begun)
    assert forked(server, "code = 4").wait() == 4
