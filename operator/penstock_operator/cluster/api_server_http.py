"""`ApiServer` over HTTP, and the only module that imports `kubernetes`.

Responses are not parsed with the client's models, which drop fields that they do not know and reject values that they
do not expect.
"""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Self, cast

import aiohttp
from kubernetes.aio import client, config

from penstock_api.connection_failures import connection_failure
from penstock_api.failure import CannotRun
from penstock_operator import names
from penstock_operator.cluster.api_server import ApiResource, Conflict, KubeError, api_resource_of
from penstock_operator.cluster.server_errors import NOT_SENT, error_in
from penstock_operator.manifest import Manifest, items_of, text_at

__all__ = ["HttpApiServer"]


_PAGE: Final = 500
_TIMEOUT_SECONDS: Final = 30
_APPLY: Final = "application/apply-patch+yaml; charset=utf-8"
"""With the name of the charset the client sends the bytes as they are, and writes no JSON of its own."""
_JSON_PATCH: Final = "application/json-patch+json"
_ACCEPTED: Final = "application/json, application/jwk-set+json"
"""The API server serves the public keys of its tokens only as application/jwk-set+json."""
_ESCAPED: Final = re.compile("[\x7f-\uffff]")
_UNREACHABLE: Final = (aiohttp.ClientError, OSError, asyncio.TimeoutError, config.ConfigException)
"""The last one: the file with the token, which the client reads again each minute, can't be read."""


