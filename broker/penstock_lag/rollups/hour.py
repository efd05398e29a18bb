"""The rollup of one hour: what Spark found of its lives, its polls, and single rows with histograms, put together.

Source: penstock_lag_rules.rollups; docs/reference/lag-job.md, "Rollups".
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Reason: pyarrow ships no type information; what leaves this module is typed.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock_api.ledger_format import HISTOGRAMS, RowKind
from penstock_api.rollup_format import ENDS, TOTALS
from penstock_lag.figures.polls import POLL_COLUMNS, was_set
from penstock_lag.ledger.rows import LedgerRows, Place
from penstock_lag.rollups.hour_lives import AREA_COLUMNS, LIFE, LIFE_COLUMNS, areas, lives
from penstock_lag_rules.figures import Growth
from penstock_lag_rules.rollups import BrokerRow, Buckets, LifeRow, Rollup, RunKey, merged

__all__ = ["compute_rollup"]

Row = Mapping[str, Any]  # Any: what a row holds is known by its schema only
_PLAIN: Final = (
    *LIFE,
    *("owner_namespace", "owner_name", "first_seq", "last_seq", "first_ms", "last_ms", "snapshots"),
    *("first_depth", "last_depth", "min_depth", "max_depth", "max_age_ms"),
    *("min_consumers", "max_consumers", "last_consumers"),
)
_HISTOGRAM_COLUMNS: Final = (
    *("ordinal", "seq"),
    *(f"{name}_{part}" for name in HISTOGRAMS for part in ("indexes", "counts")),
)


def compute_rollup(spark: SparkSession, rows: LedgerRows, start_ms: int, end_ms: int) -> Rollup:
    """The rollup of the rows of an hour, both ends included."""
    within = F.col("time_ms").between(start_ms, end_ms)
    polls = _collect(rows(RowKind.BROKER, POLL_COLUMNS).where(within))
    found = _collect(lives(rows(RowKind.SUBSCRIPTION, LIFE_COLUMNS).where(within)))
    if not found:
        return merged([Rollup(tuple(_runs(polls)))])
    area = _collect(areas(rows(RowKind.SUBSCRIPTION, AREA_COLUMNS).where(within)))
    area_of = {_key(row): int(row["depth_area"]) for row in area}
    buckets = _buckets_at(spark, rows, found)
    rows_of_lives = tuple(_life(row, area_of[_key(row)], buckets) for row in sorted(found, key=_key))
    # In the hour of an upgrade, earlier rows of a run do not say when it started, and later ones do.
    return merged([Rollup(tuple(_runs(polls)), rows_of_lives)])


def _runs(polls: Iterable[Row]) -> list[BrokerRow]:
    def run(row: Row) -> RunKey:
        return row["ordinal"], row["instance"], row["epoch"], row["started_ms"] or 0

    ordered = sorted(polls, key=lambda row: (*run(row), row["seq"]))
    return [_run(key, list(own)) for key, own in groupby(ordered, key=run)]


def _run(key: RunKey, polls: Sequence[Row]) -> BrokerRow:
    ordinal, instance, epoch, started_ms = key
    return BrokerRow(
        ordinal=ordinal,
        instance=instance,
        epoch=epoch,
        started_ms=started_ms,
        first_seq=polls[0]["seq"],
        last_seq=polls[-1]["seq"],
        first_ms=polls[0]["time_ms"],
        last_ms=polls[-1]["time_ms"],
        snapshots=len(polls),
        interval_ms=polls[-1]["interval_ms"],
        first_complete_seq=next((row["seq"] for row in polls if row["complete"]), None),
        clock_steps=sum(was_set(before, now) for before, now in zip((None, *polls), polls, strict=False)),
    )


def _life(row: Row, area: int, buckets: Mapping[Place, Row]) -> LifeRow:
    totals = {end: Growth(**{total: row[f"{end}_{total}"] or 0 for total in TOTALS}) for end in ENDS}
    return LifeRow(
        **{name: row[name] for name in _PLAIN},
        depth_area=area,
        first=totals["first"],
        last=totals["last"],
        first_buckets=_buckets(row, "first", buckets),
        last_buckets=_buckets(row, "last", buckets),
    )


def _buckets(row: Row, end: str, at: Mapping[Place, Row]) -> dict[str, Buckets]:
    found: dict[str, Buckets] = {}
    for name in HISTOGRAMS:
        seq = row[f"{end}_{name}_seq"]
        if seq is not None:
            held = at[row["ordinal"], seq]
            found[name] = tuple(zip(held[f"{name}_indexes"], held[f"{name}_counts"], strict=True))
    return found


def _buckets_at(spark: SparkSession, rows: LedgerRows, found: Iterable[Row]) -> dict[Place, Row]:
    """The rows with the first and the last histograms, by ordinal and seq."""
    places = sorted(
        {
            (row["ordinal"], seq)
            for row in found
            for name in HISTOGRAMS
            for end in ENDS
            if (seq := row[f"{end}_{name}_seq"]) is not None
        }
    )
    if not places:
        return {}
    ordinals, seqs = zip(*places, strict=True)
    wanted = spark.createDataFrame(pa.table({"ordinal": pa.array(ordinals), "seq": pa.array(seqs)}))
    held = rows(RowKind.SUBSCRIPTION, _HISTOGRAM_COLUMNS, places).join(F.broadcast(wanted), ["ordinal", "seq"], "inner")
    return {(row["ordinal"], row["seq"]): row for row in _collect(held)}


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in LIFE)


def _collect(frame: DataFrame) -> list[Row]:
    found: list[Row] = frame.toArrow().to_pylist()
    return found
