"""Rollups of the Brokers of a run, after their results: from segments that observers serve, or from folders.

One Broker that fails does not keep the others from theirs. Source: docs/reference/lag-job.md, "Rollups".
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from penstock_api.failure import Failure
from penstock_lag.ledger_paths import LedgerFolder, list_ledgers
from penstock_lag.ledger_source import SegmentMismatch
from penstock_lag.observer_client import Observer, ObserverError
from penstock_lag.rollup_plan import Bounds, Brokers
from penstock_lag.rollup_run import RollupPlace, RowsOf, roll_up
from penstock_lag.rollup_stores import RollupsUnavailable
from penstock_lag.segment_files import download, native_rows
from penstock_lag.segment_listing import list_segments
from penstock_lag.session import tune
from penstock_lag.spark_failures import explained
from penstock_lag.transforms.rows import LedgerRows
from penstock_lag.windows import Plan

__all__ = ["Ledgers", "ledgers_in_folders", "ledgers_of_observers", "roll_up_broker"]

CURE: Final = "The result of the run is not affected. The next run tries the rollups again."


@dataclass(frozen=True, slots=True)
class Ledgers:
    """The ledgers of one Broker: what they have, and how rows of it are read."""

    brokers: Brokers
    rows_of: RowsOf


def roll_up_broker(
    spark: SparkSession, ledgers: Callable[[], Ledgers], place: RollupPlace, stale_seconds: int, bounds: Bounds
) -> Failure | None:
    """Roll up what is due of one Broker. Returns why that did not work, None if it did."""
    try:
        found = ledgers()
        roll_up(spark, found.brokers, place, found.rows_of, stale_seconds * 1000, bounds)
    except (RollupsUnavailable, ObserverError, SegmentMismatch, OSError) as error:
        return Failure(f"the rollups of {place.namespace}/{place.broker} are not complete: {error}.", CURE)
    except Failure as failure:
        return failure
    return None


def ledgers_of_observers(spark: SparkSession, observers: Sequence[Observer], broker: str, namespace: str) -> Ledgers:
    """Those that observers serve: each hour is copied to the temporary folder while it is read."""

    @contextmanager
    def rows_of(plan: Plan) -> Generator[LedgerRows]:
        with tempfile.TemporaryDirectory(prefix="penstock-rollup-") as scratch:
            files = download(observers, plan, Path(scratch))
            tune(spark, plan.rows)
            with explained(spark, plan.rows):
                yield native_rows(spark, files)

    return Ledgers(list_segments(observers, broker, namespace), rows_of)


def ledgers_in_folders(spark: SparkSession, paths: Sequence[str], broker: str, namespace: str) -> Ledgers:
    """Those in folders, which Spark reads where they are."""
    with explained(spark):
        folders = list_ledgers(spark, paths, broker, namespace)
    return Ledgers([folder.broker for folder in folders], partial(_rows_in, spark, folders))


@contextmanager
def _rows_in(spark: SparkSession, folders: Sequence[LedgerFolder], plan: Plan) -> Generator[LedgerRows]:
    chosen = {(each.ordinal, each.name) for each in plan.segments}
    files = [file for folder in folders for file in folder.files if (file.ordinal, str(file.name)) in chosen]
    tune(spark, plan.rows)
    with explained(spark, plan.rows):
        yield native_rows(spark, files)
