"""Rollups: what is kept of an hour and of a day of the ledger, the columns of these files, and their names.

The lag job writes them, the observer of ordinal 0 keeps them, whoever shows history reads them. A rollup has one row
for each life of each subscription, and one for each run of a broker; a *life* is one data folder, one start of the
broker, and one incarnation of the queue. Totals and histograms are kept as they stood in the first and in the last
snapshot, so a day follows exactly from its hours (penstock_lag_rules.rollups). Times are milliseconds since 1970 on the
broker's clock. Source: docs/reference/lag-job.md, "Rollups"; docs/decisions/072-rollups.md.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from penstock_api.ledger_format import HISTOGRAMS, HOUR_MS, ColumnType, LedgerColumn
from penstock_api.observer_api import Count

__all__ = [
    "ABOUT_KEY",
    "COLUMNS",
    "DAY_MS",
    "ENDS",
    "LATER_COLUMNS",
    "MAX_ROLLUP_BYTES",
    "ROLLUP",
    "ROLLUPS",
    "TOTALS",
    "VERSION",
    "Period",
    "RollupAbout",
    "RollupInfo",
    "RollupList",
    "RollupName",
]

ROLLUPS: Final = "/v1/rollups"
"""Path of the observer: GET a RollupList."""
ROLLUP: Final = "/v1/rollups/{name}"
"""Path of the observer: PUT a Parquet file, GET it back."""

VERSION: Final = 1
DAY_MS: Final = 24 * HOUR_MS
MAX_ROLLUP_BYTES: Final = 64 * 1024 * 1024
"""Largest rollup that an observer accepts."""
ABOUT_KEY: Final = b"penstock.rollup"
"""Key of the Parquet file's metadata; the value is a RollupAbout as JSON."""

SUFFIX: Final = ".parquet"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

ENDS: Final = ("first", "last")
"""Totals and histograms are kept as they stood in the first and in the last snapshot."""

TOTALS: Final = (
    *("enqueued", "delivered", "redelivered", "acked", "expired", "dead_lettered", "dropped", "moved"),
    "lost_at_restart",
    "purged",
)
"""Columns of the ledger of which both ends are kept."""

LATER_TOTALS: Final = ("purged",)
"""Those of them that rollups of earlier releases do not have."""


def _long(name: str, nullable: bool = True) -> LedgerColumn:
    return LedgerColumn(name, ColumnType.LONG, nullable)


def _text(name: str, nullable: bool = True) -> LedgerColumn:
    return LedgerColumn(name, ColumnType.TEXT, nullable)


COLUMNS: Final[tuple[LedgerColumn, ...]] = (
    # Every row.
    _text("kind", nullable=False),  # ledger_format.RowKind: a life of a subscription, or a run of a broker
    _long("ordinal", nullable=False),
    _text("instance", nullable=False),
    _long("epoch", nullable=False),
    _long("first_seq", nullable=False),  # of the first and the last snapshot, or poll
    _long("last_seq", nullable=False),
    _long("first_ms", nullable=False),
    _long("last_ms", nullable=False),
    _long("snapshots", nullable=False),  # number of snapshots, or of polls
    # Broker rows.
    _long("interval_ms"),  # intended time between two polls
    _long("first_complete_seq"),  # first poll that shows which subscriptions there are not; null: none does
    # Subscription rows.
    _text("queue_name"),
    _long("incarnation"),
    _text("owner_namespace"),
    _text("owner_name"),
    *[_long(f"{end}_depth") for end in ENDS],
    _long("min_depth"),
    _long("max_depth"),
    _long("depth_area"),  # message-milliseconds: each depth counts until the next snapshot
    _long("max_age_ms"),  # age of the oldest message; null: nothing waited, or the clock went back
    _long("min_consumers"),
    _long("max_consumers"),
    _long("last_consumers"),
    *[_long(f"{end}_{total}") for total in TOTALS if total not in LATER_TOTALS for end in ENDS],
    # Cumulative sparse histograms as in the ledger; null: no row of the life had one.
    *[
        LedgerColumn(f"{end}_{name}_{part}", ColumnType.LONGS)
        for name in HISTOGRAMS
        for end in ENDS
        for part in ("indexes", "counts")
    ],
    # Subscription rows; absent in rollups of earlier releases.
    *[_long(f"{end}_{total}") for total in LATER_TOTALS for end in ENDS],
    # Every row; absent in rollups of earlier releases.
    _long("started_ms", nullable=False),  # when the broker started; 0: not known
    # Broker rows; absent in rollups of earlier releases.
    _long("clock_steps"),  # how often it was seen that the broker's clock was set
)
"""Every column in file order. Later versions only append."""

