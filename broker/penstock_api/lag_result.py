"""The lag result document: what one run of the lag job says about every subscription it saw.

The job PUTs it to ordinal 0's observer (`/v1/lag/results/RUN`); the operator GETs the newest
(`/v1/lag/results/latest`), validates it with this model as untrusted input, and copies each entry
to the Subscription's ``status.lag``.
Source: docs/reference/lag-job.md. Integers only, seconds and messages; what is not known is absent, never NaN or
infinite.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

VERSION = 1

Count = Annotated[int, Field(ge=0, le=2**53)]
Name = Annotated[str, Field(min_length=1, max_length=512)]


class LagState(StrEnum):
    """States of a subscription over the window, in the order of the rules: the first rule that matches decides."""

    UNKNOWN = "Unknown"
    LOSING = "Losing"
    IDLE = "Idle"
    OK = "OK"
    UNCONSUMED = "Unconsumed"
    BROKER_STUCK = "BrokerStuck"
    NO_CREDIT = "NoCredit"
    POISON = "Poison"
    STALLED = "Stalled"
    LAGGING = "Lagging"
    RECOVERING = "Recovering"
    BACKLOG_STEADY = "BacklogSteady"


_STATES: Final = frozenset(state.value for state in LagState)


class SlowPart(StrEnum):
    """Where the messages that were done in the window spent their time."""

    HANDLER = "Handler"
    QUEUE = "Queue"
    NONE = "None"


_PARTS: Final = frozenset(part.value for part in SlowPart)


def _known_part(word: object) -> object:
    """Read an unknown part as absent."""
    return None if isinstance(word, str) and word not in _PARTS else word


def _known(word: object) -> object:
    """Read an unknown state as UNKNOWN: the lag job of a later release may know more states."""
    return LagState.UNKNOWN if isinstance(word, str) and word not in _STATES else word


class ResultModel(BaseModel):
    """camelCase on the wire, unknown keys ignored (later versions only add fields), immutable."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class RepeatedMessageLag(ResultModel):
    """A message that the broker has sent to consumers again and again, and that still waits."""

    id: Annotated[str, Field(max_length=255)]  # its message-id, cut to 255 characters
    delivery_count: Count  # failed deliveries so far
    age_seconds: Count  # since the broker accepted it


class ConsumerShare(ResultModel):
    """How much of a subscription one container got in the window."""

    container: Annotated[str, Field(max_length=255)]  # its container-id (in JMS the client-id), cut to 255 characters
    delivered: Count
    percent: Annotated[int, Field(ge=0, le=100)]  # of the deliveries to those that are listed


class PaceLag(ResultModel):
    """What a subscription did in closed hours before the window, from rollups."""

    end: AwareDatetime  # of the last of these hours
    seconds: Count  # how long it was seen in them
    arrival_per_minute: Count
    settled_per_minute: Count
    lost: Count  # messages, in all of this time
    sojourn_p95_millis: Count | None = None  # absent below 20 completions


