"""The condition StorageFilling of a Broker: its volume is more than 70 % full, and which queues hold most of it.

The broker decides the level, with its hysteresis, and finds the queues; here they become a condition. Shares are told
in steps of 5 %, so that a backlog that grows does not write a new status every few seconds. Source:
docs/decisions/076-nothing-lost-by-default.md.
"""

from __future__ import annotations

from typing import Final

from penstock_api.state_documents import BrokerState, LargeQueue
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition

__all__ = ["storage_facts", "storage_filling"]

STORAGE_FILLING: Final = "StorageFilling"

_STEP: Final = 5
"""Per cent."""

_LEVELS: Final = {
    "High": (ConditionReason.STORAGE_HIGH, "More than 70 % of the volume is in use."),
    "Critical": (ConditionReason.STORAGE_CRITICAL, "More than 85 % of the volume is in use."),
    "HeldBack": (
        ConditionReason.STORAGE_CRITICAL,
        "Less than a tenth and 4 GiB of the volume are left, and producers of durable messages are slowed down.",
    ),
    "Full": (ConditionReason.STORAGE_CRITICAL, "The volume is full, and durable messages are refused."),
}

_CURE: Final = (
    "Let their consumers work, give them `limits.maxBytes` with an `overflow` if they may lose messages, have "
    "subscriptions that clients left behind end by `delivery.idleExpirySeconds` of the Broker, or enlarge the volume "
    "(docs/how-to/grow-a-volume.md)."
)


def storage_filling(state: BrokerState) -> StatusCondition | None:
    """StorageFilling; only while more than 70 % of the volume is in use."""
    if state.storage_level == "Ok":
        return None
    known = _LEVELS.get(state.storage_level)
    if known is None:
        message = (
            f"The broker reports the level {state.storage_level} for its volume, which this operator does not know. "
            "Upgrade the operator."
        )
        return StatusCondition(STORAGE_FILLING, ConditionStatus.UNKNOWN, ConditionReason.OPERATOR_TOO_OLD, message)
    reason, fact = known
    told = ", ".join(_told(*each) for each in storage_facts(state)[1])
    # The names come last: clients may choose them, and a message that is too long is cut off at its end.
    largest = f" The largest queues: {told}." if told else ""
    return StatusCondition(STORAGE_FILLING, ConditionStatus.TRUE, reason, f"{fact} {_CURE}{largest}")


def storage_facts(state: BrokerState) -> tuple[str, tuple[tuple[str, int | None, bool], ...]]:
    """All that the condition says: the level; of each large queue its name, its share of the volume in per cent (None:
    the volume's size is not known), and whether somebody consumes from it.
    """
    return state.storage_level, tuple(
        (each.queue_name, _share(each, state.volume_bytes), each.consumers > 0) for each in state.largest_queues
    )


def _share(queue: LargeQueue, volume_bytes: int) -> int | None:
    return _STEP * round(100 * queue.depth_bytes / volume_bytes / _STEP) if volume_bytes else None


def _told(name: str, share: int | None, is_consumed: bool) -> str:
    size = "" if share is None else f"about {share} % of the volume, " if share else f"less than {_STEP} %, "
    return f"{name!r} ({size}{'consumed' if is_consumed else 'without a consumer'})"
