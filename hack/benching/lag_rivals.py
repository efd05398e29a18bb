"""The core figures of the lag job by DuckDB or Polars, for `hack/bench lag`: NAME FOLDER OUTPUT THREADS.

Per subscription: how it stands at the end, what came and was accepted in the window, the least depth, and how often the
depth fell. It is a part of what the job computes: no lives, no spans, no losses, no percentiles, no state, no document.
The ledgers of the benchmark have one life for each subscription, so totals are simply last minus first.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingImports=false
# Reason: the two engines are installed for the benchmark alone.

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

FIGURES = ("messages", "ready", "in_flight", "consumers", "enqueued", "acked", "min_depth", "falls")
_SQL = """
WITH compared AS (
    SELECT queue_name, seq, depth, ready, in_flight, consumers, enqueued, acked,
           depth < lag(depth) OVER (PARTITION BY queue_name ORDER BY seq) AS fell
    FROM read_parquet('{folder}/*.parquet') WHERE kind = 'subscription')
SELECT queue_name, arg_max(depth, seq), arg_max(ready, seq), arg_max(in_flight, seq), arg_max(consumers, seq),
       max(enqueued) - min(enqueued), max(acked) - min(acked), min(depth), count_if(fell)
FROM compared GROUP BY queue_name
"""


def by_duckdb(folder: Path, threads: int) -> list[tuple[object, ...]]:
    """One row per subscription: its name and the figures."""
    import duckdb

    with duckdb.connect(config={"threads": threads}) as connection:
        found: list[tuple[object, ...]] = connection.execute(_SQL.format(folder=folder)).fetchall()
        return found


def by_polars(folder: Path) -> list[tuple[object, ...]]:
    """The same. Files are in the order of the ledger, and so are the rows in them."""
    import polars as pl

    def last(name: str) -> Any:
        return pl.col(name).sort_by("seq").last()

    rows = pl.scan_parquet(f"{folder}/*.parquet").filter(pl.col("kind") == "subscription")
    found = rows.group_by("queue_name").agg(
        last("depth").alias("messages"),
        last("ready"),
        last("in_flight"),
        last("consumers"),
        pl.col("enqueued").max() - pl.col("enqueued").min(),
        pl.col("acked").max() - pl.col("acked").min(),
        pl.col("depth").min().alias("min_depth"),
        (pl.col("depth").sort_by("seq").diff() < 0).sum().alias("falls"),
    )
    rows_found: list[tuple[object, ...]] = found.collect(engine="streaming").rows()
    return rows_found


def main() -> None:
    """Write the figures as JSON: by queue name, a list in the order of FIGURES."""
    name, folder, output, threads = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    os.environ["POLARS_MAX_THREADS"] = str(threads)
    rows = by_duckdb(folder, threads) if name == "duckdb" else by_polars(folder)
    output.write_text(json.dumps({str(row[0]): row[1:] for row in rows}))


if __name__ == "__main__":
    main()
