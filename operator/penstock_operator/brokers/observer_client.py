"""Reads the lag of a Broker, by HTTPS from the observer in its pod of ordinal 0: the live result, and that of the
newest run.

The document is not trusted: it is limited in size and validated by its model. Source: docs/reference/observer.md,
docs/decisions/064-result-documents.md.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Concatenate, Final, ParamSpec, TypeVar

import aiohttp
from pydantic import ValidationError

from penstock_api.connection_failures import connection_failure
from penstock_api.lag_result import LagResult
from penstock_api.observer_api import LATEST, LIVE_LAG, MAX_RESULT_BYTES
from penstock_api.validation_messages import validation_messages
from penstock_operator.brokers.accepted_tokens import AcceptedTokens

__all__ = [
    "LagResultInvalid",
    "LagResultUnavailable",
    "NoNewResult",
    "ObserverAccess",
    "TaggedResult",
    "TokenRefused",
    "fetch_latest",
    "fetch_live",
]

_TIMEOUT: Final = aiohttp.ClientTimeout(total=15, sock_connect=5)
_MAX_TAG_CHARACTERS: Final = 256
P = ParamSpec("P")
AnswerT = TypeVar("AnswerT")


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
    """The bearer token of the operator."""
    full_token: str = field(default="", repr=False)
    """The token for everything, which an observer of an earlier release knows; empty: there is none to fall back to."""
    accepted: AcceptedTokens | None = field(default=None, repr=False)
    """Where to remember which of the two it accepts."""


Request = Callable[Concatenate[aiohttp.ClientSession, ObserverAccess, P], Awaitable[AnswerT]]


@dataclass(frozen=True, slots=True)
class TaggedResult:
    """A result, and the observer's tag of its bytes."""

    result: LagResult
    tag: str | None
    """The `ETag` as it came; None if there was none."""


class NoNewResult(Enum):
    """Answers without a result."""

    NONE_YET = auto()
    """No run has put one there."""
    UNCHANGED = auto()
    """The newest one is still the one with the tag that was sent."""


class LagResultUnavailable(Exception):
    """The observer does not answer with a result; the text says why."""

    def __init__(self, text: str, *, answers: bool = False) -> None:
        super().__init__(text)
        self.answers = answers
        """Whether it can be reached; another request may then have more success."""


class TokenRefused(LagResultUnavailable):
    """The observer does not know the token that was shown, or it is not good for this."""


class LagResultInvalid(Exception):
    """The observer answered, but with nothing that can be used; the text says why."""

    def __init__(self, text: str, tag: str | None = None) -> None:
        super().__init__(text)
        self.tag = tag
        """The `ETag` of what it sent, with which it need not send it again."""


async def fetch_live(session: aiohttp.ClientSession, access: ObserverAccess) -> LagResult | None:
    """The live result; None if the observer is of an earlier release, which has none.

    Raises:
        TokenRefused: the observer does not accept the token.
        LagResultUnavailable: the observer does not answer, or not with a result.
        LagResultInvalid: the result is too large, or not one.
    """
    answer = await _fetch(session, access, LIVE_LAG, None)
    return None if isinstance(answer, NoNewResult) else await _parse(*answer)


async def fetch_latest(
    session: aiohttp.ClientSession, access: ObserverAccess, known_tag: str | None = None
) -> TaggedResult | NoNewResult:
    """The newest result.

    `known_tag`: the tag of the result that the caller has already; if it is still the newest, it is not sent again.

    Raises:
        TokenRefused: the observer does not accept the token.
        LagResultUnavailable: the observer does not answer, or not with a result.
        LagResultInvalid: the result is too large, or not one.
    """
    answer = await _fetch(session, access, LATEST, known_tag)
    return answer if isinstance(answer, NoNewResult) else TaggedResult(await _parse(*answer), answer[1])


async def _parse(body: bytes, tag: str | None) -> LagResult:
    try:
        # On a thread: validating a result of many thousand subscriptions would block the event loop.
        return await asyncio.to_thread(LagResult.model_validate_json, body)
    except ValidationError as error:
        raise LagResultInvalid(f"the result is not valid: {validation_messages(error)[0]}", tag) from error


def _with_either_token(request: Request[P, AnswerT]) -> Request[P, AnswerT]:
    """The request with the operator's token; if that is refused, with the one for everything."""

    async def either(
        session: aiohttp.ClientSession, access: ObserverAccess, /, *args: P.args, **kwargs: P.kwargs
    ) -> AnswerT:
        try:
            answer = await request(session, access, *args, **kwargs)
        except TokenRefused:
            if not access.full_token:
                raise
            if access.accepted is not None:
                access.accepted.note(accepted=False)
            return await request(session, replace(access, token=access.full_token), *args, **kwargs)
        if access.accepted is not None:
            access.accepted.note(accepted=True)
        return answer

    return either


@_with_either_token
async def _fetch(
    session: aiohttp.ClientSession, access: ObserverAccess, path: str, known_tag: str | None
) -> tuple[bytes, str | None] | NoNewResult:
    headers = {"Authorization": f"Bearer {access.token}"}
    if known_tag is not None:
        headers["If-None-Match"] = known_tag
    try:
        async with session.get(
            f"https://{_bracketed(access.host)}:{access.port}{path}",
            headers=headers,
            ssl=ssl.create_default_context(cadata=access.ca.decode()),
            server_hostname=access.server_name,
            timeout=_TIMEOUT,
            allow_redirects=False,
        ) as response:
            if response.status == 404:
                return NoNewResult.NONE_YET
            if response.status == 304 and known_tag is not None:
                return NoNewResult.UNCHANGED
            if response.status in (401, 403):
                raise TokenRefused(f"the observer answered {response.status}", answers=True)
            if response.status != 200:
                raise LagResultUnavailable(f"the observer answered {response.status}", answers=True)
            tag = _usable(response.headers.get("ETag"))
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_RESULT_BYTES:
                    raise LagResultInvalid(f"the result is larger than {MAX_RESULT_BYTES} bytes", tag)
            return bytes(body), tag
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise LagResultUnavailable(f"the observer can't be reached: {_cause(error)}") from error


def _usable(tag: str | None) -> str | None:
    """A tag that can be sent back; None if there is none. The client sends no header with a control character."""
    is_usable = tag is not None and len(tag) <= _MAX_TAG_CHARACTERS and tag.isascii() and tag.isprintable()
    return tag if is_usable else None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _cause(error: Exception) -> str:
    """The cause of an error, always in the same words: the library's text contains the address of an object."""
    return connection_failure(error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error)
