"""Requests of `penstock up` to the observer: whether it serves, and the newest lag result."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from penstock_api import observer_api
from penstock_api.failure import Failure
from penstock_api.lag_result import LagResult

__all__ = ["latest_result", "wait_until_serving"]

LOOK_SECONDS: Final = 0.1
ANSWER_SECONDS: Final = 10.0


def get(url: str, token: str | None = None) -> bytes:
    """The body of the reply to a GET.

    Raises:
        OSError: there is no answer, or its status is an error (urllib's HTTPError is an OSError).
    """
    request = urllib.request.Request(url, headers={} if token is None else {"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
        body: bytes = answer.read()
    return body


async def wait_until_serving(base: str, seconds: float) -> None:
    """Return when the observer answers.

    Raises:
        Failure: it does not within `seconds`.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            await asyncio.to_thread(get, base + observer_api.HEALTH)
        except urllib.error.HTTPError:
            return  # it answers, even if with an error
        except OSError as error:
            if asyncio.get_running_loop().time() > deadline:
                raise Failure(f"the observer does not answer at {base} after {seconds:.0f} s: {error}") from error
            await asyncio.sleep(LOOK_SECONDS)
        else:
            return


async def latest_result(base: str, token: Path) -> LagResult:
    """The newest lag result that the observer keeps."""
    body = await asyncio.to_thread(get, base + observer_api.LATEST, token.read_text(encoding="ascii").strip())
    return LagResult.model_validate_json(body)
