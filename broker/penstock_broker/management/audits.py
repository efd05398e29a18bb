"""START_AUDIT, STOP_AUDIT and READ_AUDIT: every message of one subscription is written down for a limited time.

An audit costs the queues without one nothing. What was in the queue at its beginning and end is copied in one turn, as
references, and written down in slices. An audit that has ended is kept for a while, so that the observer fetches the
rest. Source: docs/reference/management.md, docs/decisions/074-message-audit.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Final

from pydantic import ValidationError

from penstock_amqp.endpoint.events import NUMBER, Entry
from penstock_amqp.types.values import Value
from penstock_api.management import EntityType, Operation, StatusCode
from penstock_api.message_audit import AuditRead, AuditStart, AuditState, AuditTotals, EndedBy, EventKind
from penstock_api.validation_messages import validation_messages
from penstock_broker.management.repeated_messages import shown_id
from penstock_broker.management.replies import ManagementReply, invalid_request, refusal, to_value
from penstock_broker.messages.read_retries import retry_after_ms
from penstock_broker.queue.audit import QueueAudit
from penstock_broker.queue.queue import Queue
from penstock_broker.queue.snapshots import take_some
from penstock_broker.state.audits import Audit
from penstock_broker.state.broker import Broker
from penstock_broker.state.leaving_links import consumed_queue
from penstock_broker.state.open_transactions import transactions_of
from penstock_broker.topology.records import Subscription
from penstock_core.reason import Reason, Refuse

__all__ = ["KEPT_MS", "MAX_AUDITS", "MAX_PRESENT", "WRITTEN_PER_TURN", "AuditTask", "handle"]

MAX_AUDITS: Final = 4
"""Audits of one broker, those that have ended and wait for the observer included."""

MAX_PRESENT: Final = 200_000
"""Messages that a subscription may hold when its audit begins: their records fill most of the buffer."""

WRITTEN_PER_TURN: Final = 500
"""Messages of the queue's contents that are written down in one turn: about a millisecond."""

KEPT_MS: Final = 600_000
"""For so long the records of an audit that has ended wait to be fetched."""


class AuditTask:
    """A START_AUDIT or STOP_AUDIT: done in the next turn, at whose beginning no event is half worked through. Only then
    is each message in exactly one place.
    """

    __slots__ = ("_change", "_is_next_turn")

    def __init__(self, change: Callable[[], ManagementReply]) -> None:
        self._change = change
        self._is_next_turn = False

    def step(self, _count: int) -> ManagementReply | None:
        """None in this turn, the reply in the next one."""
        if not self._is_next_turn:
            self._is_next_turn = True
            return None
        return self._change()


def handle(
    broker: Broker, operation: Operation, kind: EntityType, name: str | None, body: Value
) -> ManagementReply | AuditTask:
    """Serve one of the three operations, or begin to."""
    if kind is not EntityType.SUBSCRIPTION:
        return refusal(Refuse(Reason.NOT_IMPLEMENTED, f"A {kind.value} can't be audited; a subscription can."))
    told = body if body is not None else {}
    try:
        match operation:
            case Operation.START_AUDIT:
                return AuditTask(partial(_start, broker, name or "", AuditStart.model_validate(told)))
            case Operation.STOP_AUDIT:
                return AuditTask(partial(_stop, broker, name or ""))
            case Operation.READ_AUDIT:
                return _read(broker, name or "", AuditRead.model_validate(told))
            case _:
                raise AssertionError(operation)
    except ValidationError as error:
        return invalid_request(
            f"The body does not fit {operation.value}: {'; '.join(validation_messages(error, whole='body'))}."
        )


def _start(broker: Broker, name: str, wanted: AuditStart) -> ManagementReply:
    subscription = broker.topology.subscription_of_queue(name)
    if subscription is None:
        return refusal(Refuse(Reason.SUBSCRIPTION_NOT_FOUND, f"There is no subscription whose queue is {name!r}."))
    refused = _refusal(broker, subscription.queue)
    if refused is not None:
        return refusal(refused)
    queue = subscription.queue
    audit = Audit(queue, _begun(broker, subscription, wanted), _records(broker, queue))
    broker.audits[queue.name] = audit
    broker.clock.after(wanted.seconds * 1000, partial(audit.records.end, EndedBy.TIME))
    queue.audit = audit.records
    _write_later(broker, audit, EventKind.PRESENT)
    return _told(audit)


def _refusal(broker: Broker, queue: Queue) -> Refuse | None:
    """Why the queue can't be audited now; None if it can."""
    if queue.audit is not None:
        return Refuse(Reason.NOT_ALLOWED, f"An audit of {queue.name!r} is on; stop it first, or wait for its end.")
    others = [name for name, audit in broker.audits.items() if name != queue.name and not audit.is_fetched]
    if len(others) >= MAX_AUDITS:
        return Refuse(
            Reason.LIMIT_EXCEEDED,
            f"There are {len(others)} audits already ({', '.join(others)}); wait until they have ended and the "
            "observer has fetched them.",
        )
    if queue.depth > MAX_PRESENT:
        return Refuse(
            Reason.LIMIT_EXCEEDED,
            f"The subscription holds {queue.depth} messages; an audit can begin with {MAX_PRESENT} at most.",
        )
    return None


