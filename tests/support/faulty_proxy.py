"""An HTTP proxy before an API server that does to requests what networks and overloaded servers do.

What happens to a request is drawn from a seed, so that a run can be repeated. It works before any API server: one in
memory, or a real one whose TLS and credentials are given in `session`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import aiohttp
from aiohttp import web

__all__ = ["Fault", "Faults", "serving_faults"]

RETRY_AFTER_SECONDS: Final = 1


class Fault(Enum):
    """What happens to a request."""

    CONFLICT = 409
    """A write is refused, because somebody else wrote first."""
    GONE = 410
    """The version or the next page that a list or a watch asks for is too old; a watch learns it as an event."""
    TOO_MANY = 429
    """With Retry-After."""
    SERVER_ERROR = 500
    CUT = "cut"
    """The connection is cut: in the middle of a line or of a document."""
    HALF_LINE = "half a line"
    """A watch is ended properly, but in the middle of a line."""
    LOST_ANSWER = "lost"
    """The request has its effect, but there is no answer."""
    SLOW = "slow"
    """The answer comes, after a while."""
    SILENT = "silent"
    """A watch is open, and nothing comes any more."""


_OF_WATCHES: Final = (Fault.GONE, Fault.TOO_MANY, Fault.SERVER_ERROR, Fault.CUT, Fault.SLOW)
_OF_READS: Final = (Fault.TOO_MANY, Fault.SERVER_ERROR, Fault.CUT, Fault.SLOW)
_OF_WRITES: Final = (
    Fault.CONFLICT,
    Fault.TOO_MANY,
    Fault.SERVER_ERROR,
    Fault.CUT,
    Fault.LOST_ANSWER,
    Fault.SLOW,
)


@dataclass(slots=True)
class Faults:
    """Which faults happen, and those that have."""

    seed: int
    rate: float = 0.0
    """The part of all requests to which something happens, 0 to 1."""
    slow_seconds: float = 0.5
    always: Callable[[str, str, bool], Fault | None] = lambda _method, _path, _is_watch: None
    """A fault that certainly happens to this request; None: it is drawn."""
    happened: Counter[Fault] = field(default_factory=Counter[Fault])
    requests: list[tuple[float, str, str, Fault | None, bool]] = field(
        default_factory=list[tuple[float, str, str, Fault | None, bool]]
    )
    """When, method, path, what happened, and whether it is a watch."""
    agents: set[str] = field(default_factory=set[str])
    """Who said that it asks."""
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def next(self, method: str, path: str, query: Mapping[str, str]) -> Fault | None:
        """What happens to this request."""
        is_watch = query.get("watch") == "true"
        chosen = self.always(method, path, is_watch)
        if chosen is None and self._random.random() < self.rate:
            kinds = _OF_WATCHES if is_watch else _OF_READS if method == "GET" else _OF_WRITES
            chosen = Fault.GONE if "continue" in query else self._random.choice(kinds)
        if chosen is not None:
            self.happened[chosen] += 1
        self.requests.append((asyncio.get_running_loop().time(), method, path, chosen, is_watch))
        return chosen

    def part(self) -> float:
        """How much of an answer comes before it is cut."""
        return self._random.uniform(0.05, 0.95)


@asynccontextmanager
async def serving_faults(
    server: str, faults: Faults, session: aiohttp.ClientSession | None = None
) -> AsyncGenerator[str]:
    """Serve the API server of that URL with these faults, at the URL that is given."""
    own = session or aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", _Proxy(server, faults, own).answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        if session is None:
            await own.close()


@dataclass(frozen=True, slots=True)
class _Proxy:
    server: str
    faults: Faults
    session: aiohttp.ClientSession

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.faults.agents.add(request.headers["User-Agent"])
        fault = self.faults.next(request.method, request.path, request.query)
        is_watch = request.query.get("watch") == "true"
        if fault is Fault.GONE and is_watch:
            gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}
            return web.json_response(gone)
        if fault in (Fault.CONFLICT, Fault.GONE, Fault.TOO_MANY, Fault.SERVER_ERROR):
            code = int(fault.value)
            headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if fault is Fault.TOO_MANY else {}
            body = {"kind": "Status", "status": "Failure", "code": code, "message": f"injected: {fault.name}"}
            return web.json_response(body, status=code, headers=headers)
        if fault is Fault.SLOW:
            await asyncio.sleep(self.faults.slow_seconds)
        headers = {name: value for name, value in request.headers.items() if name in ("Accept", "Content-Type")}
        async with self.session.request(
            request.method,
            f"{self.server}{request.path_qs}",
            data=await request.read(),
            headers=headers,
            timeout=aiohttp.ClientTimeout(),
        ) as answer:
            if is_watch and answer.status == 200:
                response = web.StreamResponse(headers={"Content-Type": "application/json"})
                await response.prepare(request)
                with contextlib.suppress(ConnectionResetError):  # the client has gone
                    await self._pass_lines(request, response, answer, fault)
                return response
            data = await answer.read()
            if fault is Fault.LOST_ANSWER:
                return _cut(request, web.StreamResponse())
            passed = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            if fault is not Fault.CUT:
                return web.Response(status=answer.status, body=data, headers=passed)
            response = web.StreamResponse(status=answer.status, headers={**passed, "Content-Length": str(len(data))})
            await response.prepare(request)
            await response.write(data[: int(len(data) * self.faults.part())])
            return _cut(request, response)

    async def _pass_lines(
        self, request: web.Request, response: web.StreamResponse, answer: aiohttp.ClientResponse, fault: Fault | None
    ) -> None:
        left = 3 if fault in (Fault.CUT, Fault.HALF_LINE) else None
        buffer = b""
        async for data in answer.content.iter_any():
            if fault is Fault.SILENT:
                continue
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                left = None if left is None else left - 1
                if left == 0:
                    await response.write(line[: int(len(line) * self.faults.part())])
                    if fault is Fault.CUT:
                        _cut(request, response)
                    return
                await response.write(line + b"\n")


def _cut(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """The client's connection is gone, without an end."""
    transport = request.transport
    if transport is not None:
        transport.abort()
    return response
