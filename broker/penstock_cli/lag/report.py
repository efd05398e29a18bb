"""`penstock lag report`: the lag of a time or a day as one HTML file that needs nothing else."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path

import click

from penstock_api.failure import Failure, Misuse
from penstock_cli.lag.past import Ledger
from penstock_cli.lag.past import report as past_report
from penstock_cli.lag.sources import Sources, on_observers, segment, segments
from penstock_lag.observer_client import ObserverError
from penstock_page import render

__all__ = ["report"]

DAY = click.DateTime(formats=["%Y-%m-%d"])
TIME = click.DateTime(formats=["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ"])


@click.command("lag report")
@click.option("--window", type=click.IntRange(60, 7 * 86_400), help="Seconds that the report covers. Default: 3600.")
@click.option("--day", type=DAY, metavar="YYYY-MM-DD", help="Cover this day, in UTC, instead of a window.")
@click.option(
    "--as-of",
    type=TIME,
    metavar="TIME",
    help="End of the window, in UTC, such as 2026-05-01T12:00:00Z. Default: the last row of the ledger.",
)
@click.option(
    "--worst", type=click.IntRange(0, 500), default=20, show_default=True, help="Number of subscriptions with plots."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    default=Path("lag-report.html"),
    show_default=True,
    help="The file to write; - is the standard output.",
)
@on_observers
def report(
    sources: Sources,
    *,
    window: int | None,
    day: datetime | None,
    as_of: datetime | None,
    worst: int,
    output: Path,
) -> int:
    """Write the lag of every subscription over a window or a day as one HTML file, those in trouble first.

    It reads the ledgers of the observers and needs neither Spark nor Java. States are those at the end of the time, by
    the same rules as the live state. The file needs nothing else and can be sent by mail.

    Exit codes: 0 the file was written; 1 no ledger could be read, or the file could not be written; 2 wrong usage.
    """
    if day is not None and (window is not None or as_of is not None):
        raise Misuse("--day can't be used together with --window or --as-of.", "Give one or the other.")
    ledgers, problems = _ledgers(sources)
    begin_ms, end_ms = _time(ledgers, window, day, as_of)
    try:
        page = past_report(ledgers, begin_ms, end_ms, worst, problems)
    except ObserverError as error:
        raise Failure(
            f"the ledger can't be read: {error}.", "Try again; segments past their retention vanish."
        ) from error
    _write(output, render.report(page, version=version("penstock")))
    if output != Path("-"):
        click.echo(f"{output}: {page.total} subscriptions, {len(page.courses)} of them with plots", err=True)
    for problem in page.problems:
        click.echo(f"penstock: not complete: {problem}", err=True)
    return 0


def _ledgers(sources: Sources) -> tuple[list[Ledger], list[str]]:
    found: list[Ledger] = []
    problems: list[str] = []
    for observer in sources.observers:
        try:
            listed = segments(observer)
        except ObserverError as error:
            problems.append(str(error))
            continue
        if not listed.segments:
            problems.append(f"the ledger of {observer.url} has no finished segment yet")
            continue
        found.append(Ledger(listed, partial(segment, observer)))
    if not found:
        raise Failure(f"{problems[0]}.", "Without a ledger there is nothing to report.")
    return found, problems


def _time(ledgers: list[Ledger], window: int | None, day: datetime | None, as_of: datetime | None) -> tuple[int, int]:
    """Begin and end in milliseconds since 1970. A day that is not over ends with the ledger."""
    last_ms = max(ledger.listed.segments[-1].last_ms for ledger in ledgers)
    if day is not None:
        begin_ms = _milliseconds(day)
        return begin_ms, max(min(_milliseconds(day + timedelta(days=1)) - 1, last_ms), begin_ms)
    end_ms = last_ms if as_of is None else _milliseconds(as_of)
    return end_ms - (3600 if window is None else window) * 1000, end_ms


def _milliseconds(time: datetime) -> int:
    return round(time.replace(tzinfo=UTC).timestamp() * 1000)


def _write(output: Path, page: str) -> None:
    if output == Path("-"):
        sys.stdout.write(page)
        return
    hidden = output.with_name(f".{output.name}.new")
    try:
        hidden.write_text(page, encoding="utf-8")
        hidden.replace(output)
    except OSError as error:
        hidden.unlink(missing_ok=True)
        raise Failure(f"{output} can't be written: {error.strerror}.", "Name another file with --output.") from error
