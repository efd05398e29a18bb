"""The snapshot ledger: the columns of its rows, and how its segments are named.

The observer writes it, the lag job reads it. Each derives its own schema (Arrow, Spark) from ``COLUMNS``, so this
module knows neither library; a test checks that the three agree.

One poll of a broker gives one row per subscription and then one broker row, which closes the poll. The broker row is
there also when the broker has no subscriptions, so a broker that is empty differs from one that does not answer. Times
are milliseconds since the epoch on the broker's clock, as it was at the poll: what is older than the last time that the
clock was set is moved by as much.
Source: docs/reference/lag-job.md; docs/decisions/063-ledger.md.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

__all__ = [
    "COLUMNS",
    "HISTOGRAMS",
    "HISTOGRAM_COLUMNS",
    "NAMESPACE_KEY",
    "SPARSE_COLUMNS",
    "ColumnType",
    "LedgerColumn",
    "RowKind",
    "SegmentName",
]

SUFFIX: Final = ".parquet"
HIDDEN_PREFIX: Final = "."
"""First character of a file still being written; Spark and the observer leave such files alone."""

NAMESPACE_KEY: Final = b"penstock.namespace"
"""Key of the metadata of a segment: the namespace of its Broker, as UTF-8. Rows name only the Broker, and another one
may have this name in another namespace. Absent in segments of earlier releases.
"""

HOUR_MS: Final = 3_600_000
"""A segment never spans an hour of the broker's clock."""


class ColumnType(enum.Enum):
    """Types of columns; the integers are signed 64 bit throughout, so that no reader has to widen or cast."""

    TEXT = "text"
    LONG = "long"
    FLAG = "flag"
    LONGS = "longs"
    """List of LONG, elements never null."""


class RowKind(enum.StrEnum):
    """What a row describes; values of column ``kind``."""

    BROKER = "broker"
    SUBSCRIPTION = "subscription"


@dataclass(frozen=True, slots=True)
class LedgerColumn:
    """One column. For one that may be null, the comments in `COLUMNS` say which rows have a value."""

    name: str
    type: ColumnType
    nullable: bool = True


def _text(name: str, nullable: bool = True) -> LedgerColumn:
    return LedgerColumn(name, ColumnType.TEXT, nullable)


def _long(name: str, nullable: bool = True) -> LedgerColumn:
    return LedgerColumn(name, ColumnType.LONG, nullable)


def _longs(name: str) -> LedgerColumn:
    return LedgerColumn(name, ColumnType.LONGS)


