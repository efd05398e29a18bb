"""Conditions of a resource's status, all reasons that they can have, and whether a person must act on a reason.

`lastTransitionTime` changes only when the condition's status does. Reasons of a refusal by the broker
(`penstock_core.reason`) are used as they are; the operator's own are listed here. Flux, Argo CD and kstatus report
condition `Stalled` as a failure, so a resource has it only if waiting does not help. Source:
docs/decisions/056-conditions.md; Kubernetes API conventions; docs/how-to/gitops.md (kstatus).
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
    "FRESH",
    "LAGGING",
    "NEEDS_A_PERSON",
    "OF_LAG",
    "ConditionReason",
    "ConditionStatus",
    "StatusCondition",
    "condition_reason",
    "is_shown",
    "needs_a_person",
    "ready_from",
    "render",
    "timestamp",
    "told",
]


LAGGING: Final = "Lagging"
FRESH: Final = "LagFresh"
OF_LAG: Final = frozenset({LAGGING, FRESH})
"""Conditions of a Subscription or a Queue that the field manager `penstock-lag` writes, and no plan."""

_MAX_MESSAGE_CHARACTERS: Final = 4096
_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_OF_ONE_ATTEMPT: Final = re.compile(rf"{_UUID}|\w*\d\w*")
"""What may be another word at each attempt: the id of a request, a time, the port of a connection."""
_PAGE_OF_REASONS: Final = "docs/how-to/runbooks/reasons.md"


class ConditionStatus(StrEnum):
    """The status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class StatusCondition:
    """One condition to write. A condition of the resource that is not among those written is removed."""

    type: str
    status: ConditionStatus
    reason: str
    message: str


