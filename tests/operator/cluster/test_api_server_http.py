"""The client of the API server against an HTTP server in this process: selectors, errors, how long it asks to wait."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from aiohttp.http_writer import StreamWriter
from kubernetes.aio.config import ConfigException
from support.api_server_over_http import kubeconfig_for

from penstock_operator import names
from penstock_operator.cluster.api_server import API_RESOURCES
from penstock_operator.cluster.api_server_http import HttpApiServer
from penstock_operator.cluster.fenced_api_server import FencedApiServer
from penstock_operator.cluster.server_errors import Conflict, KubeError
from penstock_operator.manifest import Manifest

EXCHANGE: dict[str, Any] = {
    "apiVersion": "penstock.dev/v1alpha1",
    "kind": "Exchange",
    "metadata": {"name": "orders", "namespace": "shop", "uid": "u1", "resourceVersion": "7"},
}


@dataclass
class Server:
    """Answers everything in the same way, and remembers the queries."""

    status: int = 200
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    queries: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    bodies: list[str] = field(default_factory=list[str])
    agents: list[str] = field(default_factory=list[str])
    types: list[str] = field(default_factory=list[str])
    """The media types of the bodies."""
    page: str = ""
    """A text to answer with, in place of `body`."""

    methods: list[str] = field(default_factory=list[str])
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    """Not set: requests wait for their answers."""

    def __post_init__(self) -> None:
        self.answering.set()

    async def answer(self, request: web.Request) -> web.Response:
        self.methods.append(request.method)
        await self.answering.wait()
        self.queries.append(dict(request.query))
        self.bodies.append(await request.text())
        self.agents.append(request.headers["User-Agent"])
        self.types.append(request.content_type)
        if self.page:
            return web.Response(text=self.page, content_type="text/html", status=self.status)
        return web.json_response(self.body, status=self.status, headers=self.headers)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest_asyncio.fixture
async def api(server: Server, tmp_path: Path) -> AsyncIterator[HttpApiServer]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": f"http://{host}:{port}"}}],
        "users": [{"name": "me", "user": {}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    made = await HttpApiServer.connect(str(tmp_path / "kubeconfig"))
    yield made
    await made.close()
    await runner.cleanup()


async def test_children_are_listed_by_their_label(api: HttpApiServer, server: Server) -> None:
    server.body = {"items": [{"metadata": {"name": "orders-x"}}]}
    found = [each async for each in api.list(API_RESOURCES["Service"], "shop", names.MANAGED_BY)]
    assert found == [{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "orders-x"}}]
    assert server.queries == [{"limit": "500", "labelSelector": "app.kubernetes.io/managed-by=penstock-operator"}]
    _ = [each async for each in api.list(API_RESOURCES["Exchange"])]
    assert server.queries[1] == {"limit": "500"}


async def test_requests_say_who_sends_them(api: HttpApiServer, server: Server) -> None:
    """`metadata.managedFields` of a write without a field manager, and the audit log, show it."""
    await api.set_finalizers(EXCHANGE, ["penstock.dev/topology"])
    _ = [each async for each in api.list(API_RESOURCES["Exchange"])]
    assert server.agents == [f"penstock-operator/{version('penstock')}"] * 2


async def test_a_write_that_waits_for_a_connection_is_not_sent_by_who_does_not_lead_any_more(
    api: HttpApiServer, server: Server
) -> None:
    """A process that stood still meanwhile goes on with it when another one leads already."""
    leads, server.body = True, EXCHANGE
    api.may_write = lambda: leads
    fenced = FencedApiServer(api, lambda: leads)
    server.answering.clear()
    reading = [asyncio.create_task(fenced.get(API_RESOURCES["Service"], "shop", "orders-x")) for _ in range(64)]
    while len(server.methods) < 64:
        await asyncio.sleep(0.01)
    writing = asyncio.create_task(fenced.set_finalizers(EXCHANGE, ["penstock.dev/topology"]))
    await asyncio.sleep(0.1)
    assert set(server.methods) == {"GET"}, "all connections are in use"
    leads = False
    server.answering.set()
    with pytest.raises(KubeError) as raised:
        await writing
    assert (raised.value.status, str(raised.value)) == (
        0,
        "this operator does not lead any more, so it writes nothing",
    )
    await asyncio.gather(*reading)
    assert set(server.methods) == {"GET"}
    leads = True
    await fenced.set_finalizers(EXCHANGE, ["penstock.dev/topology"])
    assert server.methods[-1] == "PATCH"


WRITES: dict[str, Callable[[HttpApiServer], Awaitable[object]]] = {
    "PATCH of a child": lambda api: api.apply(EXCHANGE),
    "PATCH of a status": lambda api: api.apply_status(EXCHANGE, {}, "penstock-operator"),
    "PATCH of finalizers": lambda api: api.set_finalizers(EXCHANGE, []),
    "POST": lambda api: api.create(EXCHANGE),
    "PUT": lambda api: api.replace(EXCHANGE),
    "DELETE": lambda api: api.delete(EXCHANGE),
}


@pytest.mark.parametrize("name", WRITES)
async def test_no_write_leaves_without_leave(api: HttpApiServer, server: Server, name: str) -> None:
    server.body = EXCHANGE
    api.may_write = lambda: False
    with pytest.raises(KubeError, match="does not lead any more"):
        await WRITES[name](api)
    assert server.methods == []
    assert await api.get(API_RESOURCES["Exchange"], "shop", "orders") == EXCHANGE
    api.may_write = lambda: True
    await WRITES[name](api)
    assert server.methods == ["GET", name.split()[0]]


async def test_nothing_comes_between_the_leave_and_the_bytes(
    api: HttpApiServer, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped while it has much to do is often stopped between two turns of its loop."""
    seen: list[str] = []

    def may_write() -> bool:
        seen.append("asked")
        asyncio.get_running_loop().call_soon(seen.append, "another turn")
        return True

    for name in ("_write", "_writelines"):
        really = getattr(StreamWriter, name)

        def write(writer: StreamWriter, data: Any, really: Callable[[StreamWriter, Any], None] = really) -> None:
            seen.append("sent")
            really(writer, data)

        monkeypatch.setattr(StreamWriter, name, write)
    server.body, api.may_write = EXCHANGE, may_write
    await api.set_finalizers(EXCHANGE, ["penstock.dev/topology"])
    assert seen[:2] == ["asked", "sent"]


