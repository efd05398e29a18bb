"""Why something was refused: a closed set of reasons, and the AMQP error condition of each.

A reason travels as ``penstock:reason`` in the error's info map and in management answers, and conditions of Kubernetes
resources copy it; no program needs to parse descriptions. Source: docs/decisions/066-reasons-of-refusals.md;
conditions from AMQP 1.0 part 2, sections 2.8.15 to 2.8.18, and part 4, section 4.5.8.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

__all__ = ["CONDITIONS", "REASON_KEY", "ErrorCondition", "InfoValue", "Reason", "Refuse"]

REASON_KEY: Final = "penstock:reason"

InfoValue = str | int | bool


class ErrorCondition(enum.Enum):
    """AMQP error conditions; values are the symbols on the wire."""

    INTERNAL_ERROR = "amqp:internal-error"
    INVALID_FIELD = "amqp:invalid-field"
    LINK_STOLEN = "amqp:link:stolen"
    MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
    NOT_ALLOWED = "amqp:not-allowed"
    NOT_FOUND = "amqp:not-found"
    NOT_IMPLEMENTED = "amqp:not-implemented"
    PRECONDITION_FAILED = "amqp:precondition-failed"
    RESOURCE_DELETED = "amqp:resource-deleted"
    RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
    RESOURCE_LOCKED = "amqp:resource-locked"
    TRANSACTION_ROLLBACK = "amqp:transaction:rollback"
    TRANSACTION_TIMEOUT = "amqp:transaction:timeout"
    TRANSACTION_UNKNOWN_ID = "amqp:transaction:unknown-id"
    UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"


class Reason(enum.Enum):
    """Every reason for which Penstock refuses, closes or waits; values are Kubernetes condition reasons."""

    SUBSCRIPTION_IN_USE = "SubscriptionInUse"
    EXCLUSIVITY_MISMATCH = "ExclusivityMismatch"
    OWNED_BY_OTHER_LINK = "OwnedByOtherLink"
    LINK_LIVE_FOR_OTHER_KIND = "LinkLiveForOtherKind"
    OTHER_CONNECTION = "OtherConnection"
    MANAGED = "Managed"
    CONSUMERS_ACTIVE = "ConsumersActive"
    CONTAINER_TAKEN_OVER = "ContainerTakenOver"
    DUPLICATE_SUBSCRIPTION = "DuplicateSubscription"
    BINDINGS_EXIST = "BindingsExist"
    EXCHANGE_NOT_FOUND = "ExchangeNotFound"
    SUBSCRIPTION_NOT_FOUND = "SubscriptionNotFound"
    QUEUE_NOT_FOUND = "QueueNotFound"
    ADDRESS_NOT_FOUND = "AddressNotFound"
    OTHER_KIND_OF_NODE = "OtherKindOfNode"
    INVALID_SELECTOR = "InvalidSelector"
    INVALID_BINDING_KEY = "InvalidBindingKey"
    INVALID_NAME = "InvalidName"
    INVALID_ADDRESS = "InvalidAddress"
    INVALID_REQUEST = "InvalidRequest"
    CONTAINER_IN_USE = "ContainerInUse"
    OTHER_USER = "OtherUser"
    NOT_PERMITTED = "NotPermitted"
    LOGIN_EXPIRED = "LoginExpired"
    LOGIN_WITHDRAWN = "LoginWithdrawn"
    NOT_ALLOWED = "NotAllowed"
    LIMIT_EXCEEDED = "LimitExceeded"
    STORAGE_FULL = "StorageFull"
    LINK_STOLEN = "LinkStolen"
    MESSAGE_TOO_LONG = "MessageTooLong"
    SUBSCRIPTION_ENDED = "SubscriptionEnded"
    NODE_DELETED = "NodeDeleted"
    NOT_EMPTY = "NotEmpty"
    REBIND_NOT_ALLOWED = "RebindNotAllowed"
    IMMUTABLE = "Immutable"
    TRANSACTION_UNKNOWN = "TransactionUnknown"
    TRANSACTION_ROLLED_BACK = "TransactionRolledBack"
    TRANSACTION_TIMED_OUT = "TransactionTimedOut"
    NOT_IMPLEMENTED = "NotImplemented"
    INTERNAL_ERROR = "InternalError"

    @property
    def condition(self) -> ErrorCondition:
        """The AMQP error condition of this reason."""
        return CONDITIONS[self]


# fmt: off
CONDITIONS: Final[dict[Reason, ErrorCondition]] = {
    Reason.SUBSCRIPTION_IN_USE:      ErrorCondition.RESOURCE_LOCKED,
    Reason.EXCLUSIVITY_MISMATCH:     ErrorCondition.RESOURCE_LOCKED,
    Reason.OWNED_BY_OTHER_LINK:      ErrorCondition.RESOURCE_LOCKED,
    Reason.LINK_LIVE_FOR_OTHER_KIND: ErrorCondition.RESOURCE_LOCKED,
    Reason.OTHER_CONNECTION:         ErrorCondition.RESOURCE_LOCKED,
    Reason.MANAGED:                  ErrorCondition.RESOURCE_LOCKED,
    Reason.CONSUMERS_ACTIVE:         ErrorCondition.RESOURCE_LOCKED,
    Reason.CONTAINER_TAKEN_OVER:     ErrorCondition.RESOURCE_LOCKED,
    Reason.DUPLICATE_SUBSCRIPTION:   ErrorCondition.RESOURCE_LOCKED,
    Reason.BINDINGS_EXIST:           ErrorCondition.RESOURCE_LOCKED,
    Reason.EXCHANGE_NOT_FOUND:       ErrorCondition.NOT_FOUND,
    Reason.SUBSCRIPTION_NOT_FOUND:   ErrorCondition.NOT_FOUND,
    Reason.QUEUE_NOT_FOUND:          ErrorCondition.NOT_FOUND,
    Reason.ADDRESS_NOT_FOUND:        ErrorCondition.NOT_FOUND,
    Reason.OTHER_KIND_OF_NODE:       ErrorCondition.NOT_FOUND,
    Reason.INVALID_SELECTOR:         ErrorCondition.INVALID_FIELD,
    Reason.INVALID_BINDING_KEY:      ErrorCondition.INVALID_FIELD,
    Reason.INVALID_NAME:             ErrorCondition.INVALID_FIELD,
    Reason.INVALID_ADDRESS:          ErrorCondition.INVALID_FIELD,
    Reason.INVALID_REQUEST:          ErrorCondition.INVALID_FIELD,
    Reason.CONTAINER_IN_USE:         ErrorCondition.INVALID_FIELD,  # the JMS client: InvalidClientIDException
    Reason.OTHER_USER:               ErrorCondition.UNAUTHORIZED_ACCESS,
    Reason.NOT_PERMITTED:            ErrorCondition.UNAUTHORIZED_ACCESS,
    Reason.LOGIN_EXPIRED:            ErrorCondition.UNAUTHORIZED_ACCESS,
    Reason.LOGIN_WITHDRAWN:          ErrorCondition.UNAUTHORIZED_ACCESS,
    Reason.NOT_ALLOWED:              ErrorCondition.NOT_ALLOWED,
    Reason.LIMIT_EXCEEDED:           ErrorCondition.RESOURCE_LIMIT_EXCEEDED,
    Reason.STORAGE_FULL:             ErrorCondition.RESOURCE_LIMIT_EXCEEDED,
    Reason.LINK_STOLEN:              ErrorCondition.LINK_STOLEN,
    Reason.MESSAGE_TOO_LONG:         ErrorCondition.MESSAGE_SIZE_EXCEEDED,
    Reason.SUBSCRIPTION_ENDED:       ErrorCondition.RESOURCE_DELETED,
    Reason.NODE_DELETED:             ErrorCondition.RESOURCE_DELETED,
    Reason.NOT_EMPTY:                ErrorCondition.PRECONDITION_FAILED,
    Reason.REBIND_NOT_ALLOWED:       ErrorCondition.PRECONDITION_FAILED,
    Reason.IMMUTABLE:                ErrorCondition.PRECONDITION_FAILED,
    Reason.TRANSACTION_UNKNOWN:      ErrorCondition.TRANSACTION_UNKNOWN_ID,
    Reason.TRANSACTION_ROLLED_BACK:  ErrorCondition.TRANSACTION_ROLLBACK,
    Reason.TRANSACTION_TIMED_OUT:    ErrorCondition.TRANSACTION_TIMEOUT,
    Reason.NOT_IMPLEMENTED:          ErrorCondition.NOT_IMPLEMENTED,
    Reason.INTERNAL_ERROR:           ErrorCondition.INTERNAL_ERROR,
}
# fmt: on


_INVALID_FIELD: Final = {
    Reason.INVALID_SELECTOR: "filter",
    Reason.INVALID_BINDING_KEY: "filter",
    Reason.INVALID_NAME: "name",
    Reason.INVALID_ADDRESS: "address",
    Reason.CONTAINER_IN_USE: "container-id",
}
"""What ``invalid-field`` in the info of these says, unless the refusal itself says it (AMQP 2.8.15)."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """A refusal. Whoever gets one tells the peer and changes nothing (decision 10)."""

    reason: Reason
    description: str
    """For a person: why, and what to do about it."""
    info: tuple[tuple[str, InfoValue], ...] = ()
    """Further entries of the error's info map, in order."""

    @property
    def condition(self) -> ErrorCondition:
        """The AMQP error condition to send."""
        return CONDITIONS[self.reason]

    def error_info(self) -> dict[str, InfoValue]:
        """The error's info map; keys are AMQP symbols."""
        field = _INVALID_FIELD.get(self.reason)
        own: dict[str, InfoValue] = {} if field is None else {"invalid-field": field}
        return {REASON_KEY: self.reason.value, **own, **dict(self.info)}
