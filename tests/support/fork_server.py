"""Starts processes by forking one that has imported already what they run.

Importing takes longer than everything else that a broker does until it serves, and most of what a short command costs;
the tests start hundreds of both. What is forked is a process of its own, with its own environment, folder, streams and
signals, which ends as an interpreter does.

A `Program` is a module of the tests with two functions: `prepare` imports what its processes need, in the server, and
`run` is what a forked process does. Server and processes are in a session of their own: neither Ctrl-C nor the terminal
of whoever runs the tests reaches them. They end with whoever started the server, however that ended.

Over a connection to the server's Unix socket for each process comes a line with its name, one with the file to which
its output is appended (empty: its three standard streams come as descriptors), one for each argument, and an empty
line. The answer is a line with the process id and, once the process has ended, one with its exit code, negative for a
signal. A connection that is closed before ends the process by SIGKILL. Until it is closed nobody else gets the process
id.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast

__all__ = ["ForkServer", "ForkedProcess", "Program", "Request", "main", "move_to", "server_of", "surroundings"]

STREAMS: Final = 3
REQUEST_BYTES: Final = 1 << 16
"""That are read at once."""
END_SECONDS: Final = 300.0
"""Only a test that fails waits so long."""
COMMAND: Final = """\
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from support import fork_server
sys.exit(fork_server.main(int(sys.argv[1]), sys.argv[3]))
"""


class Request(NamedTuple):
    """What somebody wants to be run."""

    name: str
    arguments: list[str]


class Program(Protocol):
    """What a module has to have so that a server can run it."""

    def prepare(self) -> None:
        """Import what the processes need."""

    def run(self, request: Request) -> int:
        """Be the process that was asked for; its exit code."""
        ...


# -- in the process of the tests --------------------------------------------------------------------------------


class ForkedProcess:
    """A process that was forked, with the methods of `subprocess.Popen` that tests use, from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile("rb", buffering=0)  # what was read ahead would not be seen by `poll`
        self.close = weakref.finalize(self, _close, self._answers, connection)
        """End it, if it runs, and forget it. Nothing can be asked of it any more."""
        self._lock = threading.Lock()
        self.returncode: int | None = None
        self.pid: Final = self._number()

    def _number(self) -> int:
        answer = self._answers.readline()
        if not answer:
            raise ConnectionError("the process that forks others has ended")
        return int(answer)

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        with self._lock:  # the code comes once
            if self.returncode is None and self._has_answered(0):
                self.returncode = self._number()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended. Raises `subprocess.TimeoutExpired` after so many seconds."""
        # Several threads may wait. The connection ends behind the code, so that each of them sees something there.
        if self.poll() is None and not self._has_answered(timeout):
            raise subprocess.TimeoutExpired("forked process", timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def _has_answered(self, seconds: float | None) -> bool:
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        return bool(poll.poll(None if seconds is None else seconds * 1000))

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # the server has ended, and with it all that it forked
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _close(*opened: Any) -> None:
    for each in opened:
        each.close()


class ForkServer:
    """The process that has imported what a program needs. `program` is the name of the module, see `Program`."""

    def __init__(self, program: str) -> None:
        self._owner = os.getpid()
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-forks-"))
        self.path: Final = self._folder / "socket"
        """Of its Unix socket."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(self.path))
            listener.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-c", COMMAND, str(listener.fileno()), json.dumps(sys.path), program],
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(
        self, name: str, *arguments: str, output: Path | None = None, streams: Sequence[int] = ()
    ) -> ForkedProcess:
        """Start a process. What it prints is appended to `output`; without that, `streams` are its standard streams.
        Neither the name nor an argument has the end of a line. Raises `ConnectionError` if the server has ended.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self.path))
            request = "".join(f"{line}\n" for line in (name, output or "", *arguments, "")).encode()
            sent = socket.send_fds(connection, [request], streams)
            connection.sendall(request[sent:])
            return ForkedProcess(connection)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """End it, and the processes that still run. Does nothing in a process that was forked from ours."""
        if os.getpid() == self._owner and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(END_SECONDS)
            shutil.rmtree(self._folder, ignore_errors=True)


_servers: dict[tuple[int, str], ForkServer] = {}
"""By our process id and program: a process that was forked from us makes its own."""


def server_of(program: str) -> ForkServer:
    """The server of a program, which all tests of this process share."""
    key = (os.getpid(), program)
    if key not in _servers:
        _servers[key] = server = ForkServer(program)
        atexit.register(server.close)
    return _servers[key]


def surroundings() -> str:
    """This process's environment, folder and path of modules, as an argument for `move_to`."""
    return json.dumps({"environment": dict(os.environ), "folder": str(Path.cwd()), "path": sys.path})


