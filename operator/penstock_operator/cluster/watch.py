"""The watches, which kopf runs: they begin anew when one of them is dead or stuck, and when they have failed.

Only an operator that watches the whole cluster watches children. An operator that watches single namespaces can lose
its Role before it ends, when a namespace is deleted, and kopf ends as a whole if a watch stays forbidden. There,
`Controller.resync_children` puts Brokers and Exchanges into the work queue at intervals. Source:
docs/decisions/057-lists-are-the-truth.md, docs/decisions/108-each-watch-is-seen.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from penstock_api.failure import Failure
from penstock_operator.cluster.controller import Controller
from penstock_operator.cluster.kopf_run import KopfRun, Login
from penstock_operator.cluster.watch_activity import WatchActivity
from penstock_operator.cluster.watch_requests import WATCH_SECONDS, WatchTimes, watch_paths
from penstock_operator.settings import OperatorSettings

__all__ = ["watch"]

logger = logging.getLogger(__name__)

_FIRST_RESTART_SECONDS: Final = 1.0
_LONGEST_RESTART_SECONDS: Final = 30.0


async def watch(
    controller: Controller,
    settings: OperatorSettings,
    activity: WatchActivity,
    times: WatchTimes = WATCH_SECONDS,
    login: Login | None = None,
    wait_for_kinds: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Watch until cancelled; `times` and `login` are for tests.

    `wait_for_kinds`: waits until all kinds exist. kopf never watches one that does not exist when it starts, and it has
    failed when somebody has removed the CRDs.

    Raises:
        Failure: the thread with the watches does not end.
    """
    now = controller.monotonic
    activity.expect(watch_paths(settings.namespaces), now())
    pause = _FIRST_RESTART_SECONDS
    while True:
        run, began = KopfRun(controller, settings, activity, times, login), now()
        try:
            while not run.ended.is_set() and not (now() - began > times.grace and activity.overdue(now())):
                with suppress(TimeoutError):
                    async with asyncio.timeout(times.check):
                        await run.ended.wait()
            overdue = activity.overdue(now())
        finally:
            await run.stop()
        why = f"{', '.join(overdue)} were not opened again in time" if overdue else _told(run.failure)
        pause = _FIRST_RESTART_SECONDS if now() - began > _LONGEST_RESTART_SECONDS else pause
        logger.warning("the watches begin anew in %.0f s, and lists find the changes until then: %s", pause, why)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_RESTART_SECONDS)
        if wait_for_kinds is not None:
            await wait_for_kinds()


def _told(failure: BaseException | None) -> str:
    return failure.cause if isinstance(failure, Failure) else repr(failure)
