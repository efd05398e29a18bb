"""The paths of rollups in the observer's HTTP interface. Source: docs/reference/observer.md, "Rollups"."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from aiohttp import web

from penstock_api.rollup_format import ROLLUP, ROLLUPS, RollupList
from penstock_observer.replies import problem, put_reply, reply
from penstock_observer.results import BrokerPod
from penstock_observer.rollups import RollupStore

__all__ = ["RollupPaths"]


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
        return reply(RollupList(broker=self.place.broker, namespace=self.place.namespace, rollups=self.store.rollups))

    async def get(self, request: web.Request) -> web.StreamResponse:
        """One Parquet file."""
        name = request.match_info["name"]
        path = self.store.path_of(name)
        if path is None:
            raise problem(web.HTTPNotFound, "NoRollup", f"there is no rollup {name!r}; it may be past its retention")
        return web.FileResponse(path, headers={"Content-Type": "application/vnd.apache.parquet"})

    async def put(self, request: web.Request) -> web.StreamResponse:
        """Keep a file: 201, or 200 if the same bytes are there already."""
        name = request.match_info["name"]
        content = await request.read()
        now_ms = int(self.now().timestamp() * 1000)
        return await put_reply(name, "rollup", f"rollup {name}", self._put(name, content, now_ms))

    async def _put(self, name: str, content: bytes, now_ms: int) -> bool:
        async with self._writing:
            return await asyncio.to_thread(self.store.put, name, content, now_ms)
