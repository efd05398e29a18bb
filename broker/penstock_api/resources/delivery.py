"""What happens to messages that no consumer accepts in time, or at all: `delivery` of a Subscription, and of a Broker
for what clients make themselves. Source: docs/reference/management.md, "delivery".
"""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from penstock_api import management, schema
from penstock_core.destinations import decide_destination
from penstock_core.identity import QUEUE_PREFIX
from penstock_core.reason import Refuse
from penstock_core.temporary_nodes import TEMPORARY_PREFIXES
from penstock_core.terms import ExchangeType

__all__ = ["ClientDeliverySpec", "DeliverySpec", "client_settings", "delivery_policy"]

Destination = Annotated[str, Field(min_length=1, max_length=255)]

_LIMITED: Final = schema.cel(
    "!has(self.maxDeliveries) || has(self.deadLetter)",
    "`maxDeliveries` needs `deadLetter`, the address of messages that failed that often",
)


class DeliverySpec(schema.Spec):
    """What happens to messages that no consumer accepts in time, or at all.

    An address is a queue's name, or `exchange/key`. If neither a queue nor an exchange has the name, a durable queue is
    made.
    """

    model_config = ConfigDict(json_schema_extra=schema.validations(_LIMITED))

    max_deliveries: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Number of failed deliveries after which a message goes to `deadLetter`; left out: no limit."""
    dead_letter: Destination | None = None
    """Address of messages that consumers rejected, or that failed too often; left out: rejected ones are dropped."""
    expiry: Destination | None = None
    """Address of messages whose time to live has passed; left out: they are dropped and counted."""
    max_ttl_seconds: Annotated[int, Field(ge=1, le=2**31)] | None = None
    """The longest time to live, also for messages without one; left out: as each message says."""
    exclusive_consumer: bool = False
    """Only one link at a time gets the messages; when it detaches, the one that attached next takes over."""

    @model_validator(mode="after")
    def _check_limit(self) -> Self:
        if self.max_deliveries is not None and self.dead_letter is None:
            raise ValueError(str(_LIMITED["message"]))
        return self


_NOWHERE: Final = "a broker with it would not start: messages can't be sent there; name a queue or an exchange"
_RESERVED: Final = "|".join(("$", QUEUE_PREFIX, *TEMPORARY_PREFIXES)).replace("$", "[$]")
_STARTS: Final = schema.cel(
    f"!self.matches('^((queue|topic)://)?({_RESERVED}|$)') && !self.matches('^queue://(queue|topic)://') "
    "&& !self.matches('^topic://(/|[^/]*[|])')",
    _NOWHERE,
)


class _Nothing:
    """A broker on which nothing is declared yet."""

    def has_queue(self, name: str) -> bool:
        return False

    def exchange_type(self, name: str) -> ExchangeType | None:
        return None


def _check_destination(address: str) -> str:
    """As the broker does it at its start."""
    if isinstance(decide_destination(address, _Nothing()), Refuse):
        raise ValueError(f"{address!r}: {_NOWHERE}")
    return address


ClientDestination = Annotated[
    str,
    Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$", json_schema_extra=schema.validations(_STARTS)),
    AfterValidator(_check_destination),
]


class ClientDeliverySpec(DeliverySpec):
    """What happens to messages in subscriptions and queues that no resource declares."""

    dead_letter: ClientDestination | None = None
    expiry: ClientDestination | None = None
    idle_expiry_seconds: Annotated[int, Field(ge=1, le=2**31)] | None = None
    """A client's permanent subscription from which no client has consumed for this long ends with its messages; left
    out: never.
    """


def delivery_policy(delivery: DeliverySpec) -> management.DeliveryPolicy:
    """The policy as it is declared on the broker."""
    ttl = delivery.max_ttl_seconds
    return management.DeliveryPolicy(
        max_deliveries=delivery.max_deliveries,
        dead_letter=delivery.dead_letter,
        expiry=delivery.expiry,
        max_ttl_ms=None if ttl is None else ttl * 1000,
        exclusive_consumer=delivery.exclusive_consumer,
    )


def client_settings(delivery: ClientDeliverySpec) -> dict[str, object]:
    """The settings in the broker's configuration file."""
    settings = delivery_policy(delivery).to_wire()
    if delivery.idle_expiry_seconds is not None:
        settings["idleExpirySeconds"] = delivery.idle_expiry_seconds
    return settings
