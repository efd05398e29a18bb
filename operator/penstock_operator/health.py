"""/livez, /readyz and /metrics of the operator.

The operator is live while its lists succeed, each of its watches is opened again in time, the watches deliver events,
and each reconcile ends when it is told to. A loop that stands still answers no probe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web

from penstock_api.failure import CannotRun
from penstock_api.listen_failures import listen_failure
from penstock_operator.cluster.controller import Controller
from penstock_operator.cluster.leadership import Leadership
from penstock_operator.cluster.watch_activity import WatchActivity
from penstock_operator.condition_metrics import ConditionCollector
from penstock_operator.metrics import Metrics
from penstock_operator.settings import OperatorSettings

__all__ = ["problem_of", "serve", "unready"]

_MAX_MISSED_LISTS: Final = 3
_LIST_MARGIN_SECONDS: Final = 60.0
_LEAST_SILENCE_SECONDS: Final = 660.0
"""Longer than the ten minutes after which a kubelet forgets the ends of a container: else each restart in a long outage
of the API server would double the pause before the next one, up to five minutes in which nothing is done after it.
"""
_ENDING_SECONDS: Final = 60.0
"""So long a reconcile may go on after its deadline: it may have connections to close."""
_MAX_LISTS_WITHOUT_EVENTS: Final = 3


def problem_of(
    controller: Controller, began: float, resync_seconds: float, now: float, activity: WatchActivity | None = None
) -> str | None:
    """Why the operator must be restarted, None if it works. `activity`: of its watches; None: they are not judged.

    `began`, `now`: seconds on the clock of the controller.
    """
    listed = began if controller.last_listed is None else controller.last_listed
    silent = now - listed
    if silent > max(_MAX_MISSED_LISTS * resync_seconds + _LIST_MARGIN_SECONDS, _LEAST_SILENCE_SECONDS):
        return f"the resources could not be listed for {silent:.0f} s"
    if controller.lists_without_events >= _MAX_LISTS_WITHOUT_EVENTS:
        return f"{controller.lists_without_events} lists in a row found changes that no watch had reported"
    unopened = None if activity is None else activity.problem(now)
    if unopened is not None:
        return unopened
    longest = controller.pass_seconds + _ENDING_SECONDS
    stuck = [str(key) for key, since in controller.started.items() if now - since > longest]
    return f"work on {', '.join(stuck)} does not end, {longest:.0f} s after its beginning" if stuck else None


def unready(controller: Controller, leadership: Leadership | None) -> str | None:
    """Why the operator is not ready, None if it is.

    One that waits until another one ends is ready: it can lead. One that is refused the Lease can't.
    """
    if not controller.cache.is_complete:
        return "the resources have not been listed yet"
    if leadership is not None and not leadership.leads() and leadership.problem:
        return f"the Lease can't be read or written: {leadership.problem}"
    return None


async def serve(
    settings: OperatorSettings,
    controller: Controller,
    metrics: Metrics,
    monotonic: Callable[[], float],
    leadership: Leadership | None = None,
    activity: WatchActivity | None = None,
) -> web.AppRunner:
    """Serve the three paths until the returned runner is cleaned up. Raises CannotRun if the port can't be had.

    `leadership`: None if this operator always leads.
    """
    began = monotonic()

    def leads() -> bool:
        return leadership is None or leadership.leads()

    metrics.registry.register(ConditionCollector(controller.cache, leads, lambda: controller.left()))

    async def live(_: web.Request) -> web.Response:
        problem = problem_of(controller, began, settings.resync_seconds, monotonic(), activity)
        return web.Response(text="live\n") if problem is None else web.Response(status=503, text=f"{problem}\n")

    async def ready(_: web.Request) -> web.Response:
        problem = unready(controller, leadership)
        if problem is not None:
            return web.Response(status=503, text=f"{problem}\n")
        if leadership is None or leadership.leads():
            return web.Response(text="ready, and leads\n")
        return web.Response(text=f"ready, and waits: {leadership.holder or 'nobody'} leads\n")

    async def expose(_: web.Request) -> web.Response:
        # Asked now: an operator whose Lease is over must not say that it leads until its process has ended.
        metrics.leading.set(1 if leads() else 0)
        metrics.queued.set(len(controller.queue) if leads() else 0)
        return web.Response(body=metrics.expose(), content_type="text/plain")

    app = web.Application()
    app.router.add_get("/livez", live)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/metrics", expose)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.liveness_host or None, settings.liveness_port).start()
    except OSError as error:
        await runner.cleanup()
        why, cure = listen_failure(error)
        port = settings.liveness_port
        where = f"{settings.liveness_host}:{port}" if settings.liveness_host else f"port {port}"
        told = f"the operator can't listen on {where} (--liveness-host, --liveness-port): {why}."
        raise CannotRun(told, cure) from error
    return runner
