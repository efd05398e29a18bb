"""Imports of optional dependencies: if an extra of the package is not installed, say so instead of a traceback."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from penstock_api.failure import CannotRun

__all__ = ["needs_extra"]


@contextmanager
def needs_extra(extra: str) -> Generator[None, None, None]:
    """Context for imports of modules that belong to the given extra of the distribution.

    Raises:
        CannotRun: one of these modules isn't installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0].startswith("penstock"):
            raise  # our own module is missing: a broken installation, not a missing extra
        raise CannotRun(
            f"this installation lacks the Python module {error.name!r}.",
            f"Install it with: pip install 'penstock[{extra}]'",
        ) from error