COLUMNS: Final[tuple[LedgerColumn, ...]] = (
    # Every row.
    _long("seq", nullable=False),  # strictly ascending within one ledger, over all epochs; never used twice
    _text("kind", nullable=False),  # RowKind
    _long("poll", nullable=False),  # seq of the broker row that closes this poll
    _long("time_ms", nullable=False),  # of the poll: the broker's clock
    _text("broker", nullable=False),
    _long("ordinal", nullable=False),
    _text("instance", nullable=False),  # of the broker's data folder
    _long("epoch", nullable=False),  # of the broker: +1 at each start
    # Broker rows.
    _long("interval_ms"),  # intended time between two polls
    LedgerColumn("complete", ColumnType.FLAG),  # false: subscriptions came or went while they were read
    _long("connections"),
    _long("subscriptions"),  # rows of this poll
    _text("durable_work"),  # Ok, Full or Failed
    # Subscription rows: identity.
    _text("queue_name"),
    _text("subscription_name"),
    _text("scope"),
    _text("client_id"),
    LedgerColumn("durable", ColumnType.FLAG),
    _text("exchange"),
    _text("owner_namespace"),  # these three: null unless a resource declared it
    _text("owner_name"),
    _text("owner_uid"),
    _long("incarnation"),
    # Subscription rows: current state. depth = ready + in_flight + scheduled.
    _long("depth"),
    _long("depth_bytes"),
    _long("ready"),
    _long("in_flight"),
    _long("scheduled"),
    _long("oldest_available_ms"),  # null: nothing waits
    _long("oldest_hold_ms"),  # null: nothing is in flight
    _long("consumers"),
    _long("credit"),
    _long("unused_since_ms"),  # null while a link consumes
    # Subscription rows: totals since the incarnation began; never falling within one life: instance, epoch,
    # started_ms and incarnation.
    _long("enqueued"),
    _long("enqueued_bytes"),
    _long("delivered"),
    _long("redelivered"),
    _long("acked"),
    _long("returned"),
    _long("expired"),
    _long("dead_lettered"),
    _long("dropped"),
    _long("lost_at_restart"),
    _long("max_delivery_count"),
    # Subscription rows: cumulative sparse histograms as in penstock_api.state_documents.DurationHistogram. Null: not
    # repeated in this row (`HISTOGRAMS`).
    _longs("sojourn_indexes"),
    _longs("sojourn_counts"),
    _long("sojourn_sum_ms"),
    _longs("wait_indexes"),
    _longs("wait_counts"),
    _long("wait_sum_ms"),
    _longs("hold_indexes"),
    _longs("hold_counts"),
    _long("hold_sum_ms"),
    # Subscription rows; null in segments of earlier releases.
    _long("moved"),  # total, as those above
    _long("stranded"),  # part of scheduled
    _long("usable_credit"),  # of the links that could take the first ready message; null: the broker doesn't say
    _long("usable_consumers"),  # links that could take the first ready message; null: the broker doesn't say
    _text("repeated"),  # JSON: [{"id": text, "deliveryCount": integer, "availableMs": integer}, ...]; null: none
    _long("first_expires_ms"),  # when the ready messages expire that are handed out first and last; null: never, or
    _long("last_expires_ms"),  # not in the order of arrival, or the broker doesn't say
    # Broker rows; null in segments of earlier releases, and in the first poll of an observer.
    _long("clock_step_ms"),  # by how much the clock was set since the poll before; below 0: back; 0: it was not
    # Subscription rows; null in segments of earlier releases.
    _text("consumer_totals"),  # JSON: [{"container": text, "delivered": integer, "sinceMs": integer}, ...]; null: none,
    # or not repeated in this row, as a histogram
    _long("purged"),  # total, as those above; earlier releases count it in dropped
    # Every row; null in segments of earlier releases.
    _long("started_ms"),  # when the broker started, by its clock as it was then: one that was restored from a backup
    # has the epoch of a start before it
)
"""Every column in file order. Later versions only append."""

HISTOGRAMS: Final = ("sojourn", "wait", "hold")
"""Each has the columns ``_indexes``, ``_counts`` and ``_sum_ms``: all three are null in a row that does not repeat it.

The last row of each life in a segment has them, and so has the first row of a life that is new to the ledger. A life
that had no message, and whose histograms are those of the segment before, may leave them out; the next segment in which
they are others then has them in its first row, too.
"""

HISTOGRAM_COLUMNS: Final = tuple(f"{name}_{part}" for name in HISTOGRAMS for part in ("indexes", "counts", "sum_ms"))
"""All columns of histograms."""

SPARSE_COLUMNS: Final = (*HISTOGRAM_COLUMNS, "consumer_totals")
"""All columns that are null in a row that does not repeat the histograms."""


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """``<epoch>-<first>-<last>.parquet``: the segment covers the seq from ``first`` to ``last``.

    A segment that was thinned holds fewer rows than that; the listing says how many (observer_api.SegmentInfo).

    Segments follow each other without a gap if ``last + 1`` is the next one's ``first``. Order by ``first``: an
    epoch goes back when the broker's volume is replaced, seq never does.
    """

    first: int
    last: int
    epoch: int

    @property
    def rows(self) -> int:
        """Number of rows that it covers."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"{self.epoch:010d}-{self.first:012d}-{self.last:012d}{SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> SegmentName | None:
        """The segment of a file name, or None if this is no segment's name."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        segment = cls(epoch=int(found[1]), first=int(found[2]), last=int(found[3]))
        return segment if segment.first <= segment.last and str(segment) == name else None


_NAME: Final = re.compile(r"([0-9]{10,})-([0-9]{12,})-([0-9]{12,})\.parquet")
