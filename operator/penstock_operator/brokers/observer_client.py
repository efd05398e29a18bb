"""The newest lag result of a Broker, by HTTPS from the observer of its ordinal 0. The document is untrusted until
parsed.

Source: docs/observer.md; section 6 of the design.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from pydantic import ValidationError

from penstock_api.faults import faults
from penstock_api.observing import LATEST, MAX_RESULT_BYTES
from penstock_api.result import LagResult

__all__ = ["LagResultUnavailable", "ObserverTarget", "fetch_latest"]

_TIMEOUT: Final = aiohttp.ClientTimeout(total=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverTarget:
    """Where an observer is, and how to prove who we are."""

    host: str
    port: int
    server_name: str
    """Name that the certificate must have."""
    ca: bytes = field(repr=False)
    """PEM."""
    token: str = field(repr=False)


class LagResultUnavailable(Exception):
    """No result could be had; the text says why."""


async def fetch_latest(session: aiohttp.ClientSession, target: ObserverTarget) -> LagResult | None:
    """The newest result, None if there is none yet.

    Raises:
        ObserverError: the observer does not answer, or not with a result.
    """
    body = await _fetch(session, target)
    if body is None:
        return None
    try:
        # Off the loop: a result of many thousand subscriptions takes a while to check.
        return await asyncio.to_thread(LagResult.model_validate_json, body)
    except ValidationError as error:
        raise LagResultUnavailable(f"the result does not fit its model: {faults(error)[0]}") from error


async def _fetch(session: aiohttp.ClientSession, target: ObserverTarget) -> bytes | None:
    try:
        async with session.get(
            f"https://{_bracketed(target.host)}:{target.port}{LATEST}",
            headers={"Authorization": f"Bearer {target.token}"},
            ssl=ssl.create_default_context(cadata=target.ca.decode()),
            server_hostname=target.server_name,
            timeout=_TIMEOUT,
            allow_redirects=False,
        ) as response:
            if response.status == 404:
                return None
            if response.status != 200:
                raise LagResultUnavailable(f"the observer answered {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_RESULT_BYTES:
                    raise LagResultUnavailable(f"the result is larger than {MAX_RESULT_BYTES} bytes")
            return bytes(body)
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise LagResultUnavailable(f"the observer can't be reached: {_cause(error)}") from error


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _cause(error: Exception) -> str:
    """Always the same text for the same cause; the library's own names an object of this moment."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or type(error.os_error).__name__
    return str(error) or type(error).__name__
