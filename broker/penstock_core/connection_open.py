"""What the Open reply offers, and what happens to a second connection of one container.

Source: docs/decisions/013-container-uniqueness.md, docs/decisions/015-offered-capabilities.md; "Enforcing Connection
Uniqueness 1.0" for sole-connection-for-container; and what the JMS client expects: an Open with
``amqp:connection-establishment-failed``, then a Close with invalid-field and info ``invalid-field: container-id``.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, assert_never

from penstock_core.attach_table import SHARED_SUBS
from penstock_core.reason import Reason, Refuse

__all__ = [
    "ENFORCEMENT_POLICY",
    "ESTABLISHMENT_FAILED",
    "TAKEN_OVER",
    "Admit",
    "Capability",
    "ClosePredecessor",
    "Enforcement",
    "Predecessor",
    "Probe",
    "ProbeResult",
    "SoleDecision",
    "decide_sole_connection",
    "offer",
]

ENFORCEMENT_POLICY: Final = "sole-connection-enforcement-policy"
"""The Open property that names the policy."""

ESTABLISHMENT_FAILED: Final = "amqp:connection-establishment-failed"
"""The Open property that announces a Close right behind."""


class Capability(enum.Enum):
    """What an Open can offer, in the order of decision 15; values are the symbols on the wire."""

    SHARED_SUBS = SHARED_SUBS
    ANONYMOUS_RELAY = "ANONYMOUS-RELAY"
    DELAYED_DELIVERY = "DELAYED_DELIVERY"
    SOLE_CONNECTION = "sole-connection-for-container"


def offer(working: Collection[Capability]) -> tuple[str, ...]:
    """The offered capabilities: those that work now and no others, because a client does not check again what is
    offered.
    """
    return tuple(capability.value for capability in Capability if capability in working)


class Enforcement(enum.Enum):
    """How a connection wants its uniqueness enforced (property ``sole-connection-enforcement-policy`` of its Open, and
    of our answer to it); values are those on the wire.
    """

    REFUSE = 0
    CLOSE_EXISTING = 1


class ProbeResult(enum.Enum):
    """What is known about the predecessor's peer."""

    UNKNOWN = "unknown"
    ALIVE = "alive"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predecessor:
    """The connection that is open under the same container-id."""

    is_sole: bool
    """It asked to be the only connection of its container, and the broker agreed."""
    enforcement: Enforcement
    """If it did: what it asked to happen when another connection of its container opens."""
    user: str
    probe: ProbeResult


@dataclass(frozen=True, slots=True)
class Admit:
    """Open the connection; others of its container stay as they are."""


@dataclass(frozen=True, slots=True)
class Probe:
    """First find out whether the predecessor's peer still answers (an empty frame and TCP_INFO), then decide again."""


@dataclass(frozen=True, slots=True)
class ClosePredecessor:
    """Close the predecessor, then open the new connection."""

    told: Refuse
    """The error that the predecessor is closed with; its peer may be gone and never read it."""


SoleDecision = Admit | Probe | ClosePredecessor | Refuse

TAKEN_OVER: Final = Refuse(
    Reason.CONTAINER_TAKEN_OVER,
    "Another connection of this container-id opened and asked to be the only one; give each process its own.",
    (("sole-connection-enforcement", True),),
)


def decide_sole_connection(
    *,
    asks_sole: bool,
    enforcement: Enforcement,
    user: str,
    may_use_others: bool,
    predecessor: Predecessor | None,
) -> SoleDecision:
    """Decide an Open whose container-id another connection may hold.

    Only one of the two may stay if either of them asked to be the only one. Which one is said by the policy of the
    older one, on which it was agreed when that one opened; by that of the new one only if the older one had asked for
    nothing.
    """
    if predecessor is None or not (asks_sole or predecessor.is_sole):
        return Admit()
    match predecessor.probe:
        case ProbeResult.UNKNOWN:
            return Probe()
        case ProbeResult.DEAD:
            return ClosePredecessor(TAKEN_OVER)
        case ProbeResult.ALIVE:
            mine = predecessor.user == user or may_use_others
            policy = predecessor.enforcement if predecessor.is_sole else enforcement
            if policy is Enforcement.CLOSE_EXISTING and mine:
                return ClosePredecessor(TAKEN_OVER)
            return _in_use()
        case _:
            assert_never(predecessor.probe)


def _in_use() -> Refuse:
    return Refuse(
        Reason.CONTAINER_IN_USE,
        "Another connection holds this container-id (JMS ClientID) and is alive; close it, or use another one.",
        (("invalid-field", "container-id"),),
    )
