"""The whole operator against an API server and a broker in memory; a test moves its clock and delivers its events."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from support.api_server_in_memory import ApiServerInMemory
from support.management_in_memory import BrokerInMemory, SessionsInMemory
from support.resources import GOOD

from penstock_operator.brokers.management import Connector
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.cluster.controller import Controller
from penstock_operator.cluster.work_queue import WorkQueue
from penstock_operator.metrics import Metrics
from penstock_operator.reconcile.broker_reconciler import BrokerReconciler
from penstock_operator.reconcile.orphan_collector import OrphanCollector
from penstock_operator.reconcile.reconciler import Reconciler
from penstock_operator.reconcile.write_pace import WritePace
from penstock_operator.settings import OperatorSettings

__all__ = ["SETTINGS", "World", "resource"]

SETTINGS = OperatorSettings(broker_image="b", lag_image="l")


def resource(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    """A manifest that a user applies in the namespace `shop`, with these fields of its spec."""
    good = GOOD[kind]
    return {**good, "metadata": {"name": name, "namespace": "shop"}, "spec": {**good["spec"], **spec}}


@dataclass(slots=True)
class World:
    """API server, broker and operator, with a clock that the test moves."""

    now: float = 0.0
    api: ApiServerInMemory = field(default_factory=ApiServerInMemory)
    broker: BrokerInMemory = field(default_factory=BrokerInMemory)
    settings: OperatorSettings = SETTINGS
    connect: Connector | None = None
    """The way to the broker of the operator's own sessions; None: there are `sessions`, which reply at once."""
    sessions: SessionsInMemory = field(init=False)
    controller: Controller = field(init=False)
    reconciler: Reconciler = field(init=False)
    collector: OrphanCollector = field(init=False)
    told: int = 0
    """Events of the API server that the watches have told."""

    def __post_init__(self) -> None:
        cache = Cache()
        self.controller = Controller(cache, Metrics(), lambda: self.now, WorkQueue[ResourceKey]())
        self.sessions = SessionsInMemory(self.broker, clock=self.clock)
        sessions = cast(BrokerSessions, self.sessions)
        if self.connect is not None:
            sessions = BrokerSessions(self.connect, 3600, self.clock)
        broker_reconciler = BrokerReconciler(
            self.api,
            cache,
            sessions,
            self.settings,
            self.clock,
            self.controller.enqueue,
            self.controller.enqueue_with_dependents,
            self.controller.resync_soon,
            self.controller.children,
        )
        self.reconciler = Reconciler(
            self.api, cache, sessions, self.settings, "c1", broker_reconciler, self.clock, self.controller.enqueue
        )
        self.reconciler.others.monotonic = lambda: self.now
        self.reconciler.paced.pace = WritePace(1e9)
        self.reconciler.bindings.pace = WritePace(1e9)
        self.collector = OrphanCollector(
            cache,
            sessions,
            self.settings,
            "c1",
            broker_reconciler.findings,
            lambda: self.now,
            self.controller.enqueue,
        )

    def clock(self) -> datetime:
        return datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(seconds=self.now)

    def tell(self, count: int) -> None:
        """The watches deliver this number of events."""
        for kind, manifest in self.api.events[self.told : self.told + count]:
            (self.controller.resource_deleted if kind == "DELETED" else self.controller.resource_changed)(manifest)
        self.told = min(self.told + count, len(self.api.events))

    def forget(self) -> None:
        """The watches break: events that were not delivered are lost."""
        self.told = len(self.api.events)

    async def reconcile_next(self, count: int) -> None:
        """The operator reconciles this number of resources that are due."""
        for _ in range(count):
            if not await self.controller.reconcile_next(self.reconciler.reconcile):
                break
        await self.reconciler.paced.write_all()
        await self.reconciler.bindings.write_all()

    def know_scopes(self) -> None:
        """The observer of the Broker has shown that it knows tokens of single subscriptions."""
        accepted = self.reconciler.brokers.findings[ResourceKey("Broker", "shop", "main")].accepted
        assert accepted is not None
        accepted.note(accepted=True)

    async def calm_down(self) -> None:
        """Everything is reachable again; lists are made and time passes."""
        self.broker.is_up = True
        for _ in range(6):
            self.api.collect_garbage()
            await self.controller.list_all(cast(Any, self.api), ())
            await self.controller.list_children(cast(Any, self.api), ())
            for key in self.controller.cache.all():
                self.controller.enqueue(key)
            self.tell(len(self.api.events))
            await self.reconcile_next(1000)
            self.now += 60
