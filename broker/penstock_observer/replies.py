"""Answers of the HTTP interface: documents, problems, and what became of a file that was sent."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable
from typing import Final

from aiohttp import web
from pydantic import BaseModel

from penstock_api.observer_api import Stored
from penstock_observer.results import RejectedResult

__all__ = ["JSON", "allowed", "problem", "put_reply", "reply"]

log = logging.getLogger(__name__)

JSON: Final = "application/json"


def reply(body: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A document."""
    return web.Response(
        text=body.model_dump_json(by_alias=True, exclude_none=True), status=status, content_type=JSON, headers=headers
    )


def allowed(error: web.HTTPException) -> dict[str, str] | None:
    """The header of a 405 that says which methods there are (RFC 9110, 15.5.6)."""
    methods = error.headers.get("Allow")
    return None if methods is None else {"Allow": methods}


def problem(kind: type[web.HTTPException], error: str, message: str) -> web.HTTPException:
    """To be raised; its body is a penstock_api.observer_api.Problem."""
    return kind(text=json.dumps({"error": error, "message": message}), content_type=JSON)


async def put_reply(name: str, noun: str, title: str, storing: Awaitable[bool]) -> web.Response:
    """201 if something was stored, 200 if it was there already. `title` names it in the log, `noun` in the answer.

    Raises a problem if it was refused (409 or 400), or could not be written (507).
    """
    try:
        stored = await storing
    except RejectedResult as error:
        kind = web.HTTPConflict if error.conflict else web.HTTPBadRequest
        raise problem(kind, error.error, error.message) from error
    except OSError as error:
        log.error("the %s could not be stored: %s", title, error)
        raise problem(web.HTTPInsufficientStorage, "CannotStore", f"the {noun} could not be stored: {error}") from error
    return reply(Stored(run_name=name, outcome="Stored" if stored else "Unchanged"), 201 if stored else 200)
