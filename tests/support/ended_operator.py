"""Ends an operator that a test runs in its own process, against an API server that speaks TLS."""

from __future__ import annotations

import asyncio
import gc

__all__ = ["end_operator"]


async def end_operator(running: asyncio.Task[None]) -> None:
    """Cancel it, and let go of the connections of its watches: their loop ends before TLS has said good-bye, and the
    warning about that must not come to the next test.
    """
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    gc.collect()
