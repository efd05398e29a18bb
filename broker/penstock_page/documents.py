"""What the pages show: one document per page, made by the observer or the command line, drawn by the templates.

Times are milliseconds since 1970 on the broker's clock, unless they say otherwise. Every text may come from a client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock_api.lag_result import LagState, PaceLag, SubscriptionLag
from penstock_api.state_documents import BrokerState, ExchangeState, SubscriptionState
from penstock_page.bodies import ShownMessage
from penstock_page.subscription_list import Listing
from penstock_page.time_series import TimeSeries

__all__ = [
    "BrokerPlace",
    "Consumer",
    "Exchanges",
    "Freshness",
    "LastRun",
    "MessagesPage",
    "Overview",
    "Report",
    "SubscriptionPage",
]


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """Which broker it is."""

    broker: str
    namespace: str
    ordinal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """How old the figures are, on the observer's own clock."""

    polled_ms: int | None
    """The broker's time at the last poll that it answered; None: there was none."""
    seconds_ago: int | None
    """Since that answer came."""
    problem: str | None
    """Why the states are Unknown now, a sentence without its full stop; None while the figures are fresh."""
    ledger_problem: str | None = None
    """Why the ledger can't be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanges:
    """The exchanges of the broker, or why they are not known."""

    rows: Sequence[ExchangeState] = ()
    total: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The page of all subscriptions."""

    place: BrokerPlace
    broker: BrokerState | None
    freshness: Freshness
    listing: Listing
    exchanges: Exchanges
    states: Mapping[str, SubscriptionState]
    """Of the subscriptions that are listed, by queue name."""
    depths: Mapping[str, Sequence[int]]
    """Of the subscriptions that are listed, by queue name: what the sparkline shows."""
    refresh_seconds: int | None
    """After how many seconds the page loads itself again; None: it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """One consuming link."""

    container: str
    user: str
    link: str
    transfers: int
    """Deliveries since it attached."""
    share_percent: int | None
    """Of the deliveries of all consuming links that are attached now; None if there were none."""
    unsettled: int
    credit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """What the newest run of the lag job found out about one subscription, which the live state does not know."""

    name: str
    begin_ms: int
    end_ms: int
    """Of its window, which may be long ago."""
    lag: SubscriptionLag

    @property
    def paces(self) -> Sequence[tuple[str, int, PaceLag]]:
        """The hours before the window that are known: their name, their end, and what happened in them."""
        named = (("One hour", self.lag.past_hour), ("Up to a day", self.lag.past_day))
        return [(name, round(pace.end.timestamp() * 1000), pace) for name, pace in named if pace is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPage:
    """The page of one subscription."""

    place: BrokerPlace
    freshness: Freshness
    lag: SubscriptionLag
    state: SubscriptionState
    time_series: TimeSeries
    course_problem: str | None
    """Why the plot is empty or incomplete, a sentence without its full stop."""
    hours: int
    """The part of the past that the plot shows; 0: the last quarter of an hour."""
    run: LastRun | None = None
    """None: no run is stored here, or it knows nothing about this subscription."""
    consumers: Sequence[Consumer] = ()
    consumers_problem: str | None = None
    is_refreshing: bool = True
    refresh_seconds: int | None = None
    sees_messages: bool = False
    """The reader may see messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesPage:
    """Messages that wait in one queue."""

    place: BrokerPlace
    freshness: Freshness
    queue_name: str
    is_subscription: bool
    offset: int
    """Messages before the first one that is shown."""
    count: int
    """Most messages on the page."""
    depth: int
    messages: Sequence[ShownMessage]
    refresh_seconds: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The page of a past time, for a file."""

    place: BrokerPlace
    begin_ms: int
    end_ms: int
    lags: Sequence[SubscriptionLag]
    """At the end of the time, the worst first; not more than a page can hold."""
    total: int
    counts: Mapping[LagState, int]
    """Of all subscriptions, the worst state first."""
    time_series: Mapping[str, TimeSeries]
    """Of those in most trouble, by queue name."""
    problems: Sequence[str] = ()
    """What is missing, sentences without their full stop."""
