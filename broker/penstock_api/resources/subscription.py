"""The Subscription resource: a named place in which messages of one exchange wait for one application."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, AwareDatetime, ConfigDict, Field, model_validator

from penstock_api import quantity, references, schema
from penstock_api.resources import base
from penstock_api.resources.binding import BindingSpec
from penstock_api.resources.delivery import DeliverySpec
from penstock_api.resources.grantees import Grantees
from penstock_api.resources.header_bindings import HeaderBindings

__all__ = [
    "Applied",
    "Lag",
    "LagThresholds",
    "Losses",
    "RepeatedMessage",
    "Subscription",
    "SubscriptionFilter",
    "SubscriptionLimits",
    "SubscriptionSpec",
    "SubscriptionStatus",
]

Count = Annotated[int, Field(ge=0, le=2**53)]

_CLIENT_ID: Final = schema.cel(
    "(self.scope == 'Container') == has(self.clientId)", "`clientId` must be set if and only if `scope` is `Container`"
)
_DECLARABLE: Final = schema.cel(
    "self.sharing == 'Shared' || self.durability == 'Durable'",
    "an `Exclusive` `NonDurable` subscription ends with its link and can't be declared",
)
_PERMANENT: Final = schema.cel(
    "self.durability == 'NonDurable' || self.expiryPolicy == 'Never'",
    "`expiryPolicy` must be `Never` for a `Durable` subscription",
)
_NO_LOCAL: Final = schema.cel(
    "!has(self.filter) || !has(self.filter.noLocal) || !self.filter.noLocal || "
    "(self.sharing == 'Exclusive' && self.scope == 'Container')",
    "`filter.noLocal` needs `sharing: Exclusive` and `scope: Container`: JMS has it only for unshared consumers",
)
_ONE_WAY: Final = schema.cel(
    "!has(self.bindingKeys) || size(self.bindingKeys) == 0 || !has(self.headerBindings) || "
    "size(self.headerBindings) == 0",
    "`bindingKeys` and `headerBindings` can't both be set: a Headers exchange takes the latter, the others the former",
)


class SubscriptionFilter(schema.Spec):
    """Messages that a subscription does not get although its binding keys match."""

    selector: Annotated[str, Field(min_length=1, max_length=8192)] | None = None
    """A JMS selector, such as `region = 'eu' AND amount > 10`."""
    no_local: bool = False
    """Leave out messages that the subscription's own container-id published."""


class SubscriptionLimits(schema.Spec):
    """How much a subscription may hold, and what happens at the limit."""

    max_bytes: quantity.Quantity | None = None
    """Bytes; left out: nothing but the volume limits it."""
    max_messages: Annotated[int, Field(ge=1, le=2**53)] | None = None
    """Messages; left out: no limit."""
    overflow: Literal["DropOldest", "DropNewest", "Reject"] = "Reject"
    """What happens at a limit; without one it says nothing. `DropOldest` and `DropNewest` lose messages that were
    accepted. With `Reject` none is lost, but a single full subscription blocks its exchange.
    """