LATER_COLUMNS: Final = frozenset(
    ("started_ms", "clock_steps", *(f"{end}_{total}" for total in LATER_TOTALS for end in ENDS))
)
"""Those that may be absent."""


class Period(enum.StrEnum):
    """Of what time a rollup is."""

    HOUR = "hour"
    DAY = "day"

    @property
    def milliseconds(self) -> int:
        """Its length."""
        return HOUR_MS if self is Period.HOUR else DAY_MS


@dataclass(frozen=True, slots=True, order=True)
class RollupName:
    """``hour-2023-11-14T22.parquet`` or ``day-2023-11-14.parquet``: the period, and its start in UTC."""

    start_ms: int
    period: Period

    @property
    def end_ms(self) -> int:
        """The first millisecond after it."""
        return self.start_ms + self.period.milliseconds

    def __str__(self) -> str:
        start = _EPOCH + timedelta(milliseconds=self.start_ms)
        return f"{self.period.value}-{start:{_FORMS[self.period]}}{SUFFIX}"

    @classmethod
    def of(cls, period: Period, moment_ms: int) -> RollupName:
        """The rollup to which a moment belongs."""
        return cls(moment_ms - moment_ms % period.milliseconds, period)

    @classmethod
    def parse(cls, name: str) -> RollupName | None:
        """The rollup of a file name, or None if this is no rollup's name."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        period = Period(found[1])
        try:
            start = datetime.strptime(found[2], _FORMS[period]).replace(tzinfo=UTC)
        except ValueError:
            return None
        made = cls((start - _EPOCH) // timedelta(milliseconds=1), period)
        return made if made.start_ms >= 0 and str(made) == name else None


_FORMS: Final = {Period.HOUR: "%Y-%m-%dT%H", Period.DAY: "%Y-%m-%d"}
_NAME: Final = re.compile(r"(hour|day)-([0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2})?)\.parquet")


class RollupModel(BaseModel):
    """camelCase on the wire, unknown keys ignored (later versions only add fields), immutable."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


Ordinal = Annotated[int, Field(ge=0, lt=1000)]
Sentence = Annotated[str, Field(max_length=1024)]


class RollupAbout(RollupModel):
    """What a rollup says about itself, in the metadata of its file."""

    version: int = VERSION
    broker: Annotated[str, Field(min_length=1, max_length=253)]
    namespace: Annotated[str, Field(min_length=1, max_length=253)]
    name: Annotated[str, Field(max_length=64)]  # RollupName
    ordinals: Annotated[tuple[Ordinal, ...], Field(max_length=1000)]  # of the brokers with rows in it
    hours: Annotated[int, Field(ge=1, le=24)]  # so many hours are in it
    missing: Annotated[tuple[Sentence, ...], Field(max_length=10_000)] = ()  # sentences: what was not in the ledger
    clock_set: Annotated[tuple[Ordinal, ...], Field(max_length=1000)] = ()  # of the brokers whose clock was set in it


class RollupInfo(RollupModel):
    """One rollup in a list."""

    name: Annotated[str, Field(max_length=64)]
    bytes: Count
    rows: Count
    ordinals: Annotated[tuple[Ordinal, ...], Field(max_length=1000)] = ()
    hours: Annotated[int, Field(ge=1, le=24)] = 1
    clock_set: Annotated[tuple[Ordinal, ...], Field(max_length=1000)] = ()  # absent from observers of earlier releases


class RollupList(RollupModel):
    """Body of `ROLLUPS`: every rollup that is kept, in order of its start, a day before its first hour."""

    broker: Annotated[str, Field(max_length=253)]
    namespace: Annotated[str, Field(max_length=253)]
    rollups: Annotated[tuple[RollupInfo, ...], Field(max_length=100_000)] = ()