class HttpApiServer:
    """The API server, with a pool of connections."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        self.may_write: Callable[[], bool] = lambda: True
        """Asked once more at the moment in which a write goes to the socket: it may have waited for a connection, and
        the process may have stood still meanwhile.
        """

    @classmethod
    async def connect(cls, kubeconfig: str | None = None) -> Self:
        """Connect with the pod's ServiceAccount, or else with a kubeconfig (`KUBECONFIG`, `~/.kube/config`).

        Raises:
            CannotRun: there is neither.
        """
        configuration = client.Configuration()
        load = cast(Any, config)  # ships no types
        try:
            if kubeconfig is not None:
                await load.load_kube_config(config_file=kubeconfig, client_configuration=configuration)
            else:
                try:
                    load.load_incluster_config(client_configuration=configuration)
                except config.ConfigException:
                    await load.load_kube_config(client_configuration=configuration)
        except (config.ConfigException, OSError) as error:
            raise CannotRun(
                f"No Kubernetes API server is known: {error}.",
                "Run in a pod, or set KUBECONFIG to the path of a kubeconfig file.",
            ) from error
        configuration.connection_pool_maxsize = 64
        # With trust_env each request looks into ~/.netrc, in another thread. What it looks for is not of use: the
        # credentials are those of the kubeconfig.
        cast(Any, configuration).client_session_kwargs = {"trust_env": bool(urllib.request.getproxies())}
        trace = aiohttp.TraceConfig()
        cast(Any, configuration).trace_configs = [trace]
        api = client.ApiClient(configuration)
        # Also names who changed a field: `managedFields` of a write that gives no field manager has what is before "/".
        cast(Any, api).user_agent = names.USER_AGENT
        made = cls(api)
        # In spite of its name the signal comes before the bytes, and the headers go with the first of them.
        trace.on_request_chunk_sent.append(made._about_to_send)
        return made

    async def close(self) -> None:
        """Close the connections."""
        await cast(Any, self._api).close()

    async def get(self, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        """The object, None if there is none."""
        return await self._request("GET", kind.path(namespace, name), missing_ok=True)

    async def list(
        self, kind: ApiResource, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Manifest]:
        """All objects of a kind, or those that a selector of labels or of fields chooses, page by page. Raises if the
        list expires meanwhile; the caller then starts again.
        """
        token = ""
        while True:
            selectors = {"labelSelector": labels, "fieldSelector": fields}
            query = {"limit": str(_PAGE), **{name: value for name, value in selectors.items() if value}}
            if token:
                query["continue"] = token
            page = await self._request("GET", kind.path(namespace), query=query)
            for item in items_of(page, "items"):
                # The items of a list come without apiVersion and kind.
                yield {"apiVersion": kind.api_version, "kind": kind.kind, **item}
            token = text_at(page, "metadata", "continue") or ""
            if not token:
                return

    async def apply(self, manifest: Manifest) -> Manifest:
        """Server-side apply of a child as field manager `penstock-operator`; it takes back changes to its fields."""
        about = cast(Manifest, manifest["metadata"])
        path = api_resource_of(manifest).path(str(about["namespace"]), str(about["name"]))
        query = {"fieldManager": names.MANAGER, "force": "true"}
        return _some(await self._request("PATCH", path, query=query, body=manifest, content=_APPLY))

    async def apply_status(
        self, resource: Manifest, status: Manifest, manager: str, *, unchanged: bool = False
    ) -> Manifest:
        """Server-side apply of the status fields of `manager`.

        Raises:
            Conflict: the resource was deleted and created again meanwhile, or changed although it had to be unchanged.
        """
        about = cast(Manifest, resource["metadata"])
        version = {"resourceVersion": about["resourceVersion"]} if unchanged else {}
        body: Manifest = {
            "apiVersion": resource["apiVersion"],
            "kind": resource["kind"],
            "metadata": {"name": about["name"], "namespace": about["namespace"], "uid": about["uid"], **version},
            "status": status,
        }
        path = api_resource_of(resource).path(str(about["namespace"]), str(about["name"]), "status")
        query = {"fieldManager": manager, "force": "true"}
        return _some(await self._request("PATCH", path, query=query, body=body, content=_APPLY))

    async def set_finalizers(self, resource: Manifest, finalizers: Sequence[str]) -> Manifest | None:
        """Replace the finalizers; return the object, None if that deleted it. What else was changed meanwhile does not
        matter, and if one is removed, nor do the others: the garbage collector removes its own at the same time.

        Raises:
            Conflict: the object has other finalizers than `resource`, or is another one of this name.
        """
        about = cast(Manifest, resource["metadata"])
        path = api_resource_of(resource).path(str(about["namespace"]), str(about["name"]))
        patch = [{"op": "test", "path": "/metadata/uid", "value": about["uid"]}, *_finalizer_patch(about, finalizers)]
        return await self._tested_patch(path, patch, missing_ok=True)

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object that is never updated, such as an Event."""
        about = cast(Manifest, manifest["metadata"])
        return _some(
            await self._request("POST", api_resource_of(manifest).path(str(about["namespace"])), body=manifest)
        )

    async def replace(self, manifest: Manifest) -> Manifest:
        """Replace an object that only operators write, such as the Lease.

        Raises:
            Conflict: its resource version is not the newest: another client changed it meanwhile.
        """
        about = cast(Manifest, manifest["metadata"])
        path = api_resource_of(manifest).path(str(about["namespace"]), str(about["name"]))
        return _some(await self._request("PUT", path, body=manifest))

    async def replace_held(self, manifest: Manifest, holder: str) -> Manifest:
        """Replace the spec of a Lease, whatever its resource version.

        Raises:
            Conflict: it does not name this holder, or any.
        """
        about = cast(Manifest, manifest["metadata"])
        patch = [
            {"op": "test", "path": "/spec/holderIdentity", "value": holder},
            {"op": "replace", "path": "/spec", "value": manifest["spec"]},
        ]
        path = api_resource_of(manifest).path(str(about["namespace"]), str(about["name"]))
        return _some(await self._tested_patch(path, patch))

    async def delete(self, manifest: Manifest, *, orphan: bool = False) -> None:
        """Delete the object with this name and uid; no error if it does not exist. `orphan`: what it owns stays."""
        about = cast(Manifest, manifest["metadata"])
        policy = "Orphan" if orphan else "Background"
        body = {"preconditions": {"uid": about["uid"]}, "propagationPolicy": policy}
        path = api_resource_of(manifest).path(str(about["namespace"]), str(about["name"]))
        await self._request("DELETE", path, body=body, missing_ok=True)

    async def document(self, path: str) -> Manifest | None:
        """The document at a path that is not an object's, None if there is none."""
        return await self._request("GET", path, missing_ok=True)

    async def serves(self, kind: ApiResource) -> bool:
        """Whether the cluster has this kind."""
        group = await self._request("GET", f"/apis/{kind.api_version}", missing_ok=True)
        return any(found.get("name") == kind.plural for found in items_of(group, "resources"))

    async def _about_to_send(self, _session: object, _context: object, _: aiohttp.TraceRequestChunkSentParams) -> None:
        """A request with a body, as each write is, goes to the socket now, without another turn of the loop."""
        if not self.may_write():
            raise KubeError(0, NOT_SENT)

    async def _tested_patch(self, path: str, patch: object, *, missing_ok: bool = False) -> Manifest | None:
        """A JSON patch; Conflict if its test fails."""
        try:
            return await self._request("PATCH", path, body=patch, content=_JSON_PATCH, missing_ok=missing_ok)
        except KubeError as error:
            # The API server answers 422 if the test of the patch fails, and also if an admission policy denies it.
            is_test = error.status == 422 and " denied " not in error.said
            raise Conflict(409, error.said) if is_test else error from error

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content: str = "application/json",
        missing_ok: bool = False,
    ) -> Manifest | None:
        # The client has no types. The callers get a map or an exception.
        api = cast(Any, self._api)
        headers = {"Accept": _ACCEPTED, "Content-Type": content}
        sent = _yaml(body) if content == _APPLY else body
        try:
            request = await api.param_serialize(
                method,
                path,
                query_params=list((query or {}).items()),
                header_params=headers,
                auth_settings=["BearerToken"],
            )
            verb, url, sent_headers, *_ = request
            response = await api.call_api(verb, url, sent_headers, sent, _request_timeout=_TIMEOUT_SECONDS)
            await response.read()
        except _UNREACHABLE as error:
            if isinstance(error.__cause__, KubeError):
                raise error.__cause__ from error
            cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
            raise KubeError(0, f"the Kubernetes API server can't be reached: {connection_failure(cause)}") from error
        status, data = int(response.status), bytes(response.data or b"")
        if 200 <= status < 300:
            return _document(data, f"{method} {path}")
        if status == 404 and missing_ok:
            return None
        raise error_in(status, data, response.headers, f"{method} {path}")


