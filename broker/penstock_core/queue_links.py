"""What a link may do with a queue that its address names.

On a queue the distribution mode ``copy`` browses, and any other mode consumes (decision 11). Whoever may manage a
subscription can browse its queue, but not consume from it by the queue's name: messages of a subscription are consumed
by attaching to the subscription. Source: docs/decisions/011-browsing.md, docs/decisions/018-addresses.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock_core.address import QueueAddress, SubscriptionQueue
from penstock_core.identity import queue_name
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import DistributionMode

__all__ = ["Browse", "Consume", "decide_publish", "decide_queue_attach"]


@dataclass(frozen=True, slots=True)
class Browse:
    """Send copies; nothing leaves the queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class Consume:
    """Messages move to the link."""

    queue: str


def decide_queue_attach(
    address: QueueAddress | SubscriptionQueue, mode: DistributionMode | None, *, may_manage: bool
) -> Browse | Consume | Refuse:
    """Decide an attach whose source is a queue; ``mode`` is the distribution mode asked, None if absent."""
    if isinstance(address, QueueAddress):
        return Browse(address.queue) if mode is DistributionMode.COPY else Consume(address.queue)
    if may_manage:
        return Browse(queue_name(address.identity))
    return Refuse(
        Reason.NOT_PERMITTED,
        f"Only who may manage the {address.identity} can look into its queue; attach to its exchange to consume.",
    )


def decide_publish(address: QueueAddress | SubscriptionQueue) -> QueueAddress | Refuse:
    """Decide an attach whose target is a queue: nobody puts messages into a subscription past its exchange."""
    if isinstance(address, QueueAddress):
        return address
    return Refuse(
        Reason.NOT_ALLOWED,
        f"The {address.identity} takes messages from its exchange alone; publish there.",
    )
