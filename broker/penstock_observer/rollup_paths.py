"""The paths of rollups in the observer's HTTP interface. Source: docs/reference/observer.md, "Rollups"."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from aiohttp import web

from penstock_api.observer_api import ObserverModel, Stored
from penstock_api.rollup_format import ROLLUP, ROLLUPS, RollupList, RollupModel
from penstock_observer.results import BrokerPod, RejectedResult
from penstock_observer.rollups import RollupStore

__all__ = ["RollupPaths"]

log = logging.getLogger(__name__)

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class RollupPaths:
    """The handlers, and what they need."""

    store: RollupStore
    place: BrokerPod
    now: Callable[[], datetime]
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def add_to(self, app: web.Application) -> None:
        """Register them."""
        app.router.add_get(ROLLUPS, self.list)
        app.router.add_get(ROLLUP, self.get)
        app.router.add_put(ROLLUP, self.put)

    async def list(self, _: web.Request) -> web.StreamResponse:
        """What is kept."""
        return _reply(
            RollupList(broker=self.place.broker, namespace=self.place.namespace, rollups=self.store.rollups), 200
        )

    async def get(self, request: web.Request) -> web.StreamResponse:
        """One Parquet file."""
        name = request.match_info["name"]
        path = self.store.path_of(name)
        if path is None:
            raise _problem(web.HTTPNotFound, "NoRollup", f"there is no rollup {name!r}; it may be past its retention")
        return web.FileResponse(path, headers={"Content-Type": "application/vnd.apache.parquet"})

    async def put(self, request: web.Request) -> web.StreamResponse:
        """Keep a file: 201, or 200 if the same bytes are there already."""
        name = request.match_info["name"]
        content = await request.read()
        now_ms = int(self.now().timestamp() * 1000)
        try:
            async with self._writing:
                stored = await asyncio.to_thread(self.store.put, name, content, now_ms)
        except RejectedResult as error:
            kind = web.HTTPConflict if error.conflict else web.HTTPBadRequest
            raise _problem(kind, error.error, error.message) from error
        except OSError as error:
            log.error("the rollup %s could not be stored: %s", name, error)
            raise _problem(
                web.HTTPInsufficientStorage, "CannotStore", f"the rollup could not be stored: {error}"
            ) from error
        return _reply(Stored(run_name=name, outcome="Stored" if stored else "Unchanged"), 201 if stored else 200)


def _reply(body: ObserverModel | RollupModel, status: int) -> web.Response:
    return web.Response(text=body.model_dump_json(by_alias=True, exclude_none=True), status=status, content_type=JSON)


def _problem(kind: type[web.HTTPException], error: str, message: str) -> web.HTTPException:
    return kind(text=json.dumps({"error": error, "message": message}), content_type=JSON)
