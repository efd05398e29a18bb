"""Answers to deliveries of a peer that belong to a transaction: a declare, and messages that were posted in one.

This module must not know queues or subscriptions. Source: AMQP 1.0 part 4, 4.3 and 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock_amqp.endpoint import conditions, transactional_states
from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.engine import Engine
from penstock_amqp.endpoint.events import AmqpError
from penstock_amqp.endpoint.settlement import DeliverySettlement

__all__ = ["TransactionAnswers"]


class TransactionAnswers:
    """Those of one connection. Each settles as any other answer does (`DeliverySettlement`)."""

    __slots__ = ("_engine", "_settlement")

    def __init__(self, engine: Engine, settlement: DeliverySettlement) -> None:
        self._engine, self._settlement = engine, settlement

    def declared(self, received: Ptr, txn_id: bytes) -> None:
        """Answer a declare with the name of the new transaction."""
        self._settlement.answer_as((received,), transactional_states.DECLARED, transactional_states.declared(txn_id))

    def accept(self, txn_id: bytes, received: Iterable[Ptr]) -> None:
        """Accept for the case that the transaction commits."""
        fields = transactional_states.accepted_in(txn_id)
        self._settlement.answer_as(received, transactional_states.TRANSACTIONAL, fields)

    def reject(self, txn_id: bytes, received: Ptr, error: AmqpError) -> None:
        """Reject within a transaction."""
        fields = transactional_states.rejected_in(txn_id, conditions.fitted(error, self._engine.frame_bytes))
        self._settlement.answer_as((received,), transactional_states.TRANSACTIONAL, fields)
