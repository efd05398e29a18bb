"""The options of the lag job, the same for `penstock lag`, `python -m penstock_lag` and a SparkApplication."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from penstock_lag.settings import RUN_NAME_VARIABLE, TOKEN_VARIABLE, LagJobSettings

__all__ = ["parse"]


def parse(arguments: Sequence[str]) -> LagJobSettings:
    """Settings from command-line arguments. Raises Misuse for bad values; argparse itself exits for unknown options."""
    given = _parser().parse_args(list(arguments))
    return LagJobSettings(
        observers=tuple(url.strip() for urls in given.observer for url in urls.split(",") if url.strip()),
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
        output=given.output,
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
        required=True,
        metavar="URL[,URL...]",
        help="base URL of each observer, in the order of the pods' ordinals; the first one stores the result",
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
    add("--no-publish", action="store_true", help="do not store the result at the first observer")
    add("--output", type=Path, metavar="FILE", help="also write the result to this file; - is the standard output")
    add("--table", action="store_true", help="print the result as a table")
    return parser


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
