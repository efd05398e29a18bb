"""The operator process: creates the parts, connects them, and runs until SIGTERM.

It sees everything from the beginning, and acts only while it leads (docs/decisions/106-one-operator-leads.md).
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import signal
import socket
import time
from datetime import UTC, datetime
from typing import Final

import aiohttp

from penstock_api.failure import Failure
from penstock_api.log_lines import handler_of
from penstock_operator import health
from penstock_operator.brokers.fenced_management import fenced
from penstock_operator.brokers.management import Connector
from penstock_operator.brokers.management_amqp import connect as connect_amqp
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.cluster import watch
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, KubeError
from penstock_operator.cluster.api_server_http import HttpApiServer
from penstock_operator.cluster.bounded_api_server import BoundedApiServer
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.cluster.controller import Controller
from penstock_operator.cluster.fenced_api_server import FencedApiServer
from penstock_operator.cluster.leadership import Leadership, LeadershipLost
from penstock_operator.cluster.own_thread import OwnThread
from penstock_operator.cluster.watch_activity import WatchActivity
from penstock_operator.cluster.watch_requests import WATCH_SECONDS
from penstock_operator.cluster.work_queue import WorkQueue
from penstock_operator.manifest import text_at
from penstock_operator.metrics import Metrics
from penstock_operator.plans.lease import LeaseTimes
from penstock_operator.reconcile.broker_reconciler import BrokerReconciler
from penstock_operator.reconcile.lag_reader import LagReader
from penstock_operator.reconcile.orphan_collector import OrphanCollector
from penstock_operator.reconcile.reconciler import Reconciler
from penstock_operator.reconcile.shared_lag import SharedLagJob
from penstock_operator.settings import OperatorSettings
from penstock_operator.tasks import run_until_first_ends

__all__ = ["operate", "run"]

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 5.0


def run(settings: OperatorSettings) -> int:
    """Run the operator until SIGTERM or SIGINT; return the exit code.

    Raises:
        CannotRun: no API server is known.
        Failure: its watches hang, or a task of it ended, which is a bug.
    """
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler_of(settings.log_format)])
    asyncio.run(operate(settings))
    return 0


async def operate(settings: OperatorSettings, connect: Connector = connect_amqp, kubeconfig: str | None = None) -> None:
    """Run the operator until SIGTERM or SIGINT; `connect` and `kubeconfig` are for tests."""
    told_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)
    kube = await HttpApiServer.connect(kubeconfig)
    for_lease = OwnThread("lease")
    lease_server = await for_lease.run(HttpApiServer.connect(kubeconfig))
    leadership = _leadership(settings, lease_server)
    if leadership is not None:
        kube.may_write = leadership.leads
    metrics, cache = Metrics(), Cache()
    queue = WorkQueue[ResourceKey](random.random)
    controller = Controller(cache, metrics, time.monotonic, queue, settings.pass_seconds)
    activity = WatchActivity(WATCH_SECONDS.server)
    runner = await health.serve(settings, controller, metrics, time.monotonic, leadership, activity)
    try:
        await run_until_first_ends(
            _stopped(told_to_stop),
            _watch(controller, settings, activity),
            _take_turns(settings, kube, controller, connect, leadership, for_lease),
        )
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
        await runner.cleanup()
        await kube.close()
        await for_lease.run(lease_server.close())
        for_lease.end()


async def _stopped(told: asyncio.Event) -> None:
    await told.wait()
    logger.info("the operator was told to stop")


def _leadership(settings: OperatorSettings, server: HttpApiServer) -> Leadership | None:
    """The operator's part in the Lease; None if it always leads."""
    if not settings.lease:
        return None
    identity = settings.identity or f"{socket.gethostname()}_{secrets.token_hex(4)}"
    times = LeaseTimes(settings.lease_seconds)
    return Leadership(
        server, settings.own_namespace, settings.lease, identity, times, time.monotonic, _now, random.random
    )


