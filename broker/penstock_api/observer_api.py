"""Paths and documents of the observer's HTTP interface, for observer, lag job, operator and CLI
(docs/reference/observer.md).

Every path but `HEALTH` needs `Authorization: Bearer TOKEN`. Errors have a JSON body, `Problem`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

HEALTH = "/healthz"
METRICS = "/metrics"
SUBSCRIPTIONS = "/v1/subscriptions"  # live states, JSON list of state_documents.SubscriptionState
SCALE = "/v1/subscriptions/{queue_name}/scale"  # Scale, for KEDA's metrics-api scaler
PER_CONSUMER = "perConsumer"  # query parameter of SCALE: messages for each consumer, 1 to 10**9
SEGMENTS = "/v1/ledger/segments"  # SegmentList
SEGMENT = "/v1/ledger/segments/{name}"  # the Parquet file
RESULTS = "/v1/lag/results/{run_name}"  # PUT a lag_result.LagResult, GET it back
LIVE_LAG = "/v1/lag/live"  # lag_result.LagResult of the last poll
LATEST = "/v1/lag/results/latest"  # GET the newest by window end

PAGE = "/page"  # HTML for people, which logs in by itself: docs/reference/observer.md, "The page"

LIVE_RUN = "live"
"""The run name of `LIVE_LAG`."""

PORT = 8080
"""Default TCP port of the observer."""

MAX_RESULT_BYTES = 64 * 1024 * 1024
"""Largest lag result that an observer accepts."""

RUN_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?"
"""Names of runs: those of Kubernetes resources, and capitals and underscores too. `latest` is not allowed."""

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]


class ObserverModel(BaseModel):
    """camelCase on the wire, unknown keys ignored (later versions only add fields), immutable."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class Problem(ObserverModel):
    """Body of every error: `error` for a program, `message` for a person."""

    error: str  # one CamelCase word
    message: str


class SegmentInfo(ObserverModel):
    """One sealed segment of the ledger; `name` is a ledger_format.SegmentName."""

    name: Annotated[str, Field(max_length=255)]
    bytes: Count
    rows: Count
    first_ms: int  # time of its first and last row, the broker's clock
    last_ms: int


class SegmentList(ObserverModel):
    """Body of `SEGMENTS`: the sealed segments in ledger order, and whether the observer reaches its broker.

    `polled_ms` is the broker's time of the last successful poll; the last segment may end earlier, because one is
    sealed only every `segment_seconds`. The broker is not reachable once two polls in a row had no answer, and before
    the first answer. `problem` is a sentence then, or when the ledger can't be written.
    """

    broker: Annotated[str, Field(max_length=253)]
    namespace: Annotated[str, Field(max_length=253)]
    ordinal: Annotated[int, Field(ge=0, lt=1000)]
    epoch: Count | None = None  # absent until the broker answered once
    reachable: bool
    polled_ms: int | None = None
    problem: Annotated[str, Field(max_length=1024)] | None = None
    segments: Annotated[tuple[SegmentInfo, ...], Field(max_length=1_000_000)] = ()


class Scale(ObserverModel):
    """Body of `SCALE`: figures for an autoscaler of consumers. `lag` includes messages in flight: the consumers that
    process them are still needed. A consumer is a link here.
    """

    queue_name: str
    lag: Count
    ready: Count
    in_flight: Count
    oldest_seconds: Count | None = None  # absent: not known, because the broker's clock was set
    consumers: Count
    consumer_cap: Annotated[int, Field(ge=1)] = 1  # more consumers than this are not known to help
    suggested_consumers: Annotated[int, Field(ge=1)] | None = None  # as in lag_result.SubscriptionLag
    capped_lag: Count | None = None  # `lag`, at most `consumer_cap` times the query parameter `perConsumer`


class Stored(ObserverModel):
    """Reply to the PUT of a result."""

    run_name: str
    outcome: Literal["Stored", "Unchanged"]
