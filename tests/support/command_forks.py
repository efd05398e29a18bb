"""Runs command lines of `penstock` in processes that are forked from one that has imported the code of the verbs (see
`fork_server`).

What is forked is otherwise what `python -m penstock_cli` would be. How the interpreter begins (the encoding of its
streams, a closed output, Ctrl-C) is tested with processes that are not forked.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from support.fork_server import STREAMS, Request, move_to, server_of, surroundings

__all__ = ["penstock", "prepare", "run"]

MODULES: Final = (
    "penstock_cli.export",
    "penstock_cli.main",
    "penstock_cli.message_access",
    "penstock_cli.request_bodies",
    "penstock_cli.tables",
    "penstock_page.text",
)
"""What the verbs that ask a broker import when they run, and all that these need."""


def penstock(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command line to its end, between pipes; `typed` is its standard input."""
    (stdin, typing), (printing, stdout), (telling, stderr) = (os.pipe() for _ in range(STREAMS))
    theirs = (stdin, stdout, stderr)
    try:
        process = server_of(__name__).start("penstock", surroundings(), json.dumps(arguments), streams=theirs)
    finally:
        for each in theirs:
            os.close(each)
    with ThreadPoolExecutor(STREAMS) as threads:
        try:
            threads.submit(_write, typing, typed)
            printed, told = threads.submit(_read, printing), threads.submit(_read, telling)
            code = process.wait()
        finally:
            process.close()  # if the test was ended, so is the command, for which the threads would wait
        return subprocess.CompletedProcess(arguments, code, printed.result(), told.result())


def _write(descriptor: int, typed: str) -> None:
    with contextlib.suppress(BrokenPipeError), open(descriptor, "w") as pipe:
        pipe.write(typed)


def _read(descriptor: int) -> str:
    with open(descriptor) as pipe:
        return pipe.read()


def prepare() -> None:
    """In the process that forks."""
    for name in MODULES:
        importlib.import_module(name)


def run(request: Request) -> int:
    """Be the command that was asked for."""
    there, arguments = request.arguments
    move_to(there)
    sys.argv[:] = ["penstock", *json.loads(arguments)]
    # Ours know that they are no pipes.
    sys.stdin = os.fdopen(0, "r", encoding=sys.stdin.encoding, errors=sys.stdin.errors, closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding=sys.stderr.encoding, errors=sys.stderr.errors, closefd=False)
    importlib.import_module("penstock_cli.main").main()  # which ends the process
    return 0
