"""The parts of Penstock that are compiled: C that works on Python's own objects, built when the project is installed.

Each has a twin in Python that does the same, and serves where no compiler was found, or where the environment variable
`PENSTOCK_ENGINE` is `python`. Who wants a part asks here, and gets None if its twin has to serve; `absence` says why.

Nothing here knows queues or subscriptions. Source: docs/decisions/092-compiled-engine.md.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, Final

__all__ = ["ENGINE_VARIABLE", "absence", "aio", "messages", "proton"]

ENGINE_VARIABLE: Final = "PENSTOCK_ENGINE"

proton: Any = None
"""The functions of proton's engine and batches of messages: see proton.pyi. None: cffi and Python serve."""

messages: Any = None
"""Loops over messages: see messages.pyi. None: their twins in Python serve."""

aio: Any = None
"""Linux AIO's fdatasync: see aio.pyi. None: ctypes serves."""

absence: str = ""
"""Why nothing compiled is used; empty if it is used."""


def _find() -> tuple[Any, Any, Any, str]:
    chosen = os.environ.get(ENGINE_VARIABLE, "compiled")
    if chosen == "python":
        return None, None, None, f"{ENGINE_VARIABLE} is python"
    if chosen != "compiled":
        sys.stderr.write(f"{ENGINE_VARIABLE} is {chosen!r}; it can be `compiled` (the default) or `python`.\n")
        raise SystemExit(2)  # a wrong setting: docs/reference/command-line.md
    try:
        import_module("cproton")  # it prepares the library
        path = import_module("cproton_ffi").__file__
        compiled = import_module("penstock_native.proton")
        compiled.load(path)
        loops = import_module("penstock_native.messages")
        syncs = import_module("penstock_native.aio")
    except ImportError as error:
        return None, None, None, f"it can't be loaded: {error}"
    return compiled, loops, syncs, ""


proton, messages, aio, absence = _find()
