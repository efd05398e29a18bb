"""Starts broker processes by forking one that has imported the broker already.

Importing takes longer than everything else that a broker does until it serves, and the tests start hundreds of them.
What is forked is otherwise what `python -c "...main.run(...)"` would be: a process of its own with its own environment,
folder, standard streams and signals, which ends as an interpreter does. `penstock broker` itself, from the command line
on, is started by the tests of the command.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any, Final

from penstock_api.log_lines import LogFormat, handler_of

__all__ = ["ForkedBroker", "fork_broker"]

PATHS: Final = ("data", "config", "observer_socket", "ready_file", "tally")
"""Arguments of the broker that are paths."""
MESSAGE_BYTES: Final = 1 << 20


class ForkedBroker:
    """A broker process, with the methods of `subprocess.Popen` that tests use, from any thread."""

    def __init__(self, server: _Server, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None
        self._pidfd = os.pidfd_open(pid)
        weakref.finalize(self, os.close, self._pidfd)  # not at its end: another thread may wait for that
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        with self._lock:  # the code can be had once
            if self.returncode is None:
                self.returncode = self._server.ask({"poll": self.pid})
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended. Raises `subprocess.TimeoutExpired` after so many seconds."""
        if self.poll() is None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired("broker", timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class _Server:
    """The process that has imported the broker; one per process of tests, started when it is needed."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-u", __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._lock = threading.Lock()
        atexit.register(self.close)

    def ask(self, request: dict[str, Any]) -> int | None:
        """Send a request; the answer. Raises `ConnectionError` if the process has ended."""
        with self._lock:
            self._socket.sendall(json.dumps(request).encode())
            answer = self._socket.recv(MESSAGE_BYTES)
        if not answer:
            raise ConnectionError("the process that forks brokers has ended")
        found: int | None = json.loads(answer)
        return found

    def close(self) -> None:
        """End it, and the brokers that still run."""
        self._socket.close()
        self._process.wait()


_servers: dict[int, _Server] = {}
"""Ours, by our process id: a process that was forked from us makes its own."""


def fork_broker(arguments: dict[str, object], log: Path, module: str = "penstock_broker.main") -> ForkedBroker:
    """Start a broker by `run` of a module, with these arguments; what it prints is appended to `log`."""
    server = _servers.get(os.getpid())
    if server is None:
        server = _servers[os.getpid()] = _Server()
    pid = server.ask(
        {
            "module": module,
            "arguments": arguments,
            "log": str(log),
            "environment": dict(os.environ),
            "folder": str(Path.cwd()),
            "path": sys.path,
        }
    )
    assert pid is not None
    return ForkedBroker(server, pid)


# -- in the process that forks ----------------------------------------------------------------------------------


def _serve(control: socket.socket) -> dict[str, Any] | None:
    """Answer requests. Returns in each forked process what it is to run, and None when nobody asks any more."""
    running = set[int]()
    while request := control.recv(MESSAGE_BYTES):
        asked: dict[str, Any] = json.loads(request)
        if "poll" in asked:
            pid = asked["poll"]
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                running.discard(pid)
            answer = os.waitstatus_to_exitcode(status) if ended else None
        else:
            answer = os.fork()
            if answer == 0:
                control.close()
                return asked
            running.add(answer)
        control.sendall(json.dumps(answer).encode())
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return None


def _become(asked: dict[str, Any]) -> dict[str, Any]:
    """Be the process that was asked for; the broker's arguments."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.path[:] = asked["path"]
    log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    logging.basicConfig(level=logging.INFO, handlers=[handler_of(LogFormat.TEXT)])
    arguments: dict[str, Any] = asked["arguments"]
    return {name: Path(value) if name in PATHS else value for name, value in arguments.items()}


def _main() -> int:
    importlib.import_module("penstock_broker.main")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever presses it means the tests, which then end us
    with socket.socket(fileno=int(sys.argv[1])) as control:
        asked = _serve(control)
    if asked is None:
        return 0
    arguments = _become(asked)
    code: int = importlib.import_module(asked["module"]).run(**arguments)
    return code


if __name__ == "__main__":
    sys.exit(_main())
