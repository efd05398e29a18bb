"""The API server in memory, over HTTP: as much of the Kubernetes API as the operator and kopf ask for.

It lists in pages, watches with bookmarks, and takes what the operator writes. For a whole operator in a test without a
cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from aiohttp import web
from support.api_server_in_memory import ApiServerInMemory

from penstock_operator.cluster.api_server import API_RESOURCES, ApiResource, KubeError

__all__ = ["kubeconfig_for", "serving"]

_VERBS: Final = ["get", "list", "watch", "create", "patch", "update", "delete"]
_OPTIONAL: Final = frozenset({"Certificate", "ScheduledSparkApplication", "SparkApplication"})
_TURN_SECONDS: Final = 0.02


@asynccontextmanager
async def serving(api: ApiServerInMemory) -> AsyncGenerator[str]:
    """Serve it at the URL that is given."""
    api.changes = []
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _Server(api).answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def kubeconfig_for(url: str, path: Path) -> str:
    """Write a kubeconfig for an API server without TLS; its path."""
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


class _Server:
    def __init__(self, api: ApiServerInMemory) -> None:
        self._api = api

    async def answer(self, request: web.Request) -> web.StreamResponse:
        try:
            found = _discovery(self._api, request.path)
            if found is not None:
                return web.json_response(found)
            return await self._about_objects(request)
        except KubeError as error:
            return _status(error.status, error.said)

    async def _about_objects(self, request: web.Request) -> web.StreamResponse:
        place = _place(request.path)
        if place is None:
            document = await self._api.document(request.path)
            return _status(404, "there is no such path") if document is None else web.json_response(document)
        kind, namespace, name, subresource = place
        if request.method == "GET" and name is None:
            is_watch = request.query.get("watch") == "true"
            return await (self._watch if is_watch else self._list)(request, kind, namespace)
        if request.method == "GET":
            found = await self._api.get(kind, namespace, str(name))
            return _status(404, f"there is no {kind.kind} {name}") if found is None else web.json_response(found)
        return await self._write(request, kind, namespace, name, subresource)

    async def _write(
        self, request: web.Request, kind: ApiResource, namespace: str | None, name: str | None, subresource: str | None
    ) -> web.StreamResponse:
        body: Any = await request.json()
        there: Any = self._api.objects.get((kind.kind, namespace or "", name or ""))
        if request.method == "POST":
            return web.json_response(await self._api.create(body), status=201)
        if request.method == "PUT":
            return web.json_response(await self._api.replace(body))
        if request.method == "DELETE":
            if there is None:
                return _status(404, "it is gone")
            await self._api.delete(there)
            return web.json_response({"kind": "Status", "status": "Success"})
        if request.content_type == "application/json-patch+json":
            if there is None:
                return _status(404, "it is gone")
            return await self._patch(there, body)
        if subresource == "status":
            manager = request.query["fieldManager"]
            unchanged = "resourceVersion" in body["metadata"]
            return web.json_response(await self._api.apply_status(body, body["status"], manager, unchanged=unchanged))
        return web.json_response(await self._api.apply(body))

    async def _patch(self, there: Any, patch: Any) -> web.Response:
        """A JSON patch: tests, and one change behind them."""
        *tests, change = patch
        if any(_at(there, test["path"]) != test["value"] for test in tests):
            return _status(422, "the server rejected our request due to an error in our request")
        if there["kind"] == "Lease":
            lease = {**there, "spec": change["value"]}
            return web.json_response(await self._api.replace_held(lease, there["spec"]["holderIdentity"]))
        finalizers = change.get("value")
        if change["op"] == "remove":
            gone = _at(there, change["path"])
            finalizers = [name for name in there["metadata"]["finalizers"] if name != gone]
        return web.json_response(await self._api.set_finalizers(there, finalizers))

    async def _list(self, request: web.Request, kind: ApiResource, namespace: str | None) -> web.Response:
        labels, limit = request.query.get("labelSelector", ""), int(request.query.get("limit", "500"))
        version, _, start = request.query.get("continue", f"{self._api.version}:0").partition(":")
        found = [it async for it in self._api.list(kind, namespace, labels, request.query.get("fieldSelector", ""))]
        page, rest = found[int(start) : int(start) + limit], found[int(start) + limit :]
        about = {"resourceVersion": version, **({"continue": f"{version}:{int(start) + limit}"} if rest else {})}
        return web.json_response({"kind": f"{kind.kind}List", "metadata": about, "items": page})

    async def _watch(self, request: web.Request, kind: ApiResource, namespace: str | None) -> web.StreamResponse:
        """Tell all changes after a version; a bookmark at once and every second."""
        since, seconds = int(request.query["resourceVersion"]), int(request.query.get("timeoutSeconds", "300"))
        labels = dict(part.split("=") for part in request.query.get("labelSelector", "").split(",") if part)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError):  # the client has gone
            await self._tell_changes(response, kind, namespace, labels, since, seconds)
        return response

    async def _tell_changes(
        self,
        response: web.StreamResponse,
        kind: ApiResource,
        namespace: str | None,
        labels: dict[str, str],
        since: int,
        seconds: float,
    ) -> None:
        loop, told, turns = asyncio.get_running_loop(), 0, 0
        end = loop.time() + seconds
        changes = self._api.changes
        assert changes is not None
        while loop.time() < end:
            while told < len(changes):
                version, type_, manifest = changes[told]
                told += 1
                about = manifest["metadata"]
                is_here = manifest["kind"] == kind.kind and namespace in (None, about["namespace"])
                if version > since and is_here and labels.items() <= about.get("labels", {}).items():
                    await _send(response, {"type": type_, "object": manifest})
            if turns % 50 == 0:
                mark = {"kind": kind.kind, "metadata": {"resourceVersion": str(max(since, self._api.version))}}
                await _send(response, {"type": "BOOKMARK", "object": {"apiVersion": kind.api_version, **mark}})
            turns += 1
            await asyncio.sleep(_TURN_SECONDS)


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(json.dumps(event).encode() + b"\n")


def _at(found: Any, path: str) -> Any:
    """What is at a JSON pointer; None if nothing is."""
    for step in path.split("/")[1:]:
        try:
            found = found[int(step) if step.isdecimal() else step]
        except (KeyError, IndexError):
            return None
    return found


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "status": "Failure", "code": code, "message": message}, status=code)


def _served(api: ApiServerInMemory) -> list[ApiResource]:
    return [it for it in API_RESOURCES.values() if it.kind not in _OPTIONAL or it.kind in api.served]


def _discovery(api: ApiServerInMemory, path: str) -> dict[str, Any] | None:
    """What the API server says about itself at this path; None if that is something else."""
    versions = sorted({it.api_version for it in _served(api)})
    if path == "/api":
        return {"versions": ["v1"]}
    if path == "/apis":
        groups = [version.split("/") for version in versions if "/" in version]
        return {
            "groups": [
                {"name": group, "preferredVersion": {"version": version}, "versions": [{"version": version}]}
                for group, version in groups
            ]
        }
    version = path.removeprefix("/apis/") if path.startswith("/apis/") else path.removeprefix("/api/")
    if version not in versions:
        return None
    return {
        "resources": [
            {"name": it.plural, "singularName": "", "kind": it.kind, "namespaced": it.namespaced, "verbs": _VERBS}
            for it in _served(api)
            if it.api_version == version
        ]
    }


def _place(path: str) -> tuple[ApiResource, str | None, str | None, str | None] | None:
    """Kind, namespace, name and subresource in a path; None if it is of no kind that is known."""
    for kind in API_RESOURCES.values():
        root = kind.path()
        if kind.namespaced:
            start = root.removesuffix(f"/{kind.plural}") + "/namespaces/"
            namespace, _, rest = path.removeprefix(start).partition("/")
            if path.startswith(start) and rest.split("/")[0] == kind.plural:
                name, subresource, *_ = [*rest.split("/")[1:], None, None]
                return kind, namespace, name, subresource
        if path == root:
            return kind, None, None, None
        if not kind.namespaced and path.startswith(f"{root}/") and path.count("/") == root.count("/") + 1:
            return kind, None, path.rpartition("/")[2], None
    return None