class SubscriptionLag(ResultModel):
    """Lag of one subscription as of `observed_time`."""

    queue_name: Annotated[str, Field(min_length=1)]  # of any length: a client chooses the name of its link
    owner_namespace: str | None = None  # of the resource that declared it, if one did
    owner_name: str | None = None
    owner_uid: str | None = None
    observed_time: AwareDatetime  # time of the last snapshot that was used
    state: Annotated[LagState, BeforeValidator(_known)]  # a state of a later release is read as Unknown
    message: Annotated[str, Field(max_length=1024)]  # one sentence: why this state, with figures
    messages: Count | None = None  # depth, in-flight included; absent when Unknown without any snapshot
    ready: Count | None = None
    in_flight: Count | None = None
    scheduled: Count | None = None
    oldest_age_seconds: Count | None = None
    longest_hold_seconds: Count | None = None
    arrival_per_minute: Count | None = None
    settled_per_minute: Count | None = None
    velocity_per_minute: Annotated[int, Field(ge=-(2**53), le=2**53)] | None = None  # above 0: the backlog grows
    drain_seconds: Count | None = None  # the likely value; absent unless the backlog shrinks
    drain_seconds_low: Count | None = None  # the range in which it lies
    drain_seconds_high: Count | None = None
    sojourn_p50_millis: Count | None = None  # absent below 20 completions
    sojourn_p95_millis: Count | None = None
    sojourn_p99_millis: Count | None = None
    mean_wait_millis: Count | None = None  # from available to the first delivery; both absent below 20 of either
    mean_hold_millis: Count | None = None  # from a delivery to its outcome
    wait_p95_millis: Count | None = None  # only in results of runs; absent below 20
    hold_p95_millis: Count | None = None
    slow_part: Annotated[SlowPart | None, BeforeValidator(_known_part)] = None  # absent as the means are
    redelivery_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    consumers: Count | None = None
    shares: Annotated[tuple[ConsumerShare, ...], Field(max_length=8, exclude_if=lambda found: not found)] = ()
    fairness_percent: Annotated[int, Field(ge=0, le=100)] | None = None  # 100: all get the same in the same time
    capacity_per_minute: Count | None = None  # accepted by one consumer while messages waited; absent if that is rare
    suggested_consumers: Annotated[int, Field(ge=1, le=2**53)] | None = None  # absent where more would not help
    expiring_soon: Count | None = None  # ready messages that expire before a consumer takes them, at the present pace
    expiry_risk_percent: Annotated[int, Field(ge=0, le=100)] | None = None  # their share of the ready messages
    expired: Count | None = None  # messages whose time to live ended, within the window
    dead_lettered: Count | None = None  # messages that went to the dead-letter exchange or were discarded there
    dropped: Count | None = None  # messages that a limit or the end of the queue removed
    moved: Count | None = None  # messages that a manager moved to another queue: not lost
    purged: Count | None = None  # messages that a manager deleted: not lost
    lost_at_restart: Count | None = None  # messages that were only in memory when the broker restarted
    stranded: Count | None = None  # messages that wait now for a destination that does not take them
    lost: Count | None = None  # expired + dead_lettered + dropped + lost_at_restart
    since_caught_up_seconds: Count | None = None  # how long ago it was last caught up; absent when never seen so
    repeated: Annotated[tuple[RepeatedMessageLag, ...], Field(max_length=5, exclude_if=lambda found: not found)] = ()
    past_hour: PaceLag | None = None  # the last closed hour; only in results of runs
    past_day: PaceLag | None = None  # up to 24 closed hours, since the last start of the broker
    changes: Annotated[
        tuple[Annotated[str, Field(max_length=160)], ...], Field(max_length=3, exclude_if=lambda found: not found)
    ] = ()  # sentences: how the window differs from these hours, the weightiest first

    @property
    def later(self) -> int | None:
        """How many messages are due later, and so don't wait for anybody now. None if a release did not tell."""
        return None if self.scheduled is None else max(self.scheduled - (self.stranded or 0), 0)

    @property
    def waiting(self) -> int | None:
        """All messages but those: the lag."""
        return None if self.messages is None else max(self.messages - (self.later or 0), 0)


FORECASTS: Final = (
    *("drain_seconds", "drain_seconds_low", "drain_seconds_high"),
    *("suggested_consumers", "expiring_soon", "expiry_risk_percent"),
)
"""Fields of SubscriptionLag that say what will be if all goes on as it does. They are absent in the state Unknown:
seconds that count from a time which is past would be read as if they counted from now.
"""


class LagResult(ResultModel):
    """One run over one closed window. The same segments give the same document, byte for byte."""

    version: int = VERSION
    broker: Name
    namespace: Name
    run_name: Name  # of the SparkApplication, or the command's own
    window_start: AwareDatetime
    window_end: AwareDatetime
    expected_brokers: Annotated[int, Field(ge=1, le=1000)]
    reporting_brokers: Annotated[int, Field(ge=0, le=1000)]
    missing: tuple[Annotated[str, Field(max_length=1024)], ...] = ()  # one sentence per broker that did not report
    segments: tuple[Name, ...] = ()  # that the run has read, sorted: ORDINAL/FILE
    subscriptions: Annotated[tuple[SubscriptionLag, ...], Field(max_length=100_000)] = ()

    def to_json(self) -> str:
        """The document as JSON, always the same for the same result: keys in model order, no white space, absent
        optionals left out, a final newline.
        """
        return self.model_dump_json(by_alias=True, exclude_none=True) + "\n"
