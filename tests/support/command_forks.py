"""Runs command lines of `penstock` in processes that are forked from one that has imported the code of the verbs.

Importing is most of what a short command costs, and the tests run hundreds of them. What is forked is otherwise
what `python -m penstock_cli` would be: a process of its own with its own environment, folder and standard streams,
which ends as an interpreter does. How the interpreter begins (the encoding of its streams, a closed output, Ctrl-C)
is tested with processes that are not forked.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

__all__ = ["penstock"]

MODULES: Final = (
    "penstock_cli.export",
    "penstock_cli.main",
    "penstock_cli.message_access",
    "penstock_cli.request_bodies",
    "penstock_cli.tables",
    "penstock_page.text",
)
"""What the verbs that ask a broker import when they run, and all that these need."""
MESSAGE_BYTES: Final = 1 << 20
STREAMS: Final = 3


class _Server:
    """The process that has imported the verbs; one per process of tests, started when it is needed."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        atexit.register(self.close)

    def begin(self, asked: dict[str, object], streams: Sequence[int]) -> None:
        """Start a command line with these standard streams."""
        socket.send_fds(self._socket, [json.dumps(asked).encode()], streams)

    def code(self) -> int:
        """Its exit code, negative for a signal, once it has ended. Raises `ConnectionError` if this process has."""
        answer = self._socket.recv(MESSAGE_BYTES)
        if not answer:
            raise ConnectionError("the process that forks commands has ended")
        return int(answer)

    def close(self) -> None:
        """End it."""
        self._socket.close()
        self._process.wait()

    def kill(self) -> None:
        """End it, and the command that still runs."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self.close()


_servers: dict[int, _Server] = {}
"""Ours, by our process id: a process that was forked from us makes its own."""


def penstock(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command line to its end, between pipes; `typed` is its standard input."""
    server = _servers.get(os.getpid())
    if server is None:
        server = _servers[os.getpid()] = _Server()
    asked: dict[str, object] = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
        "path": sys.path,
    }
    (stdin, typing), (printing, stdout), (telling, stderr) = (os.pipe() for _ in range(STREAMS))
    with ThreadPoolExecutor(STREAMS) as threads:
        try:
            server.begin(asked, (stdin, stdout, stderr))
            for theirs in (stdin, stdout, stderr):
                os.close(theirs)
            threads.submit(_write, typing, typed)
            printed, told = threads.submit(_read, printing), threads.submit(_read, telling)
            code = server.code()
        except BaseException:  # the test was ended; and the threads would wait for the command
            del _servers[os.getpid()]
            server.kill()
            raise
        return subprocess.CompletedProcess(arguments, code, printed.result(), told.result())


def _write(descriptor: int, typed: str) -> None:
    with contextlib.suppress(BrokenPipeError), open(descriptor, "w") as pipe:
        pipe.write(typed)


def _read(descriptor: int) -> str:
    with open(descriptor) as pipe:
        return pipe.read()


# -- in the process that forks ----------------------------------------------------------------------------------


def _serve(control: socket.socket) -> dict[str, Any] | None:
    """Run one command after the other. Returns in each forked process what it is to run, over its own standard streams,
    and None when nobody asks any more.
    """
    while True:
        request, streams, _, _ = socket.recv_fds(control, MESSAGE_BYTES, STREAMS)
        if not request:
            return None
        pid = os.fork()
        if pid == 0:
            control.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            asked: dict[str, Any] = json.loads(request)
            return asked
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(pid, 0)
        control.sendall(b"%d" % os.waitstatus_to_exitcode(status))


def _become(asked: dict[str, Any]) -> None:
    """Be the process that was asked for."""
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.path[:] = asked["path"]
    sys.argv[:] = ["penstock", *asked["arguments"]]
    # Ours know that they are no pipes.
    sys.stdin = os.fdopen(0, "r", encoding=sys.stdin.encoding, errors=sys.stdin.errors, closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding=sys.stderr.encoding, errors=sys.stderr.errors, closefd=False)


def _main() -> None:
    for name in MODULES:
        importlib.import_module(name)
    with socket.socket(fileno=int(sys.argv[1])) as control:
        asked = _serve(control)
    if asked is not None:
        _become(asked)
        importlib.import_module("penstock_cli.main").main()


if __name__ == "__main__":
    _main()
