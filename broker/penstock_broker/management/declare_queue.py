"""CREATE and UPDATE of a point-to-point queue. Idempotent. Source: docs/decisions/109-queues.md."""

from __future__ import annotations

from penstock_api.management import DeclarationOutcome, QueueDeclaration
from penstock_broker.management import entity_states
from penstock_broker.management.declaration_replies import declaration_reply, without_ages
from penstock_broker.management.declared_persistence import declared_persistence
from penstock_broker.management.owner_marks import other_owner, outcome_of_change
from penstock_broker.management.replies import ManagementReply, invalid_request, refusal
from penstock_broker.messages import due_times
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.topology.auto_creation import make_destinations
from penstock_broker.topology.records import PointToPointQueue
from penstock_core.address import check_queue_name
from penstock_core.reason import Reason, Refuse

__all__ = ["declare_queue"]


def declare_queue(broker: Broker, name: str | None, wanted: QueueDeclaration, *, update: bool) -> ManagementReply:
    """CREATE or UPDATE a point-to-point queue; with ``update`` it has to be there."""
    if not name:
        return invalid_request("The request names no queue.")
    refused = check_queue_name(name)
    existing = broker.topology.queues.get(name)
    if refused is None and existing is None and update:
        refused = Refuse(Reason.QUEUE_NOT_FOUND, f"There is no queue {name!r}; create it.")
    if refused is None and existing is not None and existing.durable != wanted.durable:
        refused = Refuse(
            Reason.IMMUTABLE, f"The queue {name!r} is there with durable={existing.durable}; delete it first."
        )
    if refused is None and existing is not None:
        refused = other_owner(existing.owner, wanted, f"queue {name!r}")
    if refused is None and name in (wanted.delivery.dead_letter, wanted.delivery.expiry):
        refused = Refuse(Reason.INVALID_REQUEST, f"The queue {name!r} can't be its own destination; name another.")
    if refused is None and existing is None and wanted.durable and not broker.log.takes_topology():
        refused = broker.storage_refuse()
    refused = refused or make_destinations(broker.topology, wanted.delivery, broker.clock.now_us)
    if refused is not None:
        return refusal(refused)
    persistence = declared_persistence(wanted.persistence)
    policies = (persistence, wanted.limits, wanted.delivery, wanted.owner, False)
    if existing is not None and _queue_policies(existing) == policies:
        return declaration_reply(
            DeclarationOutcome.UNCHANGED, without_ages(entity_states.queue_state(existing, {}), existing.queue)
        )
    outcome = DeclarationOutcome.CREATED if existing is None else outcome_of_change(existing.owner, wanted.owner)
    node = existing
    if node is None:
        queue = Queue(name, broker.log.next_incarnation(), is_logged=wanted.durable, now_us=broker.clock.now_us)
        node = PointToPointQueue(name=name, durable=wanted.durable, queue=queue)
    node.persistence, node.limits, node.delivery = persistence, wanted.limits, wanted.delivery
    node.owner, node.made_by_name = wanted.owner, False
    broker.topology.put_queue(node)
    broker.routes.forget()
    due_times.recheck_expiry(broker, node.queue)
    broker.work.schedule(node.queue)  # others may get what waits now
    return declaration_reply(outcome, without_ages(entity_states.queue_state(node, {}), node.queue))


def _queue_policies(node: PointToPointQueue) -> tuple[object, ...]:
    return (node.persistence, node.limits, node.delivery, node.owner, node.made_by_name)
