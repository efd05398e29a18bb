"""The options of the lag job, the same for `penstock lag`, `python -m penstock_lag` and a SparkApplication."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from penstock_lag.settings import MEMORY_VARIABLE, RUN_NAME_VARIABLE, TOKEN_VARIABLE, LagJobSettings

__all__ = ["parse"]


def parse(arguments: Sequence[str]) -> LagJobSettings:
    """Settings from command-line arguments. Raises Misuse for bad values; argparse itself exits for unknown options."""
    given = _parser().parse_args(list(arguments))
    return LagJobSettings(
        observers=_listed(given.observer),
        ledgers=_listed(given.ledger),
        broker=given.broker,
        namespace=given.namespace,
        run_name=given.run_name,
        token_file=given.token_file,
        window_seconds=given.window,
        stale_seconds=given.stale,
        patience_seconds=given.patience,
        ca_file=given.ca_file,
        as_of=given.as_of,
        publish=not given.no_publish,
        rollups=given.rollups,
        output=given.output,
        memory=given.memory,
        table=given.table,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock lag",
        description="Compute the lag of every subscription of a broker, from the ledgers of its observers.",
    )
    add = parser.add_argument
    add(
        "--observer",
        action="append",
        default=[],
        metavar="URL[,URL...]",
        help="base URL of each observer, in the order of the pods' ordinals; the first one stores the result",
    )
    add(
        "--ledger",
        action="append",
        default=[],
        metavar="PATH[,PATH...]",
        help="folder of each ledger, in the order of the pods' ordinals: a path, or an address that Spark can read "
        "(s3a://...); it is read there, and the observers are not asked",
    )
    add("--broker", required=True, help="name of the Broker resource")
    add("--namespace", required=True, help="namespace of the Broker resource")
    add("--run-name", help=f"name of this run (default: ${RUN_NAME_VARIABLE}, else the name of the Spark application)")
    add(
        "--token-file",
        type=Path,
        help=f"file with the bearer token of the observers (default: the token in ${TOKEN_VARIABLE})",
    )
    add(
        "--ca-file",
        type=Path,
        help="CA certificates (PEM) that must have signed those of the observers (default: the system's)",
    )
    add(
        "--window",
        type=int,
        default=300,
        metavar="SECONDS",
        help="length of the window that is analysed (default: %(default)s)",
    )
    add(
        "--stale",
        type=int,
        default=180,
        metavar="SECONDS",
        help="a broker whose last row is older than this at the end of the window is missing (default: %(default)s)",
    )
    add(
        "--patience",
        type=int,
        default=30,
        metavar="SECONDS",
        help="how long to repeat requests to an observer that does not answer (default: %(default)s)",
    )
    add(
        "--as-of",
        type=_time,
        metavar="TIME",
        help="end of the window, ISO 8601 (default: time of the last row in a finished segment)",
    )
    add(
        "--memory",
        default=os.environ.get(MEMORY_VARIABLE, "1g"),
        metavar="SIZE",
        help=f"heap of Spark, such as 1g or 1536m; under spark-submit the application sets it (default: "
        f"${MEMORY_VARIABLE}, else 1g)",
    )
    add("--no-publish", action="store_true", help="do not store the result at the first observer")
    add(
        "--rollups",
        type=Path,
        metavar="FOLDER",
        help="keep the rollups of hours and days in this folder (default: at the first observer, unless --no-publish)",
    )
    add("--output", type=Path, metavar="FILE", help="also write the result to this file; - is the standard output")
    add("--table", action="store_true", help="print the result as a table")
    return parser


def _listed(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(each.strip() for word in words for each in word.split(",") if each.strip())


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
