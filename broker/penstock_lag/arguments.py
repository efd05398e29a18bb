"""The options of the lag job, the same for `penstock lag`, `python -m penstock_lag` and a SparkApplication."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from penstock_api.failure import Misuse
from penstock_api.lag_targets import DEFAULT_STALE_SECONDS, DEFAULT_WINDOW_SECONDS
from penstock_lag.settings import MEMORY_VARIABLE, RUN_NAME_VARIABLE, TOKEN_VARIABLE, LagJobSettings

__all__ = ["parse"]

OF_ONE_BROKER: Final = (
    *("--observer", "--ledger", "--token-file", "--ca-file"),
    *("--broker", "--namespace", "--window", "--stale"),
)
"""Options that say something of one Broker. With `--brokers` the file says it."""


def parse(arguments: Sequence[str]) -> LagJobSettings:
    """Settings from command-line arguments. Raises Misuse for bad values; argparse itself exits for unknown options."""
    given = _parser().parse_args(list(arguments))
    _check_together(given)
    return LagJobSettings(
        observers=_listed(given.observer),
        ledgers=_listed(given.ledger),
        broker=given.broker or "",
        namespace=given.namespace or "",
        brokers_file=given.brokers,
        run_name=given.run_name,
        token_file=given.token_file,
        window_seconds=DEFAULT_WINDOW_SECONDS if given.window is None else given.window,
        stale_seconds=DEFAULT_STALE_SECONDS if given.stale is None else given.stale,
        patience_seconds=given.patience,
        ca_file=given.ca_file,
        as_of=given.as_of,
        publish=not given.no_publish,
        from_time=given.from_time,
        to_time=given.to_time,
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
    add("--broker", help="name of the Broker resource")
    add("--namespace", help="namespace of the Broker resource")
    add(
        "--brokers",
        type=Path,
        metavar="FILE",
        help="compute the lag of all Brokers that this JSON file names, in one run; it says of each what "
        f"{', '.join(OF_ONE_BROKER[:-1])} and {OF_ONE_BROKER[-1]} say of one",
    )
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
        metavar="SECONDS",
        help=f"length of the window that is analysed (default: {DEFAULT_WINDOW_SECONDS})",
    )
    add(
        "--stale",
        type=int,
        metavar="SECONDS",
        help="a broker whose last row is older than this at the end of the window is missing "
        f"(default: {DEFAULT_STALE_SECONDS})",
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
        "--from",
        dest="from_time",
        type=_time,
        metavar="TIME",
        help="do not compute the lag of a window: compute the rollups from this time (ISO 8601) on again, from what is "
        "left of the ledger, and tell the history from all rollups that there are",
    )
    add("--to", dest="to_time", type=_time, metavar="TIME", help="end of that range (default: now)")
    add(
        "--rollups",
        type=Path,
        metavar="FOLDER",
        help="keep the rollups of hours and days in this folder (default: at the first observer, unless --no-publish)",
    )
    add(
        "--output",
        type=Path,
        metavar="FILE",
        help="also write the result to this file; - is the standard output. With --brokers: a folder, in which each "
        "Broker has the file NAMESPACE.BROKER.json",
    )
    add("--table", action="store_true", help="print the result as a table")
    return parser


def _check_together(given: argparse.Namespace) -> None:
    if given.brokers is None:
        return
    values: dict[str, object] = vars(given)
    both = [each for each in OF_ONE_BROKER if values[each.removeprefix("--").replace("-", "_")] not in (None, [])]
    if both:
        named = ", ".join(both)
        raise Misuse(f"{named} can't be used together with --brokers.", "The file of --brokers says it.")


def _listed(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(each.strip() for word in words for each in word.split(",") if each.strip())


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
