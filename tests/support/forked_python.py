"""The program of the tests of `fork_server`: it runs the Python code of its only argument."""

from __future__ import annotations

import json

from support.fork_server import Request

__all__ = ["prepare", "run"]


def prepare() -> None:
    """Nothing has to be imported."""


def run(request: Request) -> int:
    """The code may set `code`, with which the process ends."""
    found: dict[str, int] = {}
    exec(json.loads(request.arguments[0]), found)
    return found.get("code", 0)