def _finalizer_patch(about: Manifest, finalizers: Sequence[str]) -> list[Manifest]:
    """A JSON patch from the finalizers in this metadata to others."""
    before = cast("list[str] | None", about.get("finalizers"))
    gone = [place for place, name in enumerate(before or ()) if name not in finalizers]
    if before is not None and len(gone) == 1 and len(finalizers) == len(before) - 1:
        place = f"/metadata/finalizers/{gone[0]}"
        return [{"op": "test", "path": place, "value": before[gone[0]]}, {"op": "remove", "path": place}]
    place = "/metadata/finalizers"
    # null stands for what is absent.
    return [{"op": "test", "path": place, "value": before}, {"op": "add", "path": place, "value": [*finalizers]}]


def _yaml(body: object) -> bytes:
    """JSON that is YAML as the API server reads it: of a character beyond U+FFFF it does not know JSON's two escapes,
    and what YAML calls not printable has to be escaped.
    """
    return _ESCAPED.sub(_escape, json.dumps(body, ensure_ascii=False)).encode()


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _document(data: bytes, request: str) -> Manifest:
    """The object in an answer. A proxy before the API server may have answered with a page of its own."""
    try:
        return cast(Manifest, json.loads(data)) if data else {}
    except ValueError as error:
        raise KubeError(0, f"{request}: the answer is no JSON: {data[:100]!r}") from error


def _some(response: Manifest | None) -> Manifest:
    assert response is not None, "only a request with missing_ok may return nothing"
    return response
