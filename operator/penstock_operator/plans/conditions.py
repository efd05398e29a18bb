"""Conditions: how they are made, and what stays of those that were there.

`lastTransitionTime` moves only when `status` does. Source: Kubernetes API conventions; facts of kstatus in
docs/gitops.md.

Every reason that a condition can have, and whether a person must act on it.

The broker's words (`penstock_core.reason`) are copied as they are; those of the operator's own are listed here.
`Stalled` makes Flux, Argo CD and kstatus report a failure, so it is only for what no waiting can mend. Source:
section 5 of the design.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from penstock_api.resources import Condition as Stored
from penstock_core.reason import Reason as BrokerReason
from penstock_operator.manifest import Manifest

__all__ = [
    "NEEDS_A_PERSON",
    "ConditionReason",
    "ConditionStatus",
    "StatusCondition",
    "condition_reason",
    "needs_a_person",
    "ready_from",
    "render",
    "timestamp",
]


_LONGEST_MESSAGE = 4096


class ConditionStatus(StrEnum):
    """Status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class StatusCondition:
    """One condition to set; one that is not set any more goes."""

    type: str
    status: ConditionStatus
    reason: str
    message: str


def ready_from(conditions: Sequence[StatusCondition], message: str) -> tuple[StatusCondition, ...]:
    """The conditions with Ready in front: the first that isn't True gives it its reason. Stalled is there if a person
    must act.
    """
    failing = next((condition for condition in conditions if condition.status is not ConditionStatus.TRUE), None)
    if failing is None:
        return (StatusCondition("Ready", ConditionStatus.TRUE, ConditionReason.READY, message), *conditions)
    ready = StatusCondition("Ready", failing.status, failing.reason, failing.message)
    if needs_a_person(failing.reason):
        return (ready, *conditions, StatusCondition("Stalled", ConditionStatus.TRUE, failing.reason, failing.message))
    return (ready, *conditions)


def render(
    conditions: Iterable[StatusCondition], *, before: Sequence[Stored], generation: int, now: datetime
) -> list[Manifest]:
    """The conditions as status has them; `before` says since when an unchanged one has been so."""
    known = {stored.type: stored for stored in before}
    return [_render(condition, known.get(condition.type), generation, now) for condition in conditions]


def _render(condition: StatusCondition, before: Stored | None, generation: int, now: datetime) -> Manifest:
    unchanged = before is not None and before.status == condition.status.value
    since = before.last_transition_time if before is not None and unchanged else now
    return {
        "type": condition.type,
        "status": condition.status.value,
        "reason": str(condition.reason),
        "message": condition.message[:_LONGEST_MESSAGE],
        "lastTransitionTime": timestamp(since),
        "observedGeneration": generation,
    }