# -- in the process that forks, and in what it forks ------------------------------------------------------------


def move_to(told: str) -> None:
    """Take on what `surroundings` told of another process."""
    there: dict[str, Any] = json.loads(told)
    os.environ.clear()
    os.environ.update(there["environment"])
    os.chdir(there["folder"])
    sys.path[:] = there["path"]


class _Asked(NamedTuple):
    """What has come over a connection."""

    request: Request
    output: str
    streams: list[int]


class _Running:
    """A process that somebody asked for, from its fork until the connection is closed."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection = connection
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.has_ended = self.is_closed = False

    def answer_code(self) -> None:
        """It has ended. It is not waited for yet, so that its process id stays its own."""
        self.has_ended = True
        ended = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        _answer(self.connection, ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status)
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)

    def end(self) -> None:
        """Nobody wants it any more."""
        if not self.has_ended:
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.close()

    def close(self) -> None:
        """Forget it."""
        self.is_closed = True
        self.connection.close()
        os.close(self.pidfd)


def _read(connection: socket.socket) -> _Asked | None:
    """What a client asks for; None if it has gone."""
    text, streams, _, _ = socket.recv_fds(connection, REQUEST_BYTES, STREAMS)
    while text and not text.endswith(b"\n\n"):
        more = connection.recv(REQUEST_BYTES)
        text = text + more if more else b""
    if not text:
        _close_all(streams)
        return None
    name, output, *arguments = text.decode().split("\n")[:-2]
    return _Asked(Request(name, arguments), output, streams)


def _serve(listener: socket.socket) -> _Asked | None:
    """Answer requests. Returns in each forked process what it is to be, and None when standard input has ended."""
    running = set[_Running]()
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == 0:
                    for process in running:
                        process.end()
                    return None
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    asked = _read(connection)
                    if asked is None:
                        connection.close()
                        continue
                    pid = os.fork()
                    if pid == 0:
                        connection.close()
                        for process in running:
                            process.close()
                        return asked
                    _close_all(asked.streams)
                    process = _Running(connection, pid)
                    running.add(process)
                    selector.register(process.pidfd, selectors.EVENT_READ, process)
                    selector.register(connection, selectors.EVENT_READ, process)
                    _answer(connection, pid)
                    continue
                process = key.data
                if process.is_closed:
                    continue  # both of its descriptors were ready
                if key.fileobj is process.connection:
                    selector.unregister(process.connection)
                    if not process.has_ended:
                        selector.unregister(process.pidfd)
                    running.remove(process)
                    process.end()
                else:
                    selector.unregister(process.pidfd)
                    process.answer_code()


def _answer(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # whoever asked has gone
        connection.sendall(b"%d\n" % number)


def _close_all(descriptors: Sequence[int]) -> None:
    for each in descriptors:
        os.close(each)


def _take_streams(asked: _Asked) -> None:
    streams = asked.streams
    if asked.output:
        out = os.open(asked.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        streams = [os.open(os.devnull, os.O_RDONLY), out, os.dup(out)]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    _close_all(streams)


def main(listener: int, program: str) -> int:
    """Be the server, and then each process that it forks."""
    module = cast(Program, importlib.import_module(program))
    module.prepare()
    with socket.socket(fileno=listener) as listening:
        asked = _serve(listening)
    if asked is None:
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests without it
    _take_streams(asked)
    return module.run(asked.request)