async def test_the_server_says_how_long_to_wait(api: HttpApiServer, server: Server) -> None:
    server.status, server.headers, server.body = 429, {"Retry-After": "7"}, {"message": "Too many requests"}
    with pytest.raises(KubeError) as raised:
        await api.get(API_RESOURCES["Service"], "shop", "orders-x")
    assert (raised.value.status, raised.value.retry_after_seconds) == (429, 7)
    assert str(raised.value) == "429: GET /api/v1/namespaces/shop/services/orders-x: Too many requests"


@pytest.mark.parametrize("there", [None, ["theirs.example/hold"]])
async def test_finalizers_are_replaced_whatever_else_of_the_object_changed(
    api: HttpApiServer, server: Server, there: list[str] | None
) -> None:
    """JSON patch takes null for what is absent."""
    metadata = {"name": "orders", "namespace": "shop", "uid": "u1", "resourceVersion": "7"}
    seen: Manifest = {**EXCHANGE, "metadata": {**metadata, **({} if there is None else {"finalizers": there})}}
    await api.set_finalizers(seen, [*(there or []), "penstock.dev/topology"])
    assert json.loads(server.bodies[0]) == [
        {"op": "test", "path": "/metadata/uid", "value": "u1"},
        {"op": "test", "path": "/metadata/finalizers", "value": there},
        {"op": "add", "path": "/metadata/finalizers", "value": [*(there or []), "penstock.dev/topology"]},
    ]


async def test_one_finalizer_is_removed_whatever_becomes_of_those_behind_it(api: HttpApiServer, server: Server) -> None:
    metadata = {"name": "orders", "namespace": "shop", "uid": "u1", "resourceVersion": "7"}
    finalizers = ["theirs.example/hold", "penstock.dev/topology", "foregroundDeletion"]
    seen: Manifest = {**EXCHANGE, "metadata": {**metadata, "finalizers": finalizers}}
    await api.set_finalizers(seen, ["theirs.example/hold", "foregroundDeletion"])
    assert json.loads(server.bodies[0]) == [
        {"op": "test", "path": "/metadata/uid", "value": "u1"},
        {"op": "test", "path": "/metadata/finalizers/1", "value": "penstock.dev/topology"},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]


async def test_a_change_by_somebody_else_meanwhile_is_a_conflict(api: HttpApiServer, server: Server) -> None:
    server.status, server.body = 422, {"message": "the server rejected our request due to an error in our request"}
    with pytest.raises(Conflict) as raised:
        await api.set_finalizers(EXCHANGE, ["penstock.dev/topology"])
    assert raised.value.refusal is None


