"""The API server in memory, with answers that a real one gives at times: conflicts, overload, errors, lost answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from support.api_server_in_memory import PAGE, ApiServerInMemory

from penstock_operator.cluster.api_server import ApiResource, Conflict, KubeError
from penstock_operator.cluster.server_errors import TOO_MANY_REQUESTS
from penstock_operator.manifest import Manifest

__all__ = ["Fault", "FaultyApiServer"]

T = TypeVar("T")
CONFLICT = 409


class Fault(NamedTuple):
    """What a request gets instead of its answer."""

    status: int
    """0: no answer, the connection is lost."""
    done: bool
    """What was asked has been done nevertheless."""


@dataclass(slots=True)
class FaultyApiServer(ApiServerInMemory):
    """Each request takes the next of `faults`, if there is one."""

    faults: list[Fault | None] = field(default_factory=list["Fault | None"])
    """None lets one request through."""
    retry_after_seconds: float = 1
    """What it asks for with status 429."""
    happened: int = 0
    """Faults that some request has met."""

    async def get(self, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        return await self._answer(ApiServerInMemory.get(self, kind, namespace, name))

    async def list(
        self, kind: ApiResource, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Manifest]:
        number = 0
        async for manifest in ApiServerInMemory.list(self, kind, namespace, labels, fields):
            # A list is often cut behind its first object: it must not count as complete then.
            if number % PAGE < 2:
                await self._answer(_nothing())
            number += 1
            yield manifest
        if number == 0:
            await self._answer(_nothing())

    async def apply(self, manifest: Manifest) -> Manifest:
        return await self._answer(ApiServerInMemory.apply(self, manifest))

    async def apply_status(
        self, resource: Manifest, status: Manifest, manager: str, *, unchanged: bool = False
    ) -> Manifest:
        return await self._answer(ApiServerInMemory.apply_status(self, resource, status, manager, unchanged=unchanged))

    async def set_finalizers(self, resource: Manifest, finalizers: Sequence[str]) -> Manifest | None:
        return await self._answer(ApiServerInMemory.set_finalizers(self, resource, finalizers))

    async def create(self, manifest: Manifest) -> Manifest:
        return await self._answer(ApiServerInMemory.create(self, manifest))

    async def delete(self, manifest: Manifest, *, orphan: bool = False) -> None:
        await self._answer(ApiServerInMemory.delete(self, manifest, orphan=orphan))

    async def document(self, path: str) -> Manifest | None:
        return await self._answer(ApiServerInMemory.document(self, path))

    async def serves(self, kind: ApiResource) -> bool:
        return await self._answer(ApiServerInMemory.serves(self, kind))

    async def _answer(self, request: Coroutine[Any, Any, T]) -> T:
        fault = self.faults.pop(0) if self.faults else None
        if fault is None:
            return await request
        self.happened += 1
        if fault.done:
            await request
        else:
            request.close()
        if fault.status == CONFLICT:
            raise Conflict(fault.status, "the object has been modified")
        wait = self.retry_after_seconds if fault.status == TOO_MANY_REQUESTS else None
        raise KubeError(fault.status, "injected", retry_after_seconds=wait)


async def _nothing() -> None:
    return
