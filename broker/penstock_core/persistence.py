"""Whether a message that reaches a durable queue is written to the log.

AMQP's default is not durable, and people lose messages because they forget to ask: so an exchange or a subscription
that a resource declares keeps every message unless it says otherwise. Source: docs/decisions/036-what-is-durable.md.
"""

from __future__ import annotations

from penstock_core.terms import Persistence

__all__ = ["effective_persistence", "is_kept"]


def effective_persistence(exchange: Persistence | None, queue: Persistence | None, *, managed: bool) -> Persistence:
    """The policy that holds: the queue's or subscription's own, else the exchange's, else Always for a managed one."""
    if queue is not None:
        return queue
    if exchange is not None:
        return exchange
    return Persistence.ALWAYS if managed else Persistence.AS_SENT


def is_kept(policy: Persistence, message_durable: bool) -> bool:
    """True if the message counts as durable for a durable queue with this policy."""
    return message_durable or policy is Persistence.ALWAYS
