"""One run of kopf, which opens the watches. It does nothing else here: every event goes to the controller.

No handler of kopf that changes objects is used, so kopf adds no annotations and no finalizers.

kopf runs in a thread with a loop of its own. When kopf ends, it cancels every task of its loop, and it takes over
SIGTERM: in the operator's loop it would end work that is not its own, and could not be started again. `watch` starts
another run when one has ended. The only module that imports `kopf`. Source: docs/decisions/057-lists-are-the-truth.md,
docs/decisions/108-each-watch-is-seen.md.
"""

from __future__ import annotations

import asyncio
import logging
import selectors
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self, cast

import aiohttp
import kopf
from kopf._cogs.clients.errors import APINotFoundError
from kopf._core.engines.peering import Identity
from kopf._core.reactor import processing
from yarl import URL

from penstock_api.failure import Failure
from penstock_api.resources import GROUP
from penstock_operator import names
from penstock_operator.cluster.controller import Controller
from penstock_operator.cluster.watch_activity import WatchActivity
from penstock_operator.cluster.watch_requests import CHILDREN, WatchTimes, watched_kinds
from penstock_operator.settings import OperatorSettings

__all__ = ["KopfRun", "Login"]

_KOPF_END_SECONDS: Final = 3.0
"""kopf's own end, after all its parts have ended."""
_CANCELLATIONS: Final = 5
_TURNS: Final = 5
"""So many turns of a loop are enough for it to close a connection that was given up."""
_CLOSE_SECONDS: Final = 1.0
_OWN_DESCRIPTORS: Final = 1
"""That by which other threads wake a loop."""
_HELD_SECONDS: Final = 0.1
"""So long kopf keeps an object that it has handed over. It must not be 0: kopf would look for the next event for ever.
"""
_ERROR_PAUSES: Final = (1.0, 2.0, *(5.0,) * 12)
"""Seconds between attempts to open a watch. kopf's own grow to 21 s, in which changes wait after an outage."""
_TELL_OF_THE_END: Final = ("kopf._core.reactor.orchestration", "kopf._core.reactor.running")
"""The loggers by which kopf tells why it fails, each time with a trace."""
_TELLS_OF_REQUESTS: Final = "kopf._cogs.clients.watching"
_WAITS_FOR_A_PAUSE: Final = "pause-waiter"
"""How the names of the tasks begin whose end makes kopf end the stream that they belong to."""
_STOP_SECONDS: Final = 30.0
"""If kopf's thread has not ended after that, the process has to end."""

Login = Callable[..., kopf.ConnectionInfo | None]


class KopfRun:
    """One run of kopf in a thread. What it sees goes to the loop in which this was made."""

    def __init__(
        self,
        controller: Controller,
        settings: OperatorSettings,
        activity: WatchActivity,
        times: WatchTimes,
        login: Login | None,
    ) -> None:
        self.ended = asyncio.Event()
        self.failure: BaseException | None = None
        """Why it ended; None while it runs, and if it was stopped."""
        self._controller = controller
        self._settings = settings
        self._activity = activity
        self._times = times
        self._login = login or _login
        self._loop = asyncio.get_running_loop()
        self._stopping: Future[None] = Future()
        self._is_stopped = False
        self._logged_in: tuple[kopf.ConnectionInfo, kopf.AiohttpSession] | None = None
        threading.Thread(target=self._run, name="watches", daemon=True).start()

    async def stop(self) -> None:
        """End it, and wait until it has ended. Raises Failure if it does not."""
        self._is_stopped = True
        if not self._stopping.done():
            self._stopping.set_result(None)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self.ended.wait()
        except TimeoutError:
            raise Failure(
                f"The thread with the watches has not ended for {_STOP_SECONDS:.0f} s.",
                "This operator stops; it is started again.",
            ) from None

    def _run(self) -> None:
        selector = selectors.DefaultSelector()
        loop = asyncio.SelectorEventLoop(selector)
        try:
            loop.run_until_complete(self._watch())
        except BaseException as error:
            # Whatever it is, the operator's loop reports it and begins anew.
            self.failure = error
        finally:
            try:
                _end_tasks(loop)
                loop.run_until_complete(self._close_connections(loop, selector))
            finally:
                loop.close()
                self._tell(self.ended.set)

    async def _close_connections(self, loop: asyncio.AbstractEventLoop, selector: selectors.BaseSelector) -> None:
        """Close what streams that were cancelled have left open: the loop can't do it any more once it is closed. Over
        TLS each end says good-bye, so the answers are waited for, but not from an API server that is away.
        """
        await loop.shutdown_asyncgens()
        if self._logged_in is not None:
            await self._logged_in[1].aiohttp_session.close()
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        until = loop.time() + _CLOSE_SECONDS
        while len(selector.get_map()) > _OWN_DESCRIPTORS and loop.time() < until:
            await asyncio.sleep(0.005)

    async def _watch(self) -> None:
        stop, ending = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        self._stopping.add_done_callback(lambda _: _call_in(loop, stop.set))
        is_ending = asyncio.create_task(ending.wait())
        running = asyncio.create_task(
            kopf.operator(
                registry=self._registry(ending),
                settings=_kopf_settings(self._times),
                standalone=True,
                # Otherwise kopf asks for the user's name, and a user of a namespace's range on OpenShift has none.
                identity=Identity(names.MANAGER),
                clusterwide=not self._settings.namespaces,
                namespaces=self._settings.namespaces,
                stop_flag=stop,
            )
        )
        with _RemovedKind() as removed:
            # When one watch fails, kopf stops its parts, and then waits for the other watches for ever.
            await asyncio.wait([running, is_ending], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([running], timeout=_KOPF_END_SECONDS)
        if removed.problem:
            raise Failure(removed.problem)
        if running.done():
            running.result()
        elif not self._is_stopped:
            raise Failure("kopf has failed; its log says why.")

    def _tell(self, call: Callable[..., object], *arguments: object) -> None:
        """Make a call in the operator's loop; none if that has ended."""
        _call_in(self._loop, call, *arguments)

    def _registry(self, ending: asyncio.Event) -> kopf.OperatorRegistry:
        registry = _Registry(self._seen)

        @kopf.on.cleanup(registry=registry)
        async def cleanup(**_: Any) -> None:
            ending.set()

        @kopf.on.login(registry=registry)
        async def login(**kwargs: Any) -> kopf.AiohttpSession | None:
            return self._session(self._login(**kwargs))

        async def watched(**_: Any) -> None:
            """By its handlers kopf knows what to watch; it does not call them."""

        for group, version, plural in watched_kinds(self._settings.namespaces):
            kopf.on.event(group, version, plural, registry=registry)(watched)
        return registry

    def _seen(self, group: str, event: Any) -> None:
        """An event of a watch, or an object of its first list."""
        if self._is_stopped:
            return
        gone, controller = event["type"] == "DELETED", self._controller
        if group != GROUP:
            self._tell(partial(controller.child_changed, is_deleted=gone), event["object"])
        else:
            self._tell(controller.resource_deleted if gone else controller.resource_changed, event["object"])

    def _session(self, info: kopf.ConnectionInfo | None) -> kopf.AiohttpSession | None:
        """kopf's own session, with a trace that tells when a watch is opened."""
        if info is None:
            return None
        if self._logged_in is not None and self._logged_in[0] == info:
            # The API server has refused exactly this, so kopf must end; the next run begins after a pause.
            return self._logged_in[1]
        prefix = URL(info.server).path.rstrip("/")
        trace = aiohttp.TraceConfig()

        async def answered(_session: object, _context: object, request: aiohttp.TraceRequestEndParams) -> None:
            if request.url.query.get("watch") == "true" and request.response.status == 200:
                path = request.url.path.removeprefix(prefix)
                self._tell(self._activity.opened, path, self._controller.monotonic())

        trace.on_request_end.append(answered)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
            headers={**info.as_http_headers(), "User-Agent": names.USER_AGENT},
            proxy=info.proxy_url,
            trust_env=info.trust_env,
            trace_configs=[trace],
        )
        made = kopf.AiohttpSession(
            server=info.server,
            aiohttp_session=session,
            default_namespace=info.default_namespace,
            priority=info.priority,
            expiration=info.expiration,
        )
        self._logged_in = info, made
        return made


