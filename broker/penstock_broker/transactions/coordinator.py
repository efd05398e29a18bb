"""Answers coordinator links: the attach, declares and discharges.

A refusal is a rejected outcome, or the end of the link where its source does not name that outcome. The answer to a
discharge whose transaction wrote to the log is sent once the record is synced, and not before its messages are in all
of their queues. The end of its link, session or connection is answered behind it. Source: AMQP 1.0 part 4, 4.1 to 4.3;
docs/decisions/035-transactions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
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
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.errors import amqp_error
from penstock_broker.messages.accepts import close_senders
from penstock_broker.state.broker import Broker
from penstock_broker.state.fan_outs import FanOut
from penstock_broker.state.open_transactions import ConnectionTransactions, Coordinator, transactions_of
from penstock_broker.transactions import commit, rollback
from penstock_core import transaction_rules as rules
from penstock_core.reason import Reason, Refuse

__all__ = ["MAX_REQUEST_BYTES", "attach_coordinator", "close", "receive", "refuse_unreadable", "when_discharged"]

WINDOW: Final = 64
"""Requests that a client may send ahead."""

MAX_REQUEST_BYTES: Final = 4096
"""Longest request."""

_SENT_SETTLED: Final = Refuse(
    Reason.INVALID_REQUEST,
    "A declare is answered with the name of the transaction, a discharge with what became of it; don't settle them.",
)

_REJECTED: Final = frozenset(("amqp:rejected:list",))


def attach_coordinator(broker: Broker, connection: Connection, link: InLink, attach: Attach) -> None:
    """Answer the attach of a link whose target is the coordinator."""
    source = attach.source or Source()
    can_reject = source.outcomes is None or not _REJECTED.isdisjoint(source.outcomes)
    ledger = transactions_of(connection)
    if ledger is None:
        ledger = connection.transactions = ConnectionTransactions(connection.number, broker.transactions)
    link.context = Coordinator(connection, link, ledger.outcomes, can_reject=can_reject)
    connection.flush()  # the reply has to begin on a frame boundary to be rewritten
    connection.endpoint.attach_reply(
        link,
        source=source,
        target=CoordinatorTarget(capabilities=tuple(Symbol(name) for name in transaction_types.CAPABILITIES)),
        answers_unsettled=attach.unsettled is not None,
        max_message_bytes=MAX_REQUEST_BYTES,
    )
    link.is_request = True
    connection.endpoint.watch_requests(link)
    connection.endpoint.input.parts_ends = True
    connection.endpoint.credit(link, WINDOW)


def receive(broker: Broker, coordinator: Coordinator, batch: list[Arrival]) -> None:
    """Do what these requests ask for, one after the other."""
    unfinished = coordinator.link.unfinished
    for delivery, data, is_settled in batch:
        in_part = unfinished.pop(delivery, None) if unfinished else None
        if coordinator.is_closing or not coordinator.link.is_open:
            return
        try:
            request = transaction_types.read_request(data)
        except DecodeError as error:
            told = AmqpError("amqp:decode-error", f"A coordinator takes declare and discharge: {error}")
            _refuse(broker, coordinator, delivery, told, is_settled=is_settled)
            continue
        match request:
            case _ if is_settled:
                close(broker, coordinator, amqp_error(_SENT_SETTLED))
            case transaction_types.Declare():
                _declare(broker, coordinator, delivery, request)
            case transaction_types.Discharge():
                _discharge(broker, coordinator, delivery, request, in_part or ())
            case _:
                assert_never(request)
    coordinator.owed_credit += len(batch)
    if coordinator.owed_credit * 2 >= WINDOW and coordinator.link.is_open and not coordinator.is_closing:
        coordinator.connection.endpoint.credit(coordinator.link, coordinator.owed_credit)
        coordinator.owed_credit = 0


def refuse_unreadable(broker: Broker, coordinator: Coordinator, event: Unstored) -> None:
    """Something came that is no message, so early that the attach of the link was not answered."""
    if not coordinator.is_closing:
        _refuse(broker, coordinator, event.delivery, event.error, is_settled=event.is_settled)
        coordinator.owed_credit += 1


def _declare(broker: Broker, coordinator: Coordinator, delivery: Ptr, request: transaction_types.Declare) -> None:
    ledger = _ledger(coordinator)
    limits = broker.transactions.limits
    decision = rules.decide_declare(ledger.usage, limits, names_global=request.global_id is not None)
    if isinstance(decision, Refuse):
        _refuse(broker, coordinator, delivery, amqp_error(decision))
        return
    coordinator.connection.endpoint.transactions.declared(delivery, ledger.add(coordinator).id)


def _discharge(
    broker: Broker,
    coordinator: Coordinator,
    delivery: Ptr,
    request: transaction_types.Discharge,
    in_part: Collection[bytes],
) -> None:
    """`in_part`: the transactions of which a message had come in part when the request came."""
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
            if transaction.id in in_part:
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
    coordinator.outcomes.unsent += 1
    coordinator.connection.endpoint.input.awaits_outcomes = True
    accept = partial(_accept, broker, coordinator, delivery)
    fan_out = _last_fan_out(broker)
    if fan_out is not None and fan_out is not before:  # what was posted is on its way into very many queues
        accept = partial(_accept_behind, broker, coordinator, fan_out, accept)
    if is_logged:
        broker.sync.after_sync(coordinator.connection, accept)
    else:  # if it was rolled back, everything is in its place by the time of the answer
        answer = partial(_answer, broker, coordinator, delivery, refuse, accept)
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
    refuse: Refuse | None,
    accept: Callable[[], None],
) -> None:
    if refuse is None:
        accept()
        return
    if coordinator.link.is_open:
        _refuse(broker, coordinator, delivery, amqp_error(refuse))
        broker.work.touch(coordinator.connection)
    _sent(coordinator)


def _accept(broker: Broker, coordinator: Coordinator, delivery: Ptr) -> None:
    if coordinator.link.is_open:
        coordinator.connection.endpoint.accept([delivery])
        broker.work.touch(coordinator.connection)
    _sent(coordinator)


def _sent(coordinator: Coordinator) -> None:
    """A discharge is answered, or its link is gone: do what waited for that, unless the connection is gone as well."""
    behind = coordinator.outcomes.sent()
    if coordinator.connection.phase is Phase.OPEN:
        coordinator.connection.endpoint.input.awaits_outcomes = coordinator.outcomes.unsent > 0
        for action in behind:
            action()


def when_discharged(connection: Connection, action: Callable[[], None]) -> None:
    """Answer the end of a link behind the outcomes of the connection's discharges."""
    ledger = transactions_of(connection)
    if ledger is None:
        action()
    else:
        ledger.outcomes.when_sent(action)


def _refuse(
    broker: Broker, coordinator: Coordinator, delivery: Ptr, error: AmqpError, *, is_settled: bool = False
) -> None:
    if is_settled or not coordinator.can_reject:
        close(broker, coordinator, error)
    else:
        coordinator.connection.endpoint.reject([delivery], error)


def close(broker: Broker, coordinator: Coordinator, error: AmqpError) -> None:
    """Close the link, behind the outcomes that are still to be sent; its transactions are rolled back."""
    coordinator.is_closing = True
    rollback.roll_back_coordinator(broker, coordinator)
    coordinator.outcomes.when_sent(partial(_detach, broker, coordinator.connection, coordinator.link, error))


def _detach(broker: Broker, connection: Connection, link: InLink, error: AmqpError) -> None:
    link.context = None
    if link.is_open:
        connection.endpoint.detach(link, closed=True, error=error)
        broker.work.touch(connection)


def _ledger(coordinator: Coordinator) -> ConnectionTransactions:
    ledger = transactions_of(coordinator.connection)
    assert ledger is not None, "made with the attach"
    return ledger
