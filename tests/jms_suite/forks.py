"""Runs `penstock` and `declare.py` for Java tests by forking a process that has imported them already.

Usage: forks.py DESCRIPTOR. Importing takes longer than everything else that a broker does until it serves, and the Java
tests start hundreds. What is forked is a process of its own, which ends as an interpreter does; Java signals it by its
process id.

Over a connection to the Unix socket for each command comes a line with its name, one with the file to which its output
is appended, one for each argument, and an empty line. The answer is a line with the process id and, once the process
has ended, one with its exit code, negative for a signal. A connection that is closed before ends it by SIGKILL.
PENSTOCK_TEST_WINDOW=N is for all brokers: they keep at most N messages of each queue in memory, so that everything that
the tests do is done with queues that are paged.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["serving"]

START_SECONDS: Final = 300.0
"""Only a test that fails waits so long."""


@contextmanager
def serving(folder: Path) -> Generator[Path]:
    """The socket of a process that forks commands; at the end they are killed with it."""
    path = folder / "forks.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(64)
        process = subprocess.Popen(
            [sys.executable, "-u", __file__, str(listener.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        )
    assert process.stdin is not None
    try:
        yield path
    finally:
        process.stdin.close()
        process.wait(START_SECONDS)


# -- in the process that forks ----------------------------------------------------------------------------------


class Command:
    """A process that somebody asked for."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection = connection
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)

    def close(self) -> None:
        """Forget both."""
        self.connection.close()
        os.close(self.pidfd)


def _request(connection: socket.socket) -> list[str]:
    """The lines of a request; empty if its connection was closed."""
    text = b""
    while not text.endswith(b"\n\n"):
        read = connection.recv(65_536)
        if not read:
            return []
        text += read
    return text.decode().split("\n")[:-2]


def _serve(listener: socket.socket) -> list[str] | None:
    """Answer requests. Returns in each forked process what it is to run, and None when standard input has ended."""
    commands: dict[int, Command] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == 0:
                    for command in commands.values():
                        os.kill(command.pid, signal.SIGKILL)
                    return None
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    request = _request(connection)
                    if not request:
                        connection.close()
                        continue
                    pid = os.fork()
                    if pid == 0:
                        connection.close()
                        for command in commands.values():
                            command.close()
                        return request
                    command = commands[pid] = Command(connection, pid)
                    selector.register(command.pidfd, selectors.EVENT_READ, command)
                    selector.register(connection, selectors.EVENT_READ, command)
                    _answer(connection, pid)
                    continue
                command = key.data
                if command.pid not in commands:
                    continue  # both of its descriptors were ready
                selector.unregister(command.connection)
                selector.unregister(command.pidfd)
                if key.fileobj is command.connection:
                    os.kill(command.pid, signal.SIGKILL)
                _, status = os.waitpid(command.pid, 0)
                _answer(command.connection, os.waitstatus_to_exitcode(status))
                commands.pop(command.pid).close()


def _answer(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # whoever asked has gone
        connection.sendall(b"%d\n" % number)


def _become(request: list[str]) -> tuple[str, list[str]]:
    """Be the process that was asked for: its name and arguments."""
    name, output, *arguments = request
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream, path, flags in ((0, os.devnull, os.O_RDONLY), (1, output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, stream)
        os.close(opened)
    os.dup2(1, 2)
    return name, arguments


def _main() -> int:
    from jms_suite import declare
    from support import paged_penstock

    from penstock_cli.main import run

    importlib.import_module("penstock_broker.main")  # which `penstock broker` imports only when it runs
    window = os.environ.get("PENSTOCK_TEST_WINDOW")
    if window:
        paged_penstock.tighten_all(int(window))
    commands: dict[str, Callable[[list[str]], int]] = {"penstock": run, "declare": declare.main}
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever presses it means the tests, which then end us
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        request = _serve(listener)
    if request is None:
        return 0
    name, arguments = _become(request)
    return commands[name](arguments)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    sys.exit(_main())
