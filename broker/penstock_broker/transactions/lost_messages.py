"""Messages of transactions that do not arrive, or not as a whole: their transactions can only be rolled back.

Clients send without waiting in transactions, so nothing may be committed without what its sender put into it. Must not
know how a transaction ends. Source: AMQP 1.0 part 4, 4.4.1; docs/decisions/035-transactions.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock_amqp.endpoint.events import AmqpError, EventKind
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_amqp.endpoint.transactional_states import named_transaction
from penstock_broker.access.connection import Connection
from penstock_broker.queue.consumer import SendingLink
from penstock_broker.state.open_transactions import ConnectionTransactions, transactions_of
from penstock_core import transaction_rules as rules
from penstock_core.reason import REASON_KEY, Reason, Refuse

__all__ = [
    "named_ahead",
    "producer_closing",
    "producer_leaving",
    "refuse_of",
    "set_ahead_rollback_only",
    "set_rollback_only",
]

_SENT_AFTER_CLOSE: Final = Refuse(
    Reason.NOT_ALLOWED, "A message of it came on a link that the broker had closed; send it again on another."
)
_SENT_AHEAD: Final = Refuse(
    Reason.NOT_ALLOWED, "A message of it came with the attach of its link, which was refused; send it again on another."
)
_ENDED_IN_PART: Final = Refuse(
    Reason.INVALID_REQUEST,
    "A link ended on which a message of it had come in part only; send all of a message before, or abort it.",
)


def set_rollback_only(connection: Connection, txn_id: bytes | None, fault: Refuse | None = None) -> None:
    """A message of a transaction was refused: the transaction can only be rolled back. Without a transaction of this
    name nothing happens.

    `fault` says why. Without it the reason is that of the link which the broker closed last on this connection, because
    the message came after that.
    """
    ledger = transactions_of(connection)
    transaction = ledger.by_id.get(txn_id) if ledger is not None and txn_id is not None else None
    if ledger is not None and transaction is not None:
        ledger.move(transaction, rules.with_fault(transaction.state, fault or ledger.last_closed or _SENT_AFTER_CLOSE))


def producer_closing(producer: SendingLink, error: AmqpError) -> None:
    """The broker is about to close a link with `error`: what came of it and was not handled, and a message that is
    still coming on it, are lost.
    """
    ledger = transactions_of(producer.connection)
    if ledger is not None:
        ledger.last_closed = refuse_of(error)
        for txn_id in _in_hand(ledger, producer.link):
            set_rollback_only(producer.connection, txn_id)


def producer_leaving(producer: SendingLink) -> None:
    """A link ends, whoever ends it: a message that is still coming on it is lost."""
    if transactions_of(producer.connection) is not None:
        set_rollback_only(producer.connection, named_transaction(producer.link.partial.delivery), _ENDED_IN_PART)


def named_ahead(connection: Connection, link: InLink | OutLink) -> set[bytes]:
    """The transactions of messages that came with the attach of their link, which is to be answered now."""
    ledger = transactions_of(connection)
    return _in_hand(ledger, link) if ledger is not None and isinstance(link, InLink) else set()


def set_ahead_rollback_only(connection: Connection, names: Iterable[bytes]) -> None:
    """The attach was refused: these are lost."""
    for txn_id in names:
        set_rollback_only(connection, txn_id, _SENT_AHEAD)


def _in_hand(ledger: ConnectionTransactions, link: InLink) -> set[bytes]:
    """The transactions that are named by what came of a link and is not handled yet. The link is not freed."""
    deliveries = [link.partial.delivery]
    for event in ledger.behind:
        if event[0] is EventKind.MESSAGES and event[1] is link:
            deliveries += [delivery for delivery, _, _ in event[2]]
    return {name for name in map(named_transaction, deliveries) if name is not None}


def refuse_of(error: AmqpError) -> Refuse:
    """The error of a message as the reason why its transaction is refused."""
    try:
        reason = Reason(error.info.get(REASON_KEY))
    except ValueError:
        reason = Reason.INVALID_REQUEST
    return Refuse(reason, error.description)
