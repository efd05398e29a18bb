"""Imports of the code of a process: quick, and if an extra of the package is not installed, with a sentence instead of
a traceback.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

from penstock_api.failure import CannotRun

__all__ = ["needs_extra"]


@contextmanager
def needs_extra(extra: str) -> Generator[None, None, None]:
    """Context for imports of modules that belong to the given extra of the distribution.

    What hundreds of modules define stays, so to look for garbage among it, again and again, is a tenth of a start.

    Raises:
        CannotRun: one of these modules isn't installed.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0].startswith("penstock"):
            raise  # our own module is missing: a broken installation, not a missing extra
        raise CannotRun(
            f"this installation lacks the Python module {error.name!r}.",
            f"Install it with: pip install 'penstock[{extra}]'",
        ) from error
    finally:
        if collects:
            gc.enable()
