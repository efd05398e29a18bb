"""Reconciles one resource: collect what is known, ask the plan what to do next, do it, and ask again until it is done.

Decisions are in `plans`. Brokers are reconciled by `broker_reconciler`. Source: docs/decisions/055-deletion.md,
docs/decisions/058-server-side-apply.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import assert_never

from penstock_api import declaration
from penstock_api.resources import AnyResource, Broker, Declaring, Exchange, Queue, Subscription, parse
from penstock_operator import names
from penstock_operator.brokers.management import Unreachable
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.cluster.api_server import ApiServer, KubeError
from penstock_operator.cluster.cache import Cache, CachedResource, ResourceChange, ResourceKey
from penstock_operator.cluster.server_errors import INTERNAL_ERROR
from penstock_operator.manifest import Manifest, dig
from penstock_operator.plans import managing_operator, outage
from penstock_operator.plans.acceptance_step import AcceptanceView
from penstock_operator.plans.conditions import ConditionStatus
from penstock_operator.plans.decisions import (
    AddFinalizer,
    ApplyChild,
    BrokerReply,
    BrokerView,
    Decision,
    DeclareEntity,
    DeleteChild,
    DeleteEntity,
    KeepStatus,
    Reach,
    RemoveFinalizer,
    Report,
    Retry,
)
from penstock_operator.plans.exchange import ExchangeView, plan_exchange
from penstock_operator.plans.managing_operator import Responsibility
from penstock_operator.plans.queue import QueueView, plan_queue
from penstock_operator.plans.refusals import Refusal, refused_conditions
from penstock_operator.plans.subscription import SubscriptionView, plan_subscription
from penstock_operator.plans.unreadable_resources import plan_unreadable
from penstock_operator.reconcile import status
from penstock_operator.reconcile.binding_secrets import BindingSecrets
from penstock_operator.reconcile.broker_findings import BrokerFindings
from penstock_operator.reconcile.broker_reconciler import BrokerReconciler
from penstock_operator.reconcile.broker_views import BrokerViews
from penstock_operator.reconcile.children_of_views import ChildrenOfViews, ViewT
from penstock_operator.reconcile.exchange_holders import is_held_elsewhere
from penstock_operator.reconcile.finalizers import Finalizers
from penstock_operator.reconcile.left_deletions import LeftDeletions
from penstock_operator.reconcile.other_operators import OtherOperators
from penstock_operator.reconcile.paced_status import PacedStatus
from penstock_operator.reconcile.unreadable_views import UnreadableViews
from penstock_operator.settings import OperatorSettings

__all__ = ["Reconciler"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Reconciler:
    """Reconciles resources, each by its kind."""

    kube: ApiServer
    cache: Cache
    sessions: BrokerSessions
    settings: OperatorSettings
    cluster_id: str
    brokers: BrokerReconciler
    clock: Callable[[], datetime]
    enqueue: Callable[[ResourceKey], None]
    """Put another resource into the work queue."""
    paced: PacedStatus = field(init=False)
    """Writes what changes in all resources of a Broker at the same time."""
    bindings: BindingSecrets = field(init=False)
    """Writes the Secrets of `spec.binding`."""
    children: ChildrenOfViews = field(init=False)
    views: BrokerViews = field(init=False)
    finalizers: Finalizers = field(init=False)
    others: OtherOperators = field(init=False)
    """What is known of other operators that manage Brokers."""
    left: LeftDeletions = field(init=False)
    unreadable: UnreadableViews = field(init=False)
    _unanswered: set[ResourceKey] = field(default_factory=set[ResourceKey])
    """The resources whose status may have been written without the operator knowing. What it writes next must not be
    from before that: conditions would change their times, and not their status.
    """

    def __post_init__(self) -> None:
        """Make the writers."""
        versions = self.brokers.children
        self.bindings = BindingSecrets(self.kube, self.cache, versions, self.clock, self.enqueue)
        self.children = ChildrenOfViews(self.kube, versions, self.bindings, self.clock)
        self.views = BrokerViews(self.cache, self.sessions, self.brokers.findings, self.clock)
        self.paced = PacedStatus(self.kube, self.cache, self.clock, self.enqueue, self.sessions.is_declaring)
        me = managing_operator.name_of(self.settings.own_namespace, self.settings.lease)
        self.others = OtherOperators(self.kube, self.cache, me, self.clock, self.enqueue)
        self.finalizers = Finalizers(self.kube, self.cache)
        self.left = LeftDeletions(self.cache, self.finalizers, self.clock)
        self.unreadable = UnreadableViews(self.cache, self.sessions, self.finalizers, self.clock)

    async def reconcile(self, key: ResourceKey) -> Retry:
        """Reconcile one resource, and return when to reconcile it again.

        Raises:
            KubeError: the API server refused; the caller tries again later.
        """
        if not await self._is_own(key):
            return Retry.RESYNC
        entry = self.cache.get(key)
        try:
            return await self._reconcile(key, entry)
        except KubeError as error:
            if error.refusal is None:
                raise
            return await self._report_refusal(key, error, error.refusal)

    async def _is_own(self, key: ResourceKey) -> bool:
        """Whether this operator may touch a resource. Raises KubeError."""
        entry = self.cache.get(key)
        if entry is None:
            return True
        if key.kind != "Broker":
            broker = entry.references.broker
            if broker is None or self.others.is_own(ResourceKey("Broker", *broker)):
                return True
            self.paced.withdraw(key)
            self.bindings.forget(key)
            if self.others.responsibility(ResourceKey("Broker", *broker)) is Responsibility.KEEP_OFF:
                await self.left.look(key)
            return False
        if await self.others.take(key):
            return True
        # Should it come back to this one, the time in which others asked the broker does not count as its silence.
        await self.sessions.forget(f"{key.namespace}/{key.name}")
        self.brokers.forget(key)
        self.views.forget(key)
        return False

    async def _reconcile(self, key: ResourceKey, entry: CachedResource | None) -> Retry:
        if entry is None:
            self.brokers.children.forget(key)
            self.bindings.forget(key)
            self._unanswered.discard(key)
            if key.kind == "Broker":
                await self.sessions.forget(f"{key.namespace}/{key.name}")
                self.brokers.forget(key)
                self.views.forget(key)
            return Retry.RESYNC
        match entry.resource:
            case None:
                return await self._unparsable(key, entry)
            case Broker():
                report = await self.brokers.reconcile(key, entry.resource)
                if report is None:
                    return Retry.RESYNC
                report = replace(report, details=self.others.recorded(report.details))
                await self._write(key, entry.manifest, entry.resource, report)
                return report.retry
            case Exchange():
                return await self._exchange(key, entry.manifest, entry.resource)
            case Subscription():
                return await self._subscription(key, entry.manifest, entry.resource)
            case Queue():
                return await self._queue(key, entry.manifest, entry.resource)

    async def _exchange(self, key: ResourceKey, manifest: Manifest, exchange: Exchange) -> Retry:
        alternate = exchange.spec.alternate_exchange_ref
        other = None if alternate is None else ResourceKey("Exchange", key.namespace, alternate.name)
        found = None if other is None else self.cache.exchange(key.namespace, other.name)
        winner = None if other is None else self.cache.oldest_exchange(other)
        is_held = await is_held_elsewhere(self.sessions, found, winner, key.namespace)
        view = ExchangeView(
            resource=exchange,
            broker=self.views.of(exchange),
            alternate=found,
            alternate_winner=winner,
            is_alternate_held_elsewhere=is_held,
            is_alternate_unreadable=other is not None and self.cache.is_unreadable(other),
            winner=self.cache.oldest_exchange(key),
            cluster_id=self.cluster_id,
            cluster_domain=self.settings.cluster_domain,
            namespace_terminating=await self._is_terminating(exchange),
            now=self.clock(),
        )
        return await self._act(key, manifest, view, plan_exchange)

    async def _subscription(self, key: ResourceKey, manifest: Manifest, subscription: Subscription) -> Retry:
        named = ResourceKey("Exchange", *declaration.exchange_key(subscription))
        exchange = self.cache.exchange(named.namespace, named.name)
        exchange_winner = self.cache.oldest_exchange(named)
        is_held = await is_held_elsewhere(self.sessions, exchange, exchange_winner, key.namespace)
        found = self.views.findings_of(subscription)
        view = SubscriptionView(
            resource=subscription,
            scale=found.scale,
            trusted=found.trusted,
            broker=self.views.of(subscription),
            exchange=exchange,
            exchange_winner=exchange_winner,
            is_exchange_held_elsewhere=is_held,
            is_exchange_unreadable=self.cache.is_unreadable(named),
            winner=self.cache.oldest_subscription(key),
            cluster_id=self.cluster_id,
            namespace_terminating=await self._is_terminating(subscription),
            now=self.clock(),
        )
        return await self._act(key, manifest, view, plan_subscription)

    async def _queue(self, key: ResourceKey, manifest: Manifest, queue: Queue) -> Retry:
        view = QueueView(
            resource=queue,
            scale=self.views.findings_of(queue).scale,
            broker=self.views.of(queue),
            winner=self.cache.oldest_queue(key),
            cluster_id=self.cluster_id,
            namespace_terminating=await self._is_terminating(queue),
            now=self.clock(),
        )
        return await self._act(key, manifest, view, plan_queue)

    async def _act(
        self, key: ResourceKey, manifest: Manifest, view: ViewT, decide: Callable[[ViewT], Decision]
    ) -> Retry:
        """Do what the plan decides and call it again with the result, until it reports or removes the finalizer."""
        while True:
            decision = decide(view)
            if isinstance(decision, ApplyChild | DeclareEntity) and self._is_outdated(key, view.resource):
                # Another pass begins with the newer spec; what an older one declares could undo that of a newer one.
                self.enqueue(key)
                return Retry.RESYNC
            if isinstance(decision, DeleteEntity | RemoveFinalizer) and self._was_rewritten(key, view.resource):
                # A person may have kept it from being deleted at the last moment.
                self.enqueue(key)
                return Retry.RESYNC
            match decision:
                case AddFinalizer():
                    manifest = await self.finalizers.add(manifest)
                    if self._is_outdated(key, view.resource):
                        # The view has what an older spec refers to, and no event may tell of the newer one any more.
                        self.enqueue(key)
                        return Retry.RESYNC
                    view = _renewed(view, manifest)
                case ApplyChild():
                    view = await self.children.with_child(key, view, decision.manifest)
                case DeleteChild():
                    view = await self.children.without_child(key, view, decision)
                case DeclareEntity() | DeleteEntity():
                    reply = await self._ask(view, decision)
                    view = replace(view, reply=reply) if isinstance(reply, BrokerReply) else replace(view, broker=reply)
                case RemoveFinalizer():
                    if decision.is_removal_pending:
                        self._note_pending_removal(view.resource)
                    await self.finalizers.remove(key, manifest, decision.why)
                    return Retry.RESYNC
                case KeepStatus():
                    self.paced.withdraw(key)
                    return decision.retry
                case Report():
                    if _is_ready(decision) and not status.is_ready(manifest):
                        for dependent in self.cache.dependents(key):
                            self.enqueue(dependent)
                    if _is_paced(view.resource, decision):
                        self.paced.offer(key, view.resource, decision)
                        return decision.retry
                    self.paced.withdraw(key)
                    await self._write(key, manifest, view.resource, decision)
                    return decision.retry
                case _:
                    assert_never(decision)

    def _is_outdated(self, key: ResourceKey, resource: Declaring) -> bool:
        """Whether the resource was changed or removed since this pass began."""
        entry, metadata = self.cache.get(key), resource.metadata
        if entry is None or entry.version.uid != metadata.uid:
            return True
        generation = entry.version.generation
        is_deleting = dig(entry.manifest, "metadata", "deletionTimestamp") is not None
        return (generation is not None and generation > metadata.generation) or is_deleting

    def _was_rewritten(self, key: ResourceKey, resource: Declaring) -> bool:
        """Whether its spec or its annotations, which say what a deletion may do, were changed since this pass began."""
        entry, metadata = self.cache.get(key), resource.metadata
        if entry is None or entry.version.uid != metadata.uid:
            return False
        now = None if entry.resource is None else entry.resource.metadata
        return now is None or (now.generation, now.annotations) != (metadata.generation, metadata.annotations)

    def _note_pending_removal(self, resource: Declaring) -> None:
        """Remember that the broker still has the entity. This must happen before the finalizer is removed: afterwards
        nothing else refers to the entity.
        """
        broker = ResourceKey("Broker", *declaration.broker_key(resource))
        self.brokers.findings.setdefault(broker, BrokerFindings()).pending_removals.add(resource.metadata.uid)

    async def _ask(self, view: AcceptanceView, entry: DeclareEntity | DeleteEntity) -> BrokerReply | BrokerView:
        """The broker's reply; if it does not reply, what is known of the broker now."""
        assert view.broker.broker is not None, "the plan sends nothing to a Broker that does not exist"
        session = self.sessions.get(view.broker.broker.key)
        try:
            if session is None:
                raise Unreachable("its session was closed")
            return await (session.declare(entry) if isinstance(entry, DeclareEntity) else session.delete(entry))
        except Unreachable as error:
            now = self.views.of(view.resource)
            if now.reach is not Reach.CONNECTED:
                return now
            # Another session is connected already. The plan would ask at once, and for ever if that one is lost, too.
            return replace(now, reach=Reach.NOT_ASKED, problem=f"No reply has come: {error}.", is_awaited=True)

    async def _is_terminating(self, resource: Declaring) -> bool:
        """Whether the namespace is being deleted, too; it is read only for a resource that is being deleted."""
        is_deleting = resource.metadata.deletion_timestamp is not None
        return is_deleting and await self.finalizers.is_terminating(resource.metadata.namespace)

    async def _write(self, key: ResourceKey, manifest: Manifest, resource: AnyResource, report: Report) -> bool:
        """Write a report into the status; whether it has changed that."""
        is_unsure = key in self._unanswered
        try:
            updated = await status.write(self.kube, manifest, resource, report, self.clock(), unchanged=is_unsure)
        except KubeError as error:
            if error.status == 0 or error.status >= INTERNAL_ERROR:
                self._unanswered.add(key)
            raise
        self._unanswered.discard(key)
        if updated is not None:
            self._keep(key, updated)
        return updated is not None

    async def _report_refusal(self, key: ResourceKey, error: KubeError, refusal: Refusal) -> Retry:
        """The pass has ended early: of the status only Ready and Accepted change. It is logged if they do."""
        entry = self.cache.get(key)
        if entry is not None and entry.resource is not None:
            found = refused_conditions(entry.resource.status.conditions, refusal)
            details = {name: it for name, it in status.written(entry.manifest).items() if name != "observedGeneration"}
            if await self._write(key, entry.manifest, entry.resource, Report(found, details)):
                logger.warning("what %s needs is refused: %s", key, error)
        return Retry.BACKOFF

    def _keep(self, key: ResourceKey, updated: Manifest) -> None:
        """Store what the API server has answered to a write. It may already show a change by somebody else."""
        if self.cache.put(updated) is ResourceChange.SPEC:
            self.enqueue(key)

    async def _unparsable(self, key: ResourceKey, entry: CachedResource) -> Retry:
        """A resource that the API server has accepted, but this operator can't parse: the CRD has another version."""
        manifest = entry.manifest
        decision = plan_unreadable(await self.unreadable.of(key, entry))
        if isinstance(decision, RemoveFinalizer):
            await self.finalizers.remove(key, manifest, decision.why)
            return Retry.RESYNC
        wanted = status.unparsable(manifest, decision, self.clock())
        if status.differs(manifest, wanted):
            logger.error("%s can't be parsed: %s", key, entry.problem)
            self._keep(key, await self.kube.apply_status(manifest, wanted, names.MANAGER))
        return decision.retry


def _renewed(view: ViewT, manifest: Manifest) -> ViewT:
    """The view with the resource as it is in `manifest`."""
    resource = parse(manifest)
    assert isinstance(resource, type(view.resource))
    return replace(view, resource=resource)


def _is_paced(resource: Declaring, report: Report) -> bool:
    """Whether a report says only what all resources of the Broker say at the same time, or that this is over."""
    metadata, shown = resource.metadata, resource.status
    if metadata.deletion_timestamp is not None or shown.observed_generation != metadata.generation:
        return False
    ready = next((str(it.reason) for it in report.conditions if it.type == "Ready"), "")
    return not outage.OF_THE_BROKER.isdisjoint({ready, outage.ready_reason(shown.conditions)})


def _is_ready(report: Report) -> bool:
    return any(
        condition.type == "Ready" and condition.status is ConditionStatus.TRUE for condition in report.conditions
    )
