"""Python's garbage collector, kept from what a test counts."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["without_collection"]


@contextmanager
def without_collection() -> Generator[None]:
    """Collect once, and then nothing within this: what is freed was freed with its last reference."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
