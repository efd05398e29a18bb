"""/livez, /readyz and /metrics of the operator. Live is real: it lists, its watches hear, and no worker hangs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web

from penstock_operator.cluster.controller import Controller
from penstock_operator.metrics import Metrics
from penstock_operator.settings import OperatorSettings

__all__ = ["problem_of", "serve"]

_LATE_LISTS: Final = 3
_SLACK_SECONDS: Final = 60.0
_STUCK_SECONDS: Final = 600.0
_DEAF_LISTS: Final = 3


def problem_of(work: Controller, began: float, resync_seconds: float, now: float) -> str | None:
    """Why the operator should be started again, None if it is well."""
    listed = began if work.last_list is None else work.last_list
    silent = now - listed
    if silent > _LATE_LISTS * resync_seconds + _SLACK_SECONDS:
        return f"the resources could not be listed for {silent:.0f} s"
    if work.deaf_lists >= _DEAF_LISTS:
        return f"{work.deaf_lists} lists in a row found changes that no watch had told"
    stuck = [str(key) for key, since in work.started.items() if now - since > _STUCK_SECONDS]
    return f"work on {', '.join(stuck)} takes longer than {_STUCK_SECONDS:.0f} s" if stuck else None


async def serve(
    settings: OperatorSettings, work: Controller, metrics: Metrics, monotonic: Callable[[], float]
) -> web.AppRunner:
    """Serve until the runner is cleaned up."""
    began = monotonic()

    async def live(_: web.Request) -> web.Response:
        problem = problem_of(work, began, settings.resync_seconds, monotonic())
        return web.Response(text="live\n") if problem is None else web.Response(status=503, text=f"{problem}\n")

    async def ready(_: web.Request) -> web.Response:
        if work.cache.is_complete:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="the resources were not listed yet\n")

    async def expose(_: web.Request) -> web.Response:
        metrics.queued.set(len(work.queue))
        return web.Response(body=metrics.expose(), content_type="text/plain")

    app = web.Application()
    app.router.add_get("/livez", live)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/metrics", expose)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, settings.liveness_host or None, settings.liveness_port).start()
    return runner