async def test_the_spec_of_a_lease_is_replaced_only_if_it_still_names_its_holder(
    api: HttpApiServer, server: Server
) -> None:
    lease: Manifest = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "penstock", "namespace": "system", "resourceVersion": "7"},
        "spec": {"leaseDurationSeconds": 1},
    }
    await api.replace_held(lease, "pod-a")
    assert json.loads(server.bodies[-1]) == [
        {"op": "test", "path": "/spec/holderIdentity", "value": "pod-a"},
        {"op": "replace", "path": "/spec", "value": {"leaseDurationSeconds": 1}},
    ]
    server.status, server.body = 422, {"message": "the server rejected our request due to an error in our request"}
    with pytest.raises(Conflict):
        await api.replace_held(lease, "pod-a")


async def test_a_policy_that_denies_the_finalizer_is_a_refusal(api: HttpApiServer, server: Server) -> None:
    server.status = 422
    server.body = {"message": "exchanges \"orders\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no"}
    with pytest.raises(KubeError) as raised:
        await api.set_finalizers(EXCHANGE, ["penstock.dev/topology"])
    assert raised.value.refusal is not None
    assert str(raised.value.refusal.reason) == "DeniedByAdmission"


async def test_no_request_looks_for_a_password_in_netrc(api: HttpApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would ask another thread for it, each time."""
    asked: list[str] = []

    def ask(_: object, host: str) -> None:
        asked.append(host)

    monkeypatch.setattr(aiohttp.ClientSession, "_get_netrc_auth", ask)
    await api.get(API_RESOURCES["Exchange"], "shop", "orders")
    assert asked == []


async def test_a_status_for_an_unchanged_object_names_its_version(api: HttpApiServer, server: Server) -> None:
    await api.apply_status(EXCHANGE, {}, names.MANAGER)
    await api.apply_status(EXCHANGE, {}, names.MANAGER, unchanged=True)
    first, second = (json.loads(body)["metadata"] for body in server.bodies)
    assert "resourceVersion" not in first
    assert second["resourceVersion"] == "7"


@pytest.mark.parametrize("said", ["\x7f", "\U0001f680 \u6f22 \x00 \x7f \x85 \ufeff \uffff", '\\ud83d\\ude80 \\ " \n'])
async def test_what_is_applied_is_yaml_as_the_api_server_reads_it(
    api: HttpApiServer, server: Server, said: str
) -> None:
    """It refuses JSON's two escapes for one character beyond U+FFFF, which is in client-ids, for example; and as they
    are, characters that YAML calls not printable.
    """
    await api.apply_status(EXCHANGE, {"exchangeName": said}, names.MANAGER)
    await api.apply({**EXCHANGE, "kind": "Service", "said": said})
    first, second = server.bodies
    assert json.loads(first)["status"]["exchangeName"] == json.loads(second)["said"] == said
    for body in server.bodies:
        assert re.search(r"(?<!\\)(\\\\)*\\ud[89ab]", body) is None
        assert re.search("[\x00-\x1f\x7f-\x9f\ufeff\ufffe\uffff]", body) is None
    assert server.types == ["application/apply-patch+yaml"] * 2


async def test_an_answer_that_is_no_json_is_a_failure_that_may_pass(api: HttpApiServer, server: Server) -> None:
    """A proxy before the API server may answer 200 with a page of its own."""
    server.page = "<html>Back soon</html>"
    with pytest.raises(KubeError) as raised:
        await api.get(API_RESOURCES["Exchange"], "shop", "orders")
    assert raised.value.is_passing
    assert raised.value.refusal is None
    assert "no JSON" in str(raised.value)


async def test_that_nobody_listens_is_told_in_words(tmp_path: Path) -> None:
    api = await HttpApiServer.connect(kubeconfig_for("http://127.0.0.1:1", tmp_path / "kubeconfig"))
    with pytest.raises(KubeError) as raised:
        await api.get(API_RESOURCES["Exchange"], "shop", "orders")
    assert str(raised.value) == "the Kubernetes API server can't be reached: nothing listens there"
    assert raised.value.is_passing
    await api.close()


@pytest.mark.parametrize("failure", [ConfigException("Token file exists but empty."), OSError(5, "Input/output error")])
async def test_a_token_that_can_t_be_read_now_is_a_failure_that_may_pass(
    api: HttpApiServer, failure: Exception
) -> None:
    """The client reads the file of the token again each minute, before the request."""

    def refresh(_: object) -> None:
        raise failure

    configuration = cast(Any, api)._api.configuration
    configuration.api_key["BearerToken"] = "Bearer a-token"
    configuration.refresh_api_key_hook = refresh
    with pytest.raises(KubeError) as raised:
        await api.get(API_RESOURCES["Exchange"], "shop", "orders")
    assert raised.value.is_passing
