"""The operator process: creates the parts, connects them, and runs until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from datetime import UTC, datetime

import aiohttp

from penstock_api.failure import Failure
from penstock_api.log_lines import handler_of
from penstock_operator import health
from penstock_operator.brokers.management import Connector
from penstock_operator.brokers.management_amqp import connect as connect_amqp
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.cluster import watch
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer
from penstock_operator.cluster.api_server_http import HttpApiServer
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.cluster.controller import Controller
from penstock_operator.cluster.work_queue import WorkQueue
from penstock_operator.manifest import text_at
from penstock_operator.metrics import Metrics
from penstock_operator.reconcile.broker_reconciler import BrokerReconciler
from penstock_operator.reconcile.lag_reader import LagReader
from penstock_operator.reconcile.orphan_collector import OrphanCollector
from penstock_operator.reconcile.reconciler import Reconciler
from penstock_operator.reconcile.shared_lag import SharedLagJob
from penstock_operator.settings import OperatorSettings

__all__ = ["operate", "run"]

logger = logging.getLogger(__name__)


def run(settings: OperatorSettings) -> int:
    """Run the operator until SIGTERM or SIGINT; return the exit code.

    Raises:
        CannotRun: no API server is known.
        Failure: a task of the operator ended too early, which is a bug.
    """
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler_of(settings.log_format)])
    asyncio.run(operate(settings))
    return 0


async def operate(settings: OperatorSettings, connect: Connector = connect_amqp, kubeconfig: str | None = None) -> None:
    """Run the operator until SIGTERM or SIGINT; `connect` and `kubeconfig` are for tests."""
    kube = await HttpApiServer.connect(kubeconfig)
    metrics, cache = Metrics(), Cache()
    controller = Controller(cache, metrics, time.monotonic, WorkQueue[ResourceKey](random.random))
    sessions = BrokerSessions(connect, settings.poll_seconds, _now)
    runner = await health.serve(settings, controller, metrics, time.monotonic)
    try:
        async with aiohttp.ClientSession() as http:
            await _run_tasks(settings, kube, controller, sessions, http)
    finally:
        await sessions.close()
        await runner.cleanup()
        await kube.close()


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
        kube, controller.cache, http, broker_reconciler.findings, _now, controller.enqueue, settings.lag_job
    )
    tasks = [
        asyncio.create_task(
            controller.resync(
                kube, settings.namespaces, settings.resync_seconds, collector.run, broker_reconciler.begin_resync
            )
        ),
        asyncio.create_task(lag_reader.run(settings.lag_seconds)),
        asyncio.create_task(reconciler.paced.run()),
        *(asyncio.create_task(controller.run_worker(reconciler.reconcile)) for _ in range(settings.workers)),
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
        )
        tasks.append(asyncio.create_task(lag_job.run(controller.listed)))
    if settings.namespaces:
        tasks.append(asyncio.create_task(controller.resync_children(kube, settings.namespaces)))
    watcher = asyncio.create_task(_watch(controller, settings))
    try:
        done, _ = await asyncio.wait([watcher, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if watcher not in done:
            raise Failure("A task of the operator ended.", "This is a bug; the operator is started again.")
    finally:
        for task in (watcher, *tasks):
            task.cancel()
        await asyncio.gather(watcher, *tasks, return_exceptions=True)


async def _watch(controller: Controller, settings: OperatorSettings) -> None:
    # kopf watches only kinds that exist when it starts. The first list shows that the CRDs are installed.
    await controller.listed.wait()
    await watch.watch(controller, settings)


async def _cluster_id(kube: ApiServer) -> str:
    """The uid of the namespace kube-system. In owner marks it distinguishes this cluster from another one that used the
    same volume.
    """
    namespace = await kube.get(API_RESOURCES["Namespace"], None, "kube-system")
    uid = text_at(namespace, "metadata", "uid")
    if uid is None:
        raise Failure("The namespace kube-system can't be read.", "Allow the operator's role to `get` it.")
    return uid


def _now() -> datetime:
    return datetime.now(UTC)