def ready_from(conditions: Sequence[StatusCondition], message: str) -> tuple[StatusCondition, ...]:
    """The conditions with Ready in front; if a person must act, Stalled is added.

    Ready has the status, reason and message of the first condition that isn't True; else it is True with `message`.
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
    """The conditions as the status contains them; `before`: those that it contains now, for `lastTransitionTime`."""
    known = {stored.type: stored for stored in before}
    return [_render(condition, known.get(condition.type), generation, now) for condition in conditions]


def _render(condition: StatusCondition, before: Stored | None, generation: int, now: datetime) -> Manifest:
    unchanged = before is not None and before.status == condition.status.value
    since = before.last_transition_time if before is not None and unchanged else now
    is_same_spec = before is not None and before.observed_generation == generation
    is_shown_already = before is not None and is_same_spec and _is_attempted_again(condition, before)
    return {
        "type": condition.type,
        "status": condition.status.value,
        "reason": str(condition.reason),
        "message": before.message if before is not None and is_shown_already else told(condition),
        "lastTransitionTime": timestamp(since),
        "observedGeneration": generation,
    }


def _is_attempted_again(condition: StatusCondition, shown: Stored) -> bool:
    """Whether a webhook or a policy refuses the same as before, in words of which only those of this attempt differ."""
    if not condition.reason == shown.reason == ConditionReason.DENIED_BY_ADMISSION:
        return False
    before, now = (_OF_ONE_ATTEMPT.sub("#", text) for text in (shown.message, told(condition)))
    return before == now


def told(condition: StatusCondition) -> str:
    """The message as the status contains it. If a person must act it ends with the line of the page that says how.

    A message that comes from a status, and so ends with that already, stays as it is.
    """
    if not needs_a_person(condition.reason):
        return condition.message[:_MAX_MESSAGE_CHARACTERS]
    link = f" See {_PAGE_OF_REASONS}#{condition.reason}."
    return condition.message.removesuffix(link)[: _MAX_MESSAGE_CHARACTERS - len(link)] + link


def is_shown(condition: StatusCondition, shown: Iterable[Stored]) -> bool:
    """Whether a status says this already: what lasts is no news for the log."""
    message = told(condition)
    same = (stored for stored in shown if stored.type == condition.type)
    return any(stored.message == message or _is_attempted_again(condition, stored) for stored in same)


def timestamp(moment: datetime) -> str:
    """A UTC time in the format of Kubernetes: RFC 3339, to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class ConditionReason(StrEnum):
    """The operator's own reasons, by the conditions that have them."""

    # Ready, Accepted
    READY = "Ready"
    ACCEPTED = "Accepted"
    # Declared, Bound, Matched
    DECLARED = "Declared"
    ADOPTED = "Adopted"
    REBOUND = "Rebound"
    IN_SYNC = "InSync"
    SOURCE_MODIFIED = "SourceModified"
    REBIND_BLOCKED = "RebindBlocked"
    PENDING = "Pending"
    # Why a resource is not accepted, or not declared
    INVALID_SPEC = "InvalidSpec"
    REFERENCE_UNREADABLE = "ReferenceUnreadable"
    BROKER_NOT_FOUND = "BrokerNotFound"
    BROKER_DELETING = "BrokerDeleting"
    BROKER_STOPPED = "BrokerStopped"
    BROKER_NOT_ASKED = "BrokerNotAsked"
    BROKER_UNREACHABLE = "BrokerUnreachable"
    BROKER_TOO_OLD = "BrokerTooOld"
    OPERATOR_TOO_OLD = "OperatorTooOld"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    EXCHANGE_NOT_FOUND = "ExchangeNotFound"
    EXCHANGE_ON_OTHER_BROKER = "ExchangeOnOtherBroker"
    DUPLICATE_SUBSCRIPTION = "DuplicateSubscription"
    DUPLICATE_EXCHANGE = "DuplicateExchange"
    DUPLICATE_QUEUE = "DuplicateQueue"
    NAME_TAKEN = "NameTaken"
    PREDECESSOR_LEAVING = "PredecessorLeaving"
    REFUSED = "Refused"
    # Why a resource is not accepted: the API server refuses an object that belongs to it
    QUOTA_EXCEEDED = "QuotaExceeded"
    DENIED_BY_ADMISSION = "DeniedByAdmission"
    OPERATOR_NOT_ALLOWED = "OperatorNotAllowed"
    FIELD_IMMUTABLE = "FieldImmutable"
    REFUSED_BY_API_SERVER = "RefusedByApiServer"
    # ReconciliationPaused, DeletionBlocked
    PAUSED_BY_ANNOTATION = "PausedByAnnotation"
    PROTECTED_BY_ANNOTATION = "ProtectedByAnnotation"
    # Available and VersionAligned of a Broker
    SERVING = "Serving"
    SCALED_TO_ZERO = "ScaledToZero"
    POD_NOT_READY = "PodNotReady"
    PINNED = "Pinned"
    UPDATE_AVAILABLE = "UpdateAvailable"
    # NodeLost
    NODE_NOT_READY = "NodeNotReady"
    NODE_GONE = "NodeGone"
    # Why a Broker is not accepted
    USERS_SECRET_NOT_FOUND = "UsersSecretNotFound"
    CLIENT_CA_NOT_FOUND = "ClientCaNotFound"
    TOKEN_KEYS_NOT_FOUND = "TokenKeysNotFound"
    CLUSTER_ISSUER_UNKNOWN = "ClusterIssuerUnknown"
    SERVER_CERTIFICATE_NOT_FOUND = "ServerCertificateNotFound"
    SERVER_CERTIFICATE_PENDING = "ServerCertificatePending"
    CERT_MANAGER_NOT_INSTALLED = "CertManagerNotInstalled"
    # ServerCertificate
    CERTIFICATE_VALID = "CertificateValid"
    CERTIFICATE_EXPIRING = "CertificateExpiring"
    CERTIFICATE_EXPIRED = "CertificateExpired"
    NAMES_MISSING = "NamesMissing"
    # StorageFilling
    STORAGE_HIGH = "StorageHigh"
    STORAGE_CRITICAL = "StorageCritical"
    # Why a Broker whose volumes are to have another size is not accepted
    SHRINK_REFUSED = "ShrinkRefused"
    EXPANSION_NOT_ALLOWED = "ExpansionNotAllowed"
    EXPANSION_REFUSED = "ExpansionRefused"
    # StorageResizing
    EXPANSION_PENDING = "ExpansionPending"
    FILE_SYSTEM_RESIZE_PENDING = "FileSystemResizePending"
    EXPANSION_FAILED = "ExpansionFailed"
    CLAIM_NOT_BOUND = "ClaimNotBound"
    STATEFUL_SET_REPLACED = "StatefulSetReplaced"
    # ContainersContested, InsecurePlain
    TAKEOVERS_REPEATED = "TakeoversRepeated"
    TAKEOVERS_ENDED = "TakeoversEnded"
    PLAIN_TEXT_PASSWORDS = "PlainTextPasswords"
    # In an Event about a Broker
    MANAGED_BY_OTHER_OPERATOR = "ManagedByOtherOperator"
    # LagAnalysisScheduled
    SCHEDULED = "Scheduled"
    SUSPENDED = "Suspended"
    DISABLED = "Disabled"
    CRD_NOT_INSTALLED = "CRDNotInstalled"
    VALIDATION_FAILED = "ValidationFailed"
    RUN_STUCK = "RunStuck"
    RUN_OVERDUE = "RunOverdue"
    TOO_MANY_BROKERS = "TooManyBrokers"
    NOT_WRITTEN = "NotWritten"
    # Permitted
    GRANTED = "Granted"
    NOT_DELEGATED = "NotDelegated"
    # ScaleToken, BindingSecret
    WRITTEN = "Written"
    # Lagging
    WITHIN_THRESHOLDS = "WithinThresholds"
    BACKLOG_ABOVE_THRESHOLD = "BacklogAboveThreshold"
    OLDEST_MESSAGE_TOO_OLD = "OldestMessageTooOld"
    # LagFresh; Lagging if LagFresh is not True
    CURRENT = "Current"
    LAG_REPORT_STALE = "LagReportStale"
    OBSERVER_UNREACHABLE = "ObserverUnreachable"