def timestamp(moment: datetime) -> str:
    """A time as Kubernetes writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class ConditionReason(StrEnum):
    """The operator's own reasons."""

    READY = "Ready"
    ACCEPTED = "Accepted"
    DECLARED = "Declared"
    ADOPTED = "Adopted"
    REBOUND = "Rebound"
    IN_SYNC = "InSync"
    SOURCE_MODIFIED = "SourceModified"
    REBIND_BLOCKED = "RebindBlocked"
    PENDING = "Pending"
    INVALID_SPEC = "InvalidSpec"
    BROKER_NOT_FOUND = "BrokerNotFound"
    BROKER_STOPPED = "BrokerStopped"
    BROKER_UNREACHABLE = "BrokerUnreachable"
    BROKER_TOO_OLD = "BrokerTooOld"
    OPERATOR_TOO_OLD = "OperatorTooOld"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    EXCHANGE_NOT_FOUND = "ExchangeNotFound"
    EXCHANGE_ON_OTHER_BROKER = "ExchangeOnOtherBroker"
    DUPLICATE_SUBSCRIPTION = "DuplicateSubscription"
    DUPLICATE_EXCHANGE = "DuplicateExchange"
    NAME_TAKEN = "NameTaken"
    PREDECESSOR_LEAVING = "PredecessorLeaving"
    REFUSED = "Refused"
    PAUSED_BY_ANNOTATION = "PausedByAnnotation"
    PROTECTED_BY_ANNOTATION = "ProtectedByAnnotation"
    # Broker
    SERVING = "Serving"
    SCALED_TO_ZERO = "ScaledToZero"
    POD_NOT_READY = "PodNotReady"
    PINNED = "Pinned"
    UPDATE_AVAILABLE = "UpdateAvailable"
    USERS_SECRET_NOT_FOUND = "UsersSecretNotFound"
    CLIENT_CA_NOT_FOUND = "ClientCaNotFound"
    TOKEN_KEYS_NOT_FOUND = "TokenKeysNotFound"
    CLUSTER_ISSUER_UNKNOWN = "ClusterIssuerUnknown"
    TAKEOVERS_REPEATED = "TakeoversRepeated"
    TAKEOVERS_ENDED = "TakeoversEnded"
    PLAIN_TEXT_PASSWORDS = "PlainTextPasswords"
    SCHEDULED = "Scheduled"
    SUSPENDED = "Suspended"
    DISABLED = "Disabled"
    CRD_NOT_INSTALLED = "CRDNotInstalled"
    VALIDATION_FAILED = "ValidationFailed"
    RUN_STUCK = "RunStuck"
    RUN_OVERDUE = "RunOverdue"
    # Lagging
    WITHIN_THRESHOLDS = "WithinThresholds"
    BACKLOG_ABOVE_THRESHOLD = "BacklogAboveThreshold"
    OLDEST_MESSAGE_TOO_OLD = "OldestMessageTooOld"
    LAG_REPORT_STALE = "LagReportStale"


NEEDS_A_PERSON: Final[frozenset[str]] = frozenset(
    {
        ConditionReason.INVALID_SPEC,
        ConditionReason.BROKER_TOO_OLD,
        ConditionReason.OPERATOR_TOO_OLD,
        ConditionReason.NAMESPACE_NOT_ALLOWED,
        ConditionReason.EXCHANGE_ON_OTHER_BROKER,
        ConditionReason.DUPLICATE_SUBSCRIPTION,
        ConditionReason.DUPLICATE_EXCHANGE,
        ConditionReason.NAME_TAKEN,
        ConditionReason.USERS_SECRET_NOT_FOUND,
        ConditionReason.CLIENT_CA_NOT_FOUND,
        ConditionReason.TOKEN_KEYS_NOT_FOUND,
        ConditionReason.CLUSTER_ISSUER_UNKNOWN,
        BrokerReason.EXCLUSIVITY_MISMATCH.value,
        BrokerReason.MANAGED.value,
        BrokerReason.INVALID_SELECTOR.value,
        BrokerReason.INVALID_BINDING_KEY.value,
        BrokerReason.INVALID_NAME.value,
        BrokerReason.INVALID_ADDRESS.value,
        BrokerReason.INVALID_REQUEST.value,
        BrokerReason.IMMUTABLE.value,
        BrokerReason.NOT_PERMITTED.value,
        BrokerReason.LIMIT_EXCEEDED.value,
        BrokerReason.NOT_IMPLEMENTED.value,
    }
)
"""Reasons that time does not mend; the resource gets condition Stalled and is looked at again only with the resync."""

_CAMEL_CASE: Final = re.compile("[A-Z][A-Za-z0-9]{0,127}")


def needs_a_person(reason: str) -> bool:
    """Whether waiting can't help."""
    return reason in NEEDS_A_PERSON


def condition_reason(reason: str | None) -> str:
    """A broker's reason as a condition may have it; `Refused` if it gave none, or none that Kubernetes takes."""
    return reason if reason is not None and _CAMEL_CASE.fullmatch(reason) else ConditionReason.REFUSED
