"""The Exchange resource: where messages are published."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from penstock_api import references, schema
from penstock_api.resources import base
from penstock_api.resources.grantees import Grantees

__all__ = ["Exchange", "ExchangeSpec", "ExchangeStatus"]

NAME: Final = re.compile("[a-z]([-a-z0-9]{0,59}[a-z0-9])?")
"""An Exchange has a Service `NAME-x`, so it is an RFC 1035 label of at most 61 characters."""

_NAME_MESSAGE: Final = (
    "an Exchange's name must have at most 61 characters, start with a letter and hold only a-z, 0-9 and `-`; "
    "`spec.exchangeName` may be anything"
)
_ALTERNATE: Final = schema.cel(
    "(self.unroutable == 'Alternate') == has(self.alternateExchangeRef)",
    "`alternateExchangeRef` must be set if and only if `unroutable` is `Alternate`",
)


class ExchangeSpec(schema.Spec):
    """Where messages are published, and how they find subscriptions."""

    model_config = ConfigDict(json_schema_extra=schema.validations(base.paired("exchangeName"), _ALTERNATE))

    broker_ref: Annotated[references.BrokerRef, Field(json_schema_extra=base.immutable("brokerRef"))]
    """The Broker that has this exchange."""
    exchange_name: (
        Annotated[
            str,
            Field(min_length=1, max_length=255, pattern=r"^[^/|]+$", json_schema_extra=base.immutable("exchangeName")),
        ]
        | None
    ) = None
    """Name that clients use; left out: the resource's name. It has no `/` (addresses are `exchange/key`) and no `|`."""
    type: Annotated[
        Literal["Topic", "Direct", "Fanout", "Headers"], Field(json_schema_extra=base.immutable("type"))
    ] = "Topic"
    """How a message finds subscriptions: by pattern, by equal key, all of them, or by its properties."""
    durability: Annotated[Literal["Durable", "NonDurable"], Field(json_schema_extra=base.immutable("durability"))] = (
        "Durable"
    )
    """Whether the exchange is still there after a restart of the broker."""
    unroutable: Literal["Accept", "Reject", "Alternate"] = "Accept"
    """What happens to a message that matches no subscription: accepted and counted, rejected, or sent to another
    exchange.
    """
    alternate_exchange_ref: references.LocalRef | None = None
    """The Exchange, in this namespace and on the same Broker, that gets messages which match no subscription here."""
    persistence: Literal["AsSent", "Always"] = "Always"
    """`Always` keeps messages over a restart even if the producer didn't ask for it, which many AMQP programs forget.
    """
    deletion_policy: Literal["Delete", "DeleteWhenUnused", "Retain"] = "DeleteWhenUnused"
    """When the resource is deleted: remove the exchange at once, wait until no subscription is bound to it, or leave
    it.
    """
    allowed_namespaces: references.AllowedNamespaces = ()
    """Other namespaces whose Subscriptions may bind to this exchange; `*` allows all. The Broker must allow them too.
    """
    publishers: Grantees = ()
    """Who may publish to it, in addition to those whom `permissions` of the Broker allow it. The Broker must have
    `delegatedPermissions`.
    """

    @model_validator(mode="after")
    def _check_alternate(self) -> Self:
        if (self.unroutable == "Alternate") != (self.alternate_exchange_ref is not None):
            raise ValueError(str(_ALTERNATE["message"]))
        return self


class ExchangeStatus(base.CommonStatus):
    """Observed state of an Exchange."""

    exchange_name: Annotated[str, Field(max_length=255)] | None = None
    """Name that clients use."""
    address: Annotated[str, Field(max_length=1024)] | None = None
    """URL for clients: the exchange's own Service and its name."""
    bound_subscriptions: int | None = None
    """Subscriptions bound to it on the broker, clients' own included."""


class Exchange(base.Resource):
    """Where messages are published."""

    model_config = ConfigDict(
        json_schema_extra=schema.validations(
            schema.cel("self.metadata.name.matches('^[a-z]([-a-z0-9]{0,59}[a-z0-9])?$')", _NAME_MESSAGE)
        )
    )

    kind: Literal["Exchange"]
    spec: ExchangeSpec
    status: ExchangeStatus = ExchangeStatus()

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if NAME.fullmatch(self.metadata.name) is None:
            raise ValueError(_NAME_MESSAGE)
        return self
