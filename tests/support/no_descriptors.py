"""A process that has no file descriptor left, as a broker with very many connections may have none for a moment."""

from __future__ import annotations

import os
import resource
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["no_descriptors"]


@contextmanager
def no_descriptors() -> Generator[None]:
    """In this block the system refuses to open files (EMFILE)."""
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
