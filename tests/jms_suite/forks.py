"""Runs `penstock` and `declare.py` for Java tests by forking a process that has imported them already (see
`support.fork_server`, whose protocol the Java tests speak).

Java signals what is forked by its process id. PENSTOCK_TEST_WINDOW=N is for all brokers: they keep at most N messages
of each queue in memory, so that everything that the tests do is done with queues that are paged.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from support.fork_server import ForkServer, Request

__all__ = ["prepare", "run", "serving"]


@contextmanager
def serving() -> Generator[Path]:
    """The socket of a process that forks commands; at the end they are killed with it."""
    with ForkServer(__name__) as server:
        yield server.path


def prepare() -> None:
    """In the process that forks."""
    from support import paged_penstock

    for name in ("jms_suite.declare", "penstock_cli.main", "penstock_broker.main"):
        importlib.import_module(name)  # the last one `penstock broker` imports only when it runs
    window = os.environ.get("PENSTOCK_TEST_WINDOW")
    if window:
        paged_penstock.tighten_all(int(window))


def run(request: Request) -> int:
    """Be the command that was asked for."""
    from jms_suite import declare

    from penstock_cli.main import run as penstock

    return {"penstock": penstock, "declare": declare.main}[request.name](request.arguments)
