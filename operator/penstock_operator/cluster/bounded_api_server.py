"""`ApiServer` for many workers that ask at the same time: no more requests are on the way than it answers well.

The others wait here, in the order in which they came. Lists, of which there is one at a time, do not wait. Source:
docs/decisions/129-the-process-goes-on.md.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock_operator.cluster.api_server import ApiResource, ApiServer, KubeError
from penstock_operator.cluster.server_errors import INTERNAL_ERROR, TOO_MANY_REQUESTS
from penstock_operator.manifest import Manifest
from penstock_operator.plans.request_window import RequestWindow

__all__ = ["BoundedApiServer"]

AnswerT = TypeVar("AnswerT")


@dataclass(slots=True)
class BoundedApiServer:
    """Every method raises KubeError."""

    server: ApiServer
    window: RequestWindow = field(default_factory=RequestWindow)
    _under_way: int = 0
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque[asyncio.Future[None]])

    async def get(self, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        """The object, None if there is none."""
        return await self._in_turn(lambda: self.server.get(kind, namespace, name))

    def list(
        self, kind: ApiResource, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Manifest]:
        """All objects of a kind, page by page."""
        return self.server.list(kind, namespace, labels, fields)

    async def apply(self, manifest: Manifest) -> Manifest:
        """Server-side apply of a child."""
        return await self._in_turn(lambda: self.server.apply(manifest))

    async def apply_status(
        self, resource: Manifest, status: Manifest, manager: str, *, unchanged: bool = False
    ) -> Manifest:
        """Server-side apply of the status fields of `manager`."""
        return await self._in_turn(lambda: self.server.apply_status(resource, status, manager, unchanged=unchanged))

    async def set_finalizers(self, resource: Manifest, finalizers: Sequence[str]) -> Manifest | None:
        """Replace the finalizers."""
        return await self._in_turn(lambda: self.server.set_finalizers(resource, finalizers))

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object that is never updated."""
        return await self._in_turn(lambda: self.server.create(manifest))

    async def delete(self, manifest: Manifest, *, orphan: bool = False) -> None:
        """Delete the object with this name and uid."""
        await self._in_turn(lambda: self.server.delete(manifest, orphan=orphan))

    async def document(self, path: str) -> Manifest | None:
        """The document at a path that is not an object's."""
        return await self.server.document(path)

    async def serves(self, kind: ApiResource) -> bool:
        """Whether the cluster has this kind."""
        return await self.server.serves(kind)

    async def _in_turn(self, request: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """The answer to a request, which begins when it may."""
        await self._wait()
        now = asyncio.get_running_loop().time
        began = now()
        try:
            answer = await request()
        except KubeError as error:
            if error.status in (0, TOO_MANY_REQUESTS) or error.status >= INTERNAL_ERROR:
                self.window.refused()
            raise
        else:
            self.window.answered(now() - began)
            return answer
        finally:
            self._end()

    async def _wait(self) -> None:
        if self._under_way < self.window.limit:
            self._under_way += 1
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(admitted)
        try:
            await admitted
        except asyncio.CancelledError:
            if not admitted.cancelled():  # it was admitted in the same turn
                self._end()
            raise

    def _end(self) -> None:
        self._under_way -= 1
        while self._waiting and self._under_way < self.window.limit:
            admitted = self._waiting.popleft()
            if not admitted.done():  # else whoever waited has ended
                self._under_way += 1
                admitted.set_result(None)
