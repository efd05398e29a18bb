"""Reads the newest lag result of a Broker, by HTTPS from the observer in its pod of ordinal 0.

The document is not trusted: it is limited in size and validated by its model. Source: docs/reference/observer.md,
docs/decisions/064-result-documents.md.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from pydantic import ValidationError

from penstock_api.lag_result import LagResult
from penstock_api.observer_api import LATEST, MAX_RESULT_BYTES
from penstock_api.validation_messages import validation_messages

__all__ = ["LagResultUnavailable", "ObserverAccess", "fetch_latest"]

_TIMEOUT: Final = aiohttp.ClientTimeout(total=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverAccess:
    """Address and credentials of an observer."""

    host: str
    port: int
    server_name: str
    """The name that the server certificate must have."""
    ca: bytes = field(repr=False)
    """The certificate of the CA, PEM."""
    token: str = field(repr=False)
    """The bearer token."""


class LagResultUnavailable(Exception):
    """The lag result could not be read; the text says why."""


async def fetch_latest(session: aiohttp.ClientSession, access: ObserverAccess) -> LagResult | None:
    """The newest result, None if there is none yet.

    Raises:
        LagResultUnavailable: the observer does not answer, or its answer is not a result.
    """
    body = await _fetch(session, access)
    if body is None:
        return None
    try:
        # On a thread: validating a result of many thousand subscriptions would block the event loop.
        return await asyncio.to_thread(LagResult.model_validate_json, body)
    except ValidationError as error:
        raise LagResultUnavailable(f"the result is not valid: {validation_messages(error)[0]}") from error


async def _fetch(session: aiohttp.ClientSession, access: ObserverAccess) -> bytes | None:
    try:
        async with session.get(
            f"https://{_bracketed(access.host)}:{access.port}{LATEST}",
            headers={"Authorization": f"Bearer {access.token}"},
            ssl=ssl.create_default_context(cadata=access.ca.decode()),
            server_hostname=access.server_name,
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
    """The cause of an error, always in the same words: the library's text contains the address of an object."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or type(error.os_error).__name__
    return str(error) or type(error).__name__
