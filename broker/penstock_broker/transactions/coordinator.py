"""Answers coordinator links: the attach, declares and discharges.

A refusal is a rejected outcome, or the end of the link where its source does not name that outcome. The answer to a
discharge whose transaction wrote to the log is sent once the record is synced, and not before its messages are in all
of their queues. Source: AMQP 1.0 part 4, 4.1 to 4.3; docs/decisions/035-transactions.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, assert_never

from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.events import AmqpError, Arrival, Unstored
from penstock_amqp.endpoint.links import InLink
from penstock_amqp.errors import DecodeError
from penstock_amqp.frames.performatives import Attach, Source
from penstock_amqp.frames.performatives import Coordinator as CoordinatorTarget
from penstock_amqp.messages import transaction_types
from penstock_amqp.types.values import Symbol
from penstock_broker.access.connection import Connection
from penstock_broker.errors import amqp_error
from penstock_broker.messages.accepts import close_senders
from penstock_broker.state.broker import Broker
from penstock_broker.state.fan_outs import FanOut
from penstock_broker.state.open_transactions import ConnectionTransactions, Coordinator, transactions_of
from penstock_broker.transactions import commit, rollback
from penstock_core import transaction_rules as rules
from penstock_core.reason import Reason, Refuse

__all__ = ["MAX_REQUEST_BYTES", "attach_coordinator", "close", "receive", "refuse_unreadable"]

WINDOW: Final = 64
"""Requests that a client may send ahead."""

MAX_REQUEST_BYTES: Final = 4096
"""Longest request."""

_REJECTED: Final = frozenset(("amqp:rejected:list",))


def attach_coordinator(broker: Broker, connection: Connection, link: InLink, attach: Attach) -> None:
    """Answer the attach of a link whose target is the coordinator."""
    source = attach.source or Source()
    can_reject = source.outcomes is None or not _REJECTED.isdisjoint(source.outcomes)
    link.context = Coordinator(connection, link, can_reject=can_reject)
    if connection.transactions is None:
        connection.transactions = ConnectionTransactions(connection.number, broker.transactions)
    connection.flush()  # the reply has to begin on a frame boundary to be rewritten
    connection.endpoint.attach_reply(
        link,
        source=source,
        target=CoordinatorTarget(capabilities=tuple(Symbol(name) for name in transaction_types.CAPABILITIES)),
        answers_unsettled=attach.unsettled is not None,
        max_message_bytes=MAX_REQUEST_BYTES,
    )
    link.is_request = True
    connection.endpoint.credit(link, WINDOW)


def receive(broker: Broker, coordinator: Coordinator, batch: list[Arrival]) -> None:
    """Do what these requests ask for, one after the other."""
    for delivery, data, is_settled in batch:
        if not coordinator.link.is_open:
            return
        try:
            request = transaction_types.read_request(data)
        except DecodeError as error:
            description = f"A coordinator takes declare and discharge: {error}"
            _refuse(broker, coordinator, delivery, is_settled, AmqpError("amqp:decode-error", description))
            continue
        match request:
            case transaction_types.Declare():
                _declare(broker, coordinator, delivery, is_settled, request)
            case transaction_types.Discharge():
                _discharge(broker, coordinator, delivery, is_settled, request)
            case _:
                assert_never(request)
    coordinator.owed_credit += len(batch)
    if coordinator.owed_credit * 2 >= WINDOW and coordinator.link.is_open:
        coordinator.connection.endpoint.credit(coordinator.link, coordinator.owed_credit)
        coordinator.owed_credit = 0


def refuse_unreadable(broker: Broker, coordinator: Coordinator, event: Unstored) -> None:
    """Something came that is no message, so early that the attach of the link was not answered."""
    _refuse(broker, coordinator, event.delivery, event.is_settled, event.error)
    coordinator.owed_credit += 1


def _declare(
    broker: Broker, coordinator: Coordinator, delivery: Ptr, is_settled: bool, request: transaction_types.Declare
) -> None:
    if is_settled:
        refuse = Refuse(
            Reason.INVALID_REQUEST, "A declare is answered with the name of the transaction; don't settle it."
        )
        _refuse(broker, coordinator, delivery, is_settled, amqp_error(refuse))
        return
    ledger = _ledger(coordinator)
    limits = broker.transactions.limits
    decision = rules.decide_declare(ledger.usage, limits, names_global=request.global_id is not None)
    if isinstance(decision, Refuse):
        _refuse(broker, coordinator, delivery, is_settled, amqp_error(decision))
        return
    coordinator.connection.endpoint.transactions.declared(delivery, ledger.add(coordinator).id)


def _discharge(
    broker: Broker, coordinator: Coordinator, delivery: Ptr, is_settled: bool, request: transaction_types.Discharge
) -> None:
    ledger = _ledger(coordinator)
    transaction = coordinator.transactions.get(request.txn_id)
    decision = rules.decide_discharge(transaction.state if transaction else None, fail=bool(request.fail))
    is_logged = False
    refuse: Refuse | None = None
    before = _last_fan_out(broker)
    match decision:
        case Refuse():
            refuse = decision
        case rules.CommitTransaction():
            assert transaction is not None
            if coordinator.connection.endpoint.posted_in_part(transaction.id):
                close(broker, coordinator, amqp_error(rules.failed_commit(rules.IN_PART)))
                return
            result = commit.commit(broker, ledger, transaction)
            if isinstance(result, Refuse):
                refuse = result
            else:
                is_logged = result
        case rules.RollBackTransaction():
            assert transaction is not None
            rollback.roll_back(broker, ledger, transaction)
            refuse = decision.refuse
        case _:
            assert_never(decision)
    accept = partial(_accept, broker, coordinator, delivery, is_settled)
    fan_out = _last_fan_out(broker)
    if fan_out is not None and fan_out is not before:  # what was posted is on its way into very many queues
        accept = partial(_accept_behind, broker, coordinator, fan_out, accept)
    if is_logged:
        broker.sync.after_sync(coordinator.connection, accept)
    else:  # if it was rolled back, everything is in its place by the time of the answer
        answer = partial(_answer, broker, coordinator, delivery, is_settled, refuse, accept)
        rollback.when_over(broker, coordinator.connection, answer)


def _last_fan_out(broker: Broker) -> FanOut | None:
    fan_outs = broker.work.fan_outs
    return fan_outs[-1] if fan_outs else None


def _accept_behind(broker: Broker, coordinator: Coordinator, fan_out: FanOut, accept: Callable[[], None]) -> None:
    """Accept a commit once its messages are in all of their queues. If they did not come into all, nobody is told that
    it is committed; as after any internal error the connection is closed.
    """
    if not fan_out.is_over:
        fan_out.after.append(partial(_accept_behind, broker, coordinator, fan_out, accept))
    elif fan_out.failure is not None:
        close_senders(broker, (coordinator.connection,), fan_out.failure)
    else:
        accept()


def _answer(
    broker: Broker,
    coordinator: Coordinator,
    delivery: Ptr,
    is_settled: bool,
    refuse: Refuse | None,
    accept: Callable[[], None],
) -> None:
    if refuse is None:
        accept()
    elif coordinator.link.is_open:
        _refuse(broker, coordinator, delivery, is_settled, amqp_error(refuse))
        broker.work.touch(coordinator.connection)


def _accept(broker: Broker, coordinator: Coordinator, delivery: Ptr, is_settled: bool) -> None:
    if not coordinator.link.is_open:
        return
    endpoint = coordinator.connection.endpoint
    if is_settled:
        endpoint.settle([delivery])
    else:
        endpoint.accept([delivery])
    broker.work.touch(coordinator.connection)


def _refuse(broker: Broker, coordinator: Coordinator, delivery: Ptr, is_settled: bool, error: AmqpError) -> None:
    if is_settled or not coordinator.can_reject:
        close(broker, coordinator, error)
    else:
        coordinator.connection.endpoint.reject([delivery], error)


def close(broker: Broker, coordinator: Coordinator, error: AmqpError) -> None:
    """Close the link; its transactions are rolled back."""
    coordinator.link.context = None
    rollback.roll_back_coordinator(broker, coordinator)
    coordinator.connection.endpoint.detach(coordinator.link, closed=True, error=error)


def _ledger(coordinator: Coordinator) -> ConnectionTransactions:
    ledger = transactions_of(coordinator.connection)
    assert ledger is not None, "made with the attach"
    return ledger
