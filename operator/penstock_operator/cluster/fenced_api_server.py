"""`ApiServer` for an operator that may write only while it leads.

A process that stood still for longer than its lease does not know that yet when it goes on. So each write looks at the
clock first; `HttpApiServer.may_write` looks again at the socket. Source: docs/decisions/106-one-operator-leads.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from penstock_operator.cluster.api_server import ApiResource, ApiServer, KubeError
from penstock_operator.cluster.server_errors import NOT_SENT
from penstock_operator.manifest import Manifest

__all__ = ["FencedApiServer"]


@dataclass(frozen=True, slots=True)
class FencedApiServer:
    """Reads always; a write raises KubeError with status 0 while the operator does not lead."""

    server: ApiServer
    leads: Callable[[], bool]

    async def get(self, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        """The object, None if there is none."""
        return await self.server.get(kind, namespace, name)

    def list(
        self, kind: ApiResource, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Manifest]:
        """All objects of a kind, page by page."""
        return self.server.list(kind, namespace, labels, fields)

    async def apply(self, manifest: Manifest) -> Manifest:
        """Server-side apply of a child."""
        self._check()
        return await self.server.apply(manifest)

    async def apply_status(
        self, resource: Manifest, status: Manifest, manager: str, *, unchanged: bool = False
    ) -> Manifest:
        """Server-side apply of the status fields of `manager`."""
        self._check()
        return await self.server.apply_status(resource, status, manager, unchanged=unchanged)

    async def set_finalizers(self, resource: Manifest, finalizers: Sequence[str]) -> Manifest | None:
        """Replace the finalizers."""
        self._check()
        return await self.server.set_finalizers(resource, finalizers)

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object that is never updated."""
        self._check()
        return await self.server.create(manifest)

    async def delete(self, manifest: Manifest, *, orphan: bool = False) -> None:
        """Delete the object with this name and uid."""
        self._check()
        await self.server.delete(manifest, orphan=orphan)

    async def document(self, path: str) -> Manifest | None:
        """The document at a path that is not an object's."""
        return await self.server.document(path)

    async def serves(self, kind: ApiResource) -> bool:
        """Whether the cluster has this kind."""
        return await self.server.serves(kind)

    def _check(self) -> None:
        if not self.leads():
            raise KubeError(0, NOT_SENT)
