"""The Queue resource: a point-to-point queue, to which producers send by its name and from which consumers take.

What it has in common with a Subscription (limits, delivery, thresholds and figures of the lag) is defined there.
Source: docs/decisions/109-queues.md.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from penstock_api import references, schema
from penstock_api.resources import base
from penstock_api.resources.delivery import DeliverySpec
from penstock_api.resources.subscription import Lag, LagThresholds, SubscriptionLimits
from penstock_core.address import RESERVED_PREFIXES

__all__ = ["Queue", "QueueLimitsSpec", "QueueSpec", "QueueStatus"]

_NAME_MESSAGE: Final = (
    f"a queue's name can't begin with {', '.join(f'`{word}`' for word in RESERVED_PREFIXES)}: "
    "such addresses mean something else"
)
_NAME: Final = schema.cel(" && ".join(f"!self.startsWith('{word}')" for word in RESERVED_PREFIXES), _NAME_MESSAGE)
_OWN_MESSAGE: Final = (
    "a queue can't be its own destination: `delivery.deadLetter` and `delivery.expiry` must name another address"
)
_OWN_NAME: Final = "(has(self.spec.queueName) ? self.spec.queueName : self.metadata.name)"
_OWN_DESTINATION: Final = schema.cel(
    "!has(self.spec.delivery) || "
    f"((!has(self.spec.delivery.deadLetter) || self.spec.delivery.deadLetter != {_OWN_NAME}) && "
    f"(!has(self.spec.delivery.expiry) || self.spec.delivery.expiry != {_OWN_NAME}))",
    _OWN_MESSAGE,
)


def _check_name(name: str) -> str:
    if name.startswith(RESERVED_PREFIXES):
        raise ValueError(_NAME_MESSAGE)
    return name


class QueueLimitsSpec(SubscriptionLimits):
    """How much a queue may hold, and what happens at the limit."""

    overflow: Literal["DropOldest", "DropNewest", "Reject"] = "Reject"
    """What happens at a limit; without one it says nothing. `DropOldest` and `DropNewest` lose messages that were
    accepted. With `Reject` none is lost: producers get an error until consumers have made room.
    """


class QueueSpec(schema.Spec):
    """A queue on a broker: each message that is sent to its name goes to one of its consumers."""

    model_config = ConfigDict(json_schema_extra=schema.validations(base.paired("queueName")))

    broker_ref: Annotated[references.BrokerRef, Field(json_schema_extra=base.immutable("brokerRef"))]
    """The Broker that has this queue."""
    queue_name: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=255,
                pattern=r"^[^\x00-\x1f\x7f]+$",
                json_schema_extra=base.immutable("queueName", _NAME),
            ),
            AfterValidator(_check_name),
        ]
        | None
    ) = None
    """Name on the broker, which is the address of producers and consumers; left out: the resource's name."""
    durability: Annotated[Literal["Durable", "NonDurable"], Field(json_schema_extra=base.immutable("durability"))] = (
        "Durable"
    )
    """Whether it is still there after a restart of the broker, messages included."""
    deletion_policy: Literal["Delete", "DeleteWhenEmpty", "Retain"] = "Delete"
    """When the resource is deleted: end the queue with its messages, wait until it is empty, or keep it with its owner
    mark, for a new resource of the same name.
    """
    persistence: Literal["AsSent", "Always"] = "Always"
    """`Always` keeps messages over a restart even if the producer didn't ask for it."""
    limits: QueueLimitsSpec = QueueLimitsSpec()
    """How much it may hold."""
    delivery: DeliverySpec = DeliverySpec()
    """What happens to messages that no consumer accepts in time, or at all."""
    lag_thresholds: LagThresholds = LagThresholds()
    """Bounds of the backlog beyond which the condition Lagging is True."""


class QueueStatus(base.CommonStatus):
    """Observed state of a Queue."""

    queue_name: Annotated[str, Field(max_length=255)] | None = None
    """Its name on the broker."""
    address: Annotated[str, Field(max_length=1024)] | None = None
    """URL for clients: the Broker's Service and the queue's name."""
    lag: Lag | None = None
    """How far consumers are behind."""


class Queue(base.Resource):
    """A point-to-point queue: each message that is sent to its name goes to one of its consumers."""

    model_config = ConfigDict(json_schema_extra=schema.validations(_OWN_DESTINATION))

    kind: Literal["Queue"]
    spec: QueueSpec
    status: QueueStatus = QueueStatus()

    @model_validator(mode="after")
    def _check_destinations(self) -> Self:
        if (self.spec.queue_name or self.metadata.name) in (
            self.spec.delivery.dead_letter,
            self.spec.delivery.expiry,
        ):
            raise ValueError(_OWN_MESSAGE)
        return self
