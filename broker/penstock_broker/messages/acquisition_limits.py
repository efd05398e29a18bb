"""Counts what consumers acquire in transactions.

Must not know how a transaction ends. Source: AMQP 1.0 part 4, 4.4.3; docs/decisions/140-transactional-acquisition.md.
"""

from __future__ import annotations

from penstock_amqp.endpoint.events import Entry
from penstock_broker.queue.consumer import ReceivingLink
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer
from penstock_broker.state.open_transactions import ConnectionTransactions, Settlement, Transaction, transactions_of
from penstock_core import transaction_rules as rules

__all__ = ["acquired", "room"]


def room(broker: Broker, consumer: ReceivingLink) -> int:
    """How many messages more the transaction may acquire in which the link acquires."""
    _, transaction = _acquires_in(consumer)
    settled = consumer.link.presettled
    return rules.acquisition_room(transaction.state, broker.transactions.limits, settled=settled)


def acquired(broker: Broker, consumer: ReceivingLink, entries: list[Entry]) -> None:
    """These were sent, or are being sent. If they were sent settled, they stay with the transaction."""
    if not entries:
        return  # all had expired, or were too long for the link: that is no work of the transaction
    ledger, transaction = _acquires_in(consumer)
    link, clock = consumer.link, broker.clock
    assert isinstance(consumer, Consumer), "nobody else acquires"
    transaction.queues[consumer.queue] = None
    if link.presettled:
        transaction.settlements += [Settlement(consumer, (link, each, clock.now_us), None, None) for each in entries]
    ledger.move(transaction, rules.acquired(transaction.state, clock.now_ms, len(entries), settled=link.presettled))
    if transaction.first_acquired is not None:
        begin, transaction.first_acquired = transaction.first_acquired, None
        begin()


def _acquires_in(consumer: ReceivingLink) -> tuple[ConnectionTransactions, Transaction]:
    ledger, acquisition = transactions_of(consumer.connection), consumer.link.acquisition
    assert ledger is not None and acquisition is not None, "the link is released before its transaction is forgotten"
    return ledger, ledger.by_id[acquisition.txn_id]
