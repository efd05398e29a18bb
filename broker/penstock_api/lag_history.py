"""The history document: what every subscription did in each hour or day of a range, from rollups.

`penstock lag --from T --to T` writes it. Integers only; what is not known is absent. Source: docs/reference/lag-job.md,
"History".
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field

from penstock_api.lag_result import Count, Name, ResultModel

__all__ = ["VERSION", "LagHistory", "PeriodHistory", "SubscriptionHistory"]

VERSION = 1


class SubscriptionHistory(ResultModel):
    """One subscription in one period. Counts are of messages."""

    queue_name: Annotated[str, Field(min_length=1)]
    ordinal: Count  # of the broker that holds the queue
    owner_namespace: str | None = None  # of the resource that declared it, if one did
    owner_name: str | None = None
    arrived: Count
    accepted: Count
    redelivered: Count  # deliveries with a delivery-count above 0
    expired: Count
    dead_lettered: Count
    dropped: Count
    lost_at_restart: Count
    lost: Count  # expired + dead_lettered + dropped + lost_at_restart
    moved: Count
    purged: Count
    messages: Count  # at its last snapshot
    most_messages: Count
    mean_messages: Count | None = None  # over the time from its first to its last snapshot; absent without any
    oldest_age_seconds: Count | None = None  # the greatest age of the oldest message; absent if nothing waited
    sojourn_p50_millis: Count | None = None  # absent below 20 completions
    sojourn_p95_millis: Count | None = None
    sojourn_p99_millis: Count | None = None
    least_consumers: Count
    most_consumers: Count


class PeriodHistory(ResultModel):
    """One hour or day."""

    start: AwareDatetime
    end: AwareDatetime
    hours: Annotated[int, Field(ge=0, le=24)]  # of which there are rows; 0: none
    missing: tuple[Annotated[str, Field(max_length=1024)], ...] = ()  # sentences: what is not in it
    subscriptions: Annotated[tuple[SubscriptionHistory, ...], Field(max_length=100_000)] = ()


class LagHistory(ResultModel):
    """A range of hours, or, if it is longer than two days, of days."""

    version: int = VERSION
    broker: Name
    namespace: Name
    from_time: Annotated[AwareDatetime, Field(alias="from")]
    to_time: Annotated[AwareDatetime, Field(alias="to")]
    written: tuple[Name, ...] = ()  # rollups that this run made from the ledger
    periods: tuple[PeriodHistory, ...] = ()

    def to_json(self) -> str:
        """The document as JSON: keys in model order, no white space, absent optionals left out, a final newline."""
        return self.model_dump_json(by_alias=True, exclude_none=True) + "\n"
