"""Keeps requests that are no HTTP out of the log: whoever reaches the port could fill it with tracebacks.

aiohttp answers such a request with 400, and logs it as an error of ours. Source: docs/reference/observer.md.
"""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError

__all__ = ["keep_out"]

SERVER: str = "aiohttp.server"
"""aiohttp's logger for what goes wrong with a connection."""


def _is_ours(record: logging.LogRecord) -> bool:
    """False for a request that could not be read. One line without a traceback tells of it at the level debug."""
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, HttpProcessingError):
        return True
    logging.getLogger(__name__).debug("%s: %s", record.getMessage(), error.message)
    return False


def keep_out() -> None:
    """From now on; again is the same."""
    logging.getLogger(SERVER).addFilter(_is_ours)