async def _take_turns(
    settings: OperatorSettings,
    kube: ApiServer,
    controller: Controller,
    connect: Connector,
    leadership: Leadership | None,
    for_lease: OwnThread,
) -> None:
    """Wait until this operator leads, lead as long as the Lease is renewed, and wait again; in the end give it back."""
    if leadership is None:
        await _lead(settings, kube, controller, connect)
        return
    try:
        while True:
            # Meanwhile the cache is kept warm: whoever leads next begins with one more list.
            await run_until_first_ends(
                for_lease.run(leadership.acquire()),
                controller.resync(kube, settings.namespaces, settings.resync_seconds, _nothing),
            )
            fenced_kube = FencedApiServer(kube, leadership.leads)
            try:
                await run_until_first_ends(
                    for_lease.run(leadership.keep()),
                    _lead(settings, fenced_kube, controller, fenced(connect, leadership.leads)),
                )
            except LeadershipLost as lost:
                # The process goes on: a container that ends again and again is started again after minutes only.
                logger.warning("%s %s", lost.cause, lost.cure)
            controller.begin_anew()
    finally:
        # What was led has ended: another operator may begin at once.
        await for_lease.run(leadership.release())


async def _lead(settings: OperatorSettings, kube: ApiServer, controller: Controller, connect: Connector) -> None:
    kube = BoundedApiServer(kube)
    controller.metrics.leading.set(1)
    # What others wrote until now has to be seen before anything is decided.
    controller.listed.clear()
    sessions = BrokerSessions(connect, settings.poll_seconds, _now, random.random)
    try:
        async with aiohttp.ClientSession() as http:
            await _run_tasks(settings, kube, controller, sessions, http)
    finally:
        controller.metrics.leading.set(0)
        await sessions.close()


async def _run_tasks(
    settings: OperatorSettings,
    kube: ApiServer,
    controller: Controller,
    sessions: BrokerSessions,
    http: aiohttp.ClientSession,
) -> None:
    cluster_id = await _cluster_id(kube)
    broker_reconciler = BrokerReconciler(
        kube,
        controller.cache,
        sessions,
        settings,
        _now,
        controller.enqueue,
        controller.enqueue_with_dependents,
        controller.resync_soon,
        controller.children,
    )
    reconciler = Reconciler(
        kube, controller.cache, sessions, settings, cluster_id, broker_reconciler, _now, controller.enqueue
    )
    collector = OrphanCollector(
        controller.cache, sessions, settings, cluster_id, broker_reconciler.findings, time.monotonic, controller.enqueue
    )
    lag_reader = LagReader(
        kube,
        controller.cache,
        http,
        broker_reconciler.findings,
        _now,
        controller.enqueue,
        sessions.is_declaring,
        settings.lag_job,
        reconciler.others.is_own,
    )
    controller.metrics.left_to_others.set_function(reconciler.others.count)
    controller.left = reconciler.others.left
    parts = [
        controller.resync(
            kube, settings.namespaces, settings.resync_seconds, collector.run, broker_reconciler.begin_resync
        ),
        lag_reader.run(settings.lag_seconds),
        reconciler.paced.run(),
        reconciler.bindings.run(),
        reconciler.others.run(),
        *(_work(controller, reconciler) for _ in range(settings.workers)),
    ]
    if settings.lag_job is not None:
        lag_job = SharedLagJob(
            kube,
            controller.cache,
            settings.lag_job,
            settings.lag_image,
            broker_reconciler.shared_lag,
            _now,
            controller.enqueue,
            reconciler.others.left,
        )
        parts.append(lag_job.run(controller.listed))
    if settings.namespaces:
        parts.append(controller.resync_children(kube, settings.namespaces))
    await run_until_first_ends(*parts)
    raise Failure("A task of the operator ended.", "This is a bug; the operator is started again.")


async def _work(controller: Controller, reconciler: Reconciler) -> None:
    await controller.listed.wait()
    await controller.run_worker(reconciler.reconcile)


async def _nothing() -> None:
    return


async def _watch(controller: Controller, settings: OperatorSettings, activity: WatchActivity) -> None:
    # kopf watches only kinds that exist when it starts. The first list shows that the CRDs are installed.
    await controller.listed.wait()
    await watch.watch(controller, settings, activity, wait_for_kinds=controller.wait_for_kinds)


async def _cluster_id(kube: ApiServer) -> str:
    """The uid of the namespace kube-system. In owner marks it distinguishes this cluster from another one that used the
    same volume.
    """
    while True:
        try:
            namespace = await kube.get(API_RESOURCES["Namespace"], None, "kube-system")
            break
        except KubeError as error:
            logger.warning("the namespace kube-system can't be read: %s; the operator tries again", error)
            await asyncio.sleep(max(_RETRY_SECONDS, error.retry_after_seconds or 0))
    uid = text_at(namespace, "metadata", "uid")
    if uid is None:
        raise Failure("The namespace kube-system can't be read.", "Allow the operator's role to `get` it.")
    return uid


def _now() -> datetime:
    return datetime.now(UTC)
