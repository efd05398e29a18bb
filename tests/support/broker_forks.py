"""Starts broker processes by forking one that has imported the broker already (see `fork_server`).

What is forked is otherwise what `python -c "...main.run(...)"` would be. `penstock broker` itself, from the command
line on, is started by the tests of the command.
"""

from __future__ import annotations

import importlib
import json
import logging
from pathlib import Path
from typing import Any, Final

from support.fork_server import ForkedProcess, Request, move_to, server_of, surroundings

from penstock_api.log_lines import LogFormat, handler_of

__all__ = ["fork_broker", "prepare", "run"]

PATHS: Final = ("data", "config", "observer_socket", "ready_file", "tally")
"""Arguments of the broker that are paths."""


def fork_broker(arguments: dict[str, object], log: Path, module: str = "penstock_broker.main") -> ForkedProcess:
    """Start a broker by `run` of a module, with these arguments; what it prints is appended to `log`."""
    return server_of(__name__).start(module, surroundings(), json.dumps(arguments), output=log)


def prepare() -> None:
    """In the process that forks."""
    importlib.import_module("penstock_broker.main")


def run(request: Request) -> int:
    """Be the broker that was asked for."""
    there, told = request.arguments
    move_to(there)
    logging.basicConfig(level=logging.INFO, handlers=[handler_of(LogFormat.TEXT)])
    arguments: dict[str, Any] = json.loads(told)
    code: int = importlib.import_module(request.name).run(
        **{name: Path(value) if name in PATHS else value for name, value in arguments.items()}
    )
    return code