NEEDS_A_PERSON: Final[frozenset[str]] = frozenset(
    {
        ConditionReason.INVALID_SPEC,
        ConditionReason.REFERENCE_UNREADABLE,
        ConditionReason.BROKER_TOO_OLD,
        ConditionReason.OPERATOR_TOO_OLD,
        ConditionReason.NAMESPACE_NOT_ALLOWED,
        ConditionReason.NOT_DELEGATED,
        ConditionReason.EXCHANGE_ON_OTHER_BROKER,
        ConditionReason.DUPLICATE_SUBSCRIPTION,
        ConditionReason.DUPLICATE_EXCHANGE,
        ConditionReason.DUPLICATE_QUEUE,
        ConditionReason.NAME_TAKEN,
        ConditionReason.USERS_SECRET_NOT_FOUND,
        ConditionReason.CLIENT_CA_NOT_FOUND,
        ConditionReason.TOKEN_KEYS_NOT_FOUND,
        ConditionReason.CLUSTER_ISSUER_UNKNOWN,
        ConditionReason.SERVER_CERTIFICATE_NOT_FOUND,
        ConditionReason.CERT_MANAGER_NOT_INSTALLED,
        ConditionReason.QUOTA_EXCEEDED,
        ConditionReason.DENIED_BY_ADMISSION,
        ConditionReason.OPERATOR_NOT_ALLOWED,
        ConditionReason.FIELD_IMMUTABLE,
        ConditionReason.REFUSED_BY_API_SERVER,
        ConditionReason.SHRINK_REFUSED,
        ConditionReason.EXPANSION_NOT_ALLOWED,
        ConditionReason.EXPANSION_REFUSED,
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
"""Reasons for which waiting does not help: the resource gets condition Stalled, and is reconciled again only when it
changes and at each resync.
"""

_CAMEL_CASE: Final = re.compile("[A-Z][A-Za-z0-9]{0,127}")


def needs_a_person(reason: str) -> bool:
    """Whether a person must act, because waiting does not help."""
    return reason in NEEDS_A_PERSON


def condition_reason(reason: str | None) -> str:
    """The reason of a broker's refusal; `Refused` if it gave none, or one that Kubernetes does not accept."""
    return reason if reason is not None and _CAMEL_CASE.fullmatch(reason) else ConditionReason.REFUSED
