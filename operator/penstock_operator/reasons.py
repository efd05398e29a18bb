"""Every reason that a condition can have, and whether a person must act on it.

The broker's words (`penstock_core.reason`) are copied as they are; those of the operator's own are listed here.
`Stalled` makes Flux, Argo CD and kstatus report a failure, so it is only for what no waiting can mend. Source:
section 5 of the design.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from penstock_core.reason import Reason as BrokerReason

__all__ = ["NEEDS_A_PERSON", "Reason", "needs_a_person", "word"]


class Reason(StrEnum):
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
        Reason.INVALID_SPEC,
        Reason.BROKER_TOO_OLD,
        Reason.OPERATOR_TOO_OLD,
        Reason.NAMESPACE_NOT_ALLOWED,
        Reason.EXCHANGE_ON_OTHER_BROKER,
        Reason.DUPLICATE_SUBSCRIPTION,
        Reason.DUPLICATE_EXCHANGE,
        Reason.NAME_TAKEN,
        Reason.USERS_SECRET_NOT_FOUND,
        Reason.CLIENT_CA_NOT_FOUND,
        Reason.TOKEN_KEYS_NOT_FOUND,
        Reason.CLUSTER_ISSUER_UNKNOWN,
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


def word(reason: str | None) -> str:
    """A broker's reason as a condition may have it; `Refused` if it gave none, or none that Kubernetes takes."""
    return reason if reason is not None and _CAMEL_CASE.fullmatch(reason) else Reason.REFUSED