class _RemovedKind(logging.Filter):
    """While it is entered, what kopf logs is followed, apart from its end because the API server has no such kind any
    more: that is somebody's wish, and one line of the operator's tells it, where kopf writes a hundred.
    """

    def __init__(self) -> None:
        super().__init__()
        self.problem = ""
        """Which watch has found that its kind is gone; empty if none has."""

    def __enter__(self) -> Self:
        for name in (*_TELL_OF_THE_END, _TELLS_OF_REQUESTS):
            logging.getLogger(name).addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
        for name in (*_TELL_OF_THE_END, _TELLS_OF_REQUESTS):
            logging.getLogger(name).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line of kopf's is logged."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, APINotFoundError):
            self.problem = self.problem or record.getMessage()
            return False
        return not (self.problem and record.name == _TELLS_OF_REQUESTS)


class _Registry(kopf.OperatorRegistry):
    """kopf's registry, and where its events go."""

    def __init__(self, seen: Callable[[str, Any], None]) -> None:
        super().__init__()
        self.seen = seen


async def _hand_over(*, registry: _Registry, resource: Any, raw_event: Any, **_: Any) -> None:
    """What kopf does with an event, in place of its own handling.

    That copies each object more than once, compares it with what it would have written into annotations, and keeps a
    memory and a state of handlers for it. Nothing of that is used here.
    """
    registry.seen(resource.group, raw_event)


processing.process_resource_event = cast(Any, _hand_over)


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what is left in a loop, more than once, because kopf's watches may take the first for something else.

    What waits for a pause goes last: its end makes kopf cancel the stream that it belongs to, and kopf takes that to be
    the current task, which there is none here. A stream that ends cancels it by itself.
    """
    for attempt in range(_CANCELLATIONS):
        tasks = asyncio.all_tasks(loop)
        if not tasks:
            return
        streams = {task for task in tasks if not task.get_name().startswith(_WAITS_FOR_A_PAUSE)}
        ending = streams if streams and attempt < _CANCELLATIONS - 1 else tasks
        for task in ending:
            task.cancel()
        loop.run_until_complete(asyncio.wait(ending, timeout=1))


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(call, *arguments)


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


def _kopf_settings(times: WatchTimes) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = None
    settings.watching.server_timeout = times.server
    settings.watching.client_timeout = times.server + 10
    settings.watching.inactivity_timeout = times.silent
    settings.watching.connect_timeout = 30
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = 60
    settings.networking.error_backoffs = _ERROR_PAUSES
    # Else each object of the first list, whole as it came, is kept for five seconds after it was handed over.
    settings.queueing.idle_timeout = _HELD_SECONDS
    for child in CHILDREN:
        settings.watching.label_selectors[child] = names.MANAGED_BY
    return settings


logging.getLogger("kopf.objects").setLevel(logging.WARNING)
# It says at each start that it ignores signals, which are the operator's.
logging.getLogger("kopf._core.reactor.running").addFilter(lambda record: "OS signals" not in str(record.msg))