def _begun(broker: Broker, subscription: Subscription, wanted: AuditStart) -> AuditState:
    now_ms, epoch = broker.clock.now_us // 1000, broker.log.epoch
    owner, queue = subscription.owner, subscription.queue
    return AuditState(
        audit=f"{epoch}-{now_ms}-{queue.incarnation}",
        queue_name=queue.name,
        subscription_name=subscription.identity.name,
        namespace=owner.namespace if owner is not None else None,
        name=owner.name if owner is not None else None,
        instance_id=broker.instance.id,
        epoch=epoch,
        incarnation=queue.incarnation,
        started_ms=now_ms,
        until_ms=now_ms + wanted.seconds * 1000,
        begin=_totals(queue),
    )


def _records(broker: Broker, queue: Queue) -> QueueAudit:
    return QueueAudit(lambda: broker.clock.now_us, shown_id, lambda reason: _over(broker, queue, reason))


def _totals(queue: Queue) -> AuditTotals:
    totals = queue.totals
    return AuditTotals(
        depth=queue.depth,
        enqueued=totals.enqueued,
        delivered=totals.delivered,
        returned=totals.returned,
        acked=totals.acked,
        dropped=totals.dropped,
        expired=totals.expired,
        dead_lettered=totals.dead_lettered,
        moved=totals.moved,
        purged=totals.purged,
        sojourn=totals.sojourn.snapshot(),
    )


def _over(broker: Broker, queue: Queue, reason: EndedBy) -> None:
    """The audit of the queue has ended: it costs nothing from now on."""
    audit = broker.audits[queue.name]
    queue.audit = None
    told: dict[str, object] = {"ended_ms": broker.clock.now_us // 1000, "end": _totals(queue)}
    audit.state = audit.state.model_copy(update=told)
    if reason in (EndedBy.TIME, EndedBy.REQUEST):
        _write_later(broker, audit, EventKind.WAITING)
    broker.clock.after(KEPT_MS, partial(_forget, broker, audit))


def _forget(broker: Broker, audit: Audit) -> None:
    if broker.audits.get(audit.queue.name) is audit:
        del broker.audits[audit.queue.name]


def _stop(broker: Broker, name: str) -> ManagementReply:
    audit = broker.audits.get(name)
    if audit is None:
        return refusal(_no_audit(name))
    audit.records.end(EndedBy.REQUEST)
    return _told(audit)


def _read(broker: Broker, name: str, wanted: AuditRead) -> ManagementReply:
    audit = broker.audits.get(name)
    if audit is None or wanted.audit not in (None, audit.state.audit):
        return refusal(_no_audit(name))
    chunk = audit.records.fetch(wanted.after)
    state = audit.state_now()
    first, count, records = (chunk.first, chunk.count, bytes(chunk.records)) if chunk else (state.records, 0, b"")
    audit.is_fetched = state.is_written and first >= state.records
    body: Value = {"state": to_value(state), "first": first, "count": count, "records": records}
    return ManagementReply(status=int(StatusCode.OK), description="OK", body=body)


def _no_audit(name: str) -> Refuse:
    return Refuse(Reason.ADDRESS_NOT_FOUND, f"There is no audit of {name!r} now.")


def _told(audit: Audit) -> ManagementReply:
    return ManagementReply(status=int(StatusCode.OK), description="OK", body=to_value(audit.state_now()))


# -- what is in the queue -------------------------------------------------------------------------------------------


def _write_later(broker: Broker, audit: Audit, kind: EventKind) -> None:
    """Write down, in slices from the next turn on, what is in the queue now."""
    audit.unwritten.append((kind, _contents(broker, audit.queue)))
    if not audit.is_writing:
        audit.is_writing = True
        broker.clock.after(0, partial(_write_slice, broker, audit))


def _contents(broker: Broker, queue: Queue) -> Iterator[Entry]:
    """All messages of the queue, as it is now: those that wait, that are about to expire, and that are in flight."""
    waiting = map(itemgetter(1), queue.everything())  # copied now, or read from the log on the way
    return chain(waiting, list(queue.expiry.expired), _in_flight(broker, queue))


def _in_flight(broker: Broker, queue: Queue) -> list[Entry]:
    found: dict[int, Entry] = {}
    for connection in broker.all_connections():
        for link, entry, _ in connection.endpoint.unsettled.all_held():
            if consumed_queue(link.context) is queue:
                found[entry[NUMBER]] = entry
        ledger = transactions_of(connection)
        if ledger is not None:
            for settlement in ledger.settlements():
                if settlement.consumer.queue is queue:
                    found[settlement.held[1][NUMBER]] = settlement.held[1]
    for rollback in broker.work.rollbacks:
        for settlement in rollback.settlements:
            if settlement.unsettled is None and settlement.consumer.queue is queue:
                found[settlement.held[1][NUMBER]] = settlement.held[1]
    return list(found.values())


def _write_slice(broker: Broker, audit: Audit) -> None:
    kind, entries = audit.unwritten[0]
    slice_of, error = take_some(entries, WRITTEN_PER_TURN)
    if kind is EventKind.PRESENT:
        audit.records.came(slice_of, kind)
    else:
        audit.records.waiting(slice_of)
    if error is not None:
        after_ms = retry_after_ms(broker, audit.queue, error, " for its audit")
        broker.clock.after(after_ms, partial(_write_slice, broker, audit))
        return
    if len(slice_of) < WRITTEN_PER_TURN or audit.records.ended_by is EndedBy.OVERFLOW:
        audit.unwritten.popleft()
    if audit.unwritten:
        broker.clock.after(0, partial(_write_slice, broker, audit))
    else:
        audit.is_writing = False