class LagThresholds(schema.Spec):
    """Bounds of the backlog; beyond any of them the condition Lagging is True."""

    messages: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Unsettled messages, without those that are due later."""
    oldest_age_seconds: Annotated[int, Field(ge=0, le=2**31)] | None = None
    """Age of the oldest of them."""


class SubscriptionSpec(schema.Spec):
    """A named place in which messages of one exchange wait for one application; identity: scope, name, durability."""

    model_config = ConfigDict(
        json_schema_extra=schema.validations(
            _CLIENT_ID,
            _DECLARABLE,
            _PERMANENT,
            _NO_LOCAL,
            _ONE_WAY,
            base.paired("subscriptionName"),
            base.paired("clientId"),
        )
    )

    broker_ref: Annotated[references.BrokerRef, Field(json_schema_extra=base.immutable("brokerRef"))]
    """The Broker that has this subscription."""
    exchange_ref: references.ExchangeRef
    """The Exchange whose messages it gets. A change is a rebind, done as `rebindPolicy` says."""
    subscription_name: (
        Annotated[
            str,
            Field(
                min_length=1, max_length=255, pattern=r"^[^|]+$", json_schema_extra=base.immutable("subscriptionName")
            ),
        ]
        | None
    ) = None
    """Name that clients subscribe with; left out: the resource's name. It has no `|`, because the name of a shared link
    may go on after one.
    """
    scope: Annotated[Literal["Global", "Container"], Field(json_schema_extra=base.immutable("scope"))] = "Global"
    """`Global`: any client. `Container`: clients with one container-id (JMS ClientID)."""
    client_id: (
        Annotated[str, Field(min_length=1, max_length=255, json_schema_extra=base.immutable("clientId"))] | None
    ) = None
    """The container-id of a subscription with `scope: Container`."""
    sharing: Annotated[Literal["Shared", "Exclusive"], Field(json_schema_extra=base.immutable("sharing"))] = "Shared"
    """`Shared`: many links consume from it. `Exclusive`: one."""
    durability: Annotated[Literal["Durable", "NonDurable"], Field(json_schema_extra=base.immutable("durability"))] = (
        "Durable"
    )
    """Whether it is still there after a restart of the broker, messages included."""
    expiry_policy: Annotated[
        Literal["Never", "LinkDetach", "SessionEnd", "ConnectionClose"],
        Field(json_schema_extra=base.immutable("expiryPolicy")),
    ] = "Never"
    """The lifetime that clients are told. It ends nothing: a declared subscription ends with its resource. Anything but
    `Never` needs `durability: NonDurable`.
    """
    binding_keys: Annotated[
        tuple[Annotated[str, Field(max_length=255)], ...],
        Field(max_length=256, json_schema_extra={schema.LIST_TYPE: "set"}),
        AfterValidator(schema.check_unique),
    ] = ()
    """Routing keys of the messages to get; one of several keys has to match. On a Topic exchange `*` stands for one
    word and `#` for any number of words. None: the default of the exchange's type (`#` on Topic).
    """
    header_bindings: HeaderBindings = ()
    """Application properties of the messages to get, on a Headers exchange; one of several bindings has to match. None:
    all messages.
    """
    filter: SubscriptionFilter = SubscriptionFilter()
    """Which of these messages to leave out."""
    rebind_policy: Literal["InPlace", "WhenIdle", "WhenIdleAndEmpty", "Never"] = "InPlace"
    """When a change of exchange, keys or filter takes effect: `InPlace` at once, for new messages; `WhenIdle` once
    nobody consumes, and the waiting messages are dropped (as JMS requires); `WhenIdleAndEmpty` once no message waits
    either; `Never`.
    """
    deletion_policy: Literal["Delete", "DeleteWhenEmpty", "Retain"] = "Delete"
    """When the resource is deleted: end the subscription with its messages, wait until it is empty, or keep it with its
    owner mark, for a new resource of the same name.
    """
    client_overrides: Literal["Refuse", "Ignore"] = "Refuse"
    """The answer to a client that asks for another exchange, key or filter: an error that names this resource, or the
    declared ones.
    """
    consumers: Grantees = ()
    """Who may consume from it, in addition to those whom `permissions` of the Broker allow it. The Broker must have
    `delegatedPermissions`.
    """
    binding: BindingSpec | None = None
    """A Secret for the application, with all that a client needs to connect but its password; left out: there is none.
    """
    persistence: Literal["AsSent", "Always"] = "Always"
    """`Always` keeps messages over a restart even if the producer didn't ask for it."""
    limits: SubscriptionLimits = SubscriptionLimits()
    """How much it may hold."""
    delivery: DeliverySpec = DeliverySpec()
    """What happens to messages that no consumer accepts in time, or at all."""
    lag_thresholds: LagThresholds = LagThresholds()
    """Bounds of the backlog beyond which the condition Lagging is True."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.scope == "Container") != (self.client_id is not None):
            raise ValueError(str(_CLIENT_ID["message"]))
        if self.sharing == "Exclusive" and self.durability == "NonDurable":
            raise ValueError(str(_DECLARABLE["message"]))
        if self.durability == "Durable" and self.expiry_policy != "Never":
            raise ValueError(str(_PERMANENT["message"]))
        if self.filter.no_local and not (self.sharing == "Exclusive" and self.scope == "Container"):
            raise ValueError(str(_NO_LOCAL["message"]))
        if self.binding_keys and self.header_bindings:
            raise ValueError(str(_ONE_WAY["message"]))
        return self


class Applied(base.Status):
    """The subscription as the broker reports it."""

    exchange: Annotated[str, Field(max_length=255)]
    """Exchange to which it is bound."""
    binding_keys: Annotated[tuple[Annotated[str, Field(max_length=255)], ...], Field(max_length=256)] = ()
    """Binding keys in force."""
    header_bindings: Annotated[tuple[Annotated[str, Field(max_length=2048)], ...], Field(max_length=256)] = ()
    """Header bindings in force, as text."""
    selector: Annotated[str, Field(max_length=8192)] | None = None
    """Selector in force, as the broker writes it."""
    expiry_policy: Annotated[str, Field(max_length=32)]
    """The lifetime that clients are told."""
    sharing: Annotated[str, Field(max_length=32)]
    """`Shared` or `Exclusive`."""


class Losses(base.Status):
    """Messages that left the subscription without being accepted, within the window, and what is stuck now."""

    expired: Count | None = None
    """Messages whose time to live ended."""
    dead_lettered: Count | None = None
    """Messages that were rejected, or failed too often."""
    dropped: Count | None = None
    """Messages that a limit or the end of the subscription removed."""
    lost_at_restart: Count | None = None
    """Messages that were only in memory when the broker restarted."""
    moved: Count | None = None
    """Messages that were moved to another queue; they do not count as lost."""
    purged: Count | None = None
    """Messages that an administrator deleted; they do not count as lost."""
    stranded: Count | None = None
    """Messages that wait now for a destination that does not take them; they do not count as lost."""


class RepeatedMessage(base.Status):
    """A message that waits although its delivery failed again and again."""

    id: Annotated[str, Field(max_length=255)]
    """Its message-id."""
    delivery_count: Count
    """Failed deliveries so far."""
    age_seconds: Count
    """How long before observedTime the broker accepted it."""


class Lag(base.Status):
    """How far consumers are behind, by the broker's observer, live; or by the newest run of the lag job, if the live
    state can't be read. Figures that are not known are absent. If the condition LagFresh is not True, the state is
    Unknown, the figures are those of observedTime, and what says how it will go on is absent: drainSeconds,
    suggestedConsumers, expiryRiskPercent. Figures that do not change are not written again.
    """

    messages: Count | None = None
    """Messages that no consumer has settled yet, those in flight and those that are due later included."""
    waiting: Count | None = None
    """The lag: the same without those that are due later."""
    ready: Count | None = None
    """Messages that could be delivered now."""
    in_flight: Count | None = None
    """Messages that are delivered and not settled."""
    oldest_age_seconds: Count | None = None
    """How long the oldest message that is ready or in flight has waited, since it was due; absent if not known."""
    arrival_per_minute: Count | None = None
    """Messages that came, per minute of the window."""
    settled_per_minute: Count | None = None
    """Messages that consumers accepted, per minute of the window."""
    velocity_per_minute: Annotated[int, Field(ge=-(2**53), le=2**53)] | None = None
    """Growth of messages per minute of the window. Those that are due later count, so above 0 does not mean that the
    consumers fall behind: the state says that.
    """
    drain_seconds: Count | None = None
    """Seconds until the backlog is empty at this pace; absent unless it shrinks."""
    drain_seconds_low: Count | None = None
    """The least that this may be."""
    drain_seconds_high: Count | None = None
    """The most that this may be."""
    sojourn_p95_millis: Count | None = None
    """95 % of the accepted messages took at most so long from available to accepted, in milliseconds. It comes from the
    run runName, so its time is runTime and not observedTime.
    """
    redelivery_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    """Share of the deliveries that were not a message's first."""
    lost: Count | None = None
    """Messages that were lost within the window: expired, dead-lettered, dropped, or lost at a restart."""
    losses: Losses | None = None
    """How they were lost; absent if nothing was."""
    consumers: Count | None = None
    """Links that consume."""
    suggested_consumers: Count | None = None
    """Links that would keep up with what arrives and work off what waits in ten minutes. Absent while the consumers
    keep up, because what they are capable of is not known then, and where more of them would not help.
    """
    capacity_per_minute: Count | None = None
    """Messages that one consumer accepted a minute while messages waited; absent as suggestedConsumers is."""
    repeated: Annotated[tuple[RepeatedMessage, ...], Field(max_length=5, exclude_if=lambda found: not found)] = ()
    """The messages that wait although their delivery failed again and again: at most the worst five."""
    expiry_risk_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    """Share of the ready messages that will expire before a consumer takes them, at the pace of the last minute. Absent
    if none can expire, or if it is not known.
    """
    changes: Annotated[
        tuple[Annotated[str, Field(max_length=160)], ...], Field(max_length=3, exclude_if=lambda found: not found)
    ] = ()
    """How the window of the run runName differs from the hours before it: at most three sentences, the weightiest
    first.
    """
    state: Annotated[str, Field(max_length=32)]
    """OK, Idle, Losing, Lagging, Recovering, Unconsumed, Stalled, ... (docs/concepts/lag.md)."""
    message: Annotated[str, Field(max_length=1024)] | None = None
    """Why it has this state, in one sentence with figures."""
    since_caught_up_seconds: Count | None = None
    """How long before observedTime the consumers had last caught up; absent if that was never seen."""
    source: Annotated[str, Field(max_length=16)] | None = None
    """Where state and figures come from: `Live` (the observer judged its newest poll) or `Run` (a run of the lag job).
    """
    observed_time: AwareDatetime
    """Time of these figures, by the broker's clock."""
    run_name: Annotated[str, Field(max_length=512)]
    """Run of the lag job from which percentiles and changes come, and with the source `Run` all figures; `live` if none
    do.
    """
    run_time: AwareDatetime | None = None
    """End of the window of that run; absent if nothing here is from a run."""
    brokers_reporting: Annotated[str, Field(max_length=16)]
    """How many of the expected broker pods this result covers, such as `1/1`."""


class SecretName(base.Status):
    """Names a Secret of the same namespace."""

    name: Annotated[str, Field(max_length=253)]
    """Name of the Secret."""


class SubscriptionStatus(base.CommonStatus):
    """Observed state of a Subscription."""

    subscription_name: Annotated[str, Field(max_length=255)] | None = None
    """Name that clients subscribe with."""
    queue_name: Annotated[str, Field(max_length=8192)] | None = None
    """Name of its queue on the broker."""
    address: Annotated[str, Field(max_length=1024)] | None = None
    """URL for clients: the Service and the name of its exchange."""
    applied: Applied | None = None
    """The subscription as the broker reports it."""
    lag: Lag | None = None
    """How far consumers are behind."""
    binding: SecretName | None = None
    """The Secret of `spec.binding`, once it is there (Service Binding Specification, Provisioned Service)."""


class Subscription(base.Resource):
    """A named place in which messages of one exchange wait for one application."""

    kind: Literal["Subscription"]
    spec: SubscriptionSpec
    status: SubscriptionStatus = SubscriptionStatus()

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if self.spec.subscription_name is None and len(self.metadata.name) > 253:
            raise ValueError("a Subscription's name must have at most 253 characters")
        return self
