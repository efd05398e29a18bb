"""`penstock lag report`: the lag of a time or a day as one HTML file that needs nothing else."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

import click

from penstock_api.failure import Failure, Misuse
from penstock_api.observer_api import SegmentList
from penstock_cli.help_option import WITH_HELP
from penstock_cli.lag.copied_ledger import copied
from penstock_cli.lag.past import Ledger
from penstock_cli.lag.past import report as past_report
from penstock_cli.lag.sources import Sources, of_another, on_observers, segment, segments
from penstock_cli.progress import in_terminal
from penstock_lag.observer_client import Observer, ObserverError
from penstock_page import render

__all__ = ["report"]

DAY = click.DateTime(formats=["%Y-%m-%d"])
DAY_MS: Final = 24 * 3600 * 1000
FIRST_YEAR: Final = 1970
TIME = click.DateTime(formats=["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ"])


@click.command("lag report", context_settings=WITH_HELP)
@click.option(
    "--window",
    metavar="SECONDS",
    type=click.IntRange(60, 7 * 86_400),
    help="Seconds that the report covers. Default: 3600.",
)
@click.option("--day", type=DAY, metavar="YYYY-MM-DD", help="Cover this day, in UTC, instead of a window.")
@click.option(
    "--as-of",
    type=TIME,
    metavar="TIME",
    help="End of the window, in UTC, such as 2026-05-01T12:00:00Z. Default: the last row of the ledger.",
)
@click.option(
    "--worst",
    metavar="NUMBER",
    type=click.IntRange(0, 500),
    default=20,
    show_default=True,
    help="Number of subscriptions with plots.",
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
    if as_of is not None and as_of.year < FIRST_YEAR:
        raise Misuse("--as-of is before there were ledgers.", "Give the time at which the report ends.")
    begin_ms, end_ms = _time([listed for _, listed in ledgers], window, day, as_of)
    with tempfile.TemporaryDirectory(prefix="penstock-report-") as copies:
        try:
            copied_ledgers = _copies(ledgers, begin_ms, end_ms, Path(copies))
            page = past_report(copied_ledgers, begin_ms, end_ms, worst, problems, follow=in_terminal)
        except ObserverError as error:
            cure = error.cure("Try again; segments past their retention vanish.")
            raise Failure(f"the ledger can't be read: {error}.", cure) from error
    _write(output, render.report(page, version=version("penstock")))
    if output != Path("-"):
        click.echo(f"{output}: {page.total} subscriptions, {len(page.time_series)} of them with plots", err=True)
    for problem in page.problems:
        click.echo(f"penstock: not complete: {problem}", err=True)
    return 0


def _ledgers(sources: Sources) -> tuple[list[tuple[Observer, SegmentList]], list[str]]:
    found: list[tuple[Observer, SegmentList]] = []
    problems: list[str] = []
    cures: list[str] = []
    for observer in sources.observers:
        try:
            listed = segments(observer)
        except ObserverError as error:
            problems.append(str(error))
            cures.append(error.cure("Is the observer running, and is this its address?"))
            continue
        if found and (why := of_another(observer, listed, found[0][1])) is not None:
            problems.append(why)
            continue
        if not listed.segments:
            problems.append(f"the ledger of {observer.url} has no finished segment yet")
            cures.append(
                "Run this again in a minute or two: so long a segment takes, unless --segment-seconds is more."
            )
            continue
        found.append((observer, listed))
    if not found:
        raise Failure(f"{problems[0]}.", cures[0])
    return found, problems


def _copies(ledgers: list[tuple[Observer, SegmentList]], begin_ms: int, end_ms: int, folder: Path) -> list[Ledger]:
    found: list[Ledger] = []
    for at, (observer, listed) in enumerate(ledgers):
        own = folder / str(at)
        own.mkdir()
        again, fetch = partial(segments, observer), partial(segment, observer)
        found.append(copied(listed, again, fetch, begin_ms, end_ms, own, in_terminal))
    return found


def _time(
    listings: list[SegmentList], window: int | None, day: datetime | None, as_of: datetime | None
) -> tuple[int, int]:
    """Begin and end in milliseconds since 1970. A day that is not over ends with the ledger."""
    last_ms = max(listed.segments[-1].last_ms for listed in listings)
    if day is not None:
        begin_ms = _milliseconds(day)
        return begin_ms, max(min(begin_ms + DAY_MS - 1, last_ms), begin_ms)
    end_ms = last_ms if as_of is None else _milliseconds(as_of)
    return end_ms - (3600 if window is None else window) * 1000, end_ms


def _milliseconds(time: datetime) -> int:
    return round(time.replace(tzinfo=UTC).timestamp() * 1000)


def _write(output: Path, page: str) -> None:
    if output == Path("-"):
        click.echo(page, nl=False)
        return
    hidden = output.with_name(f".{output.name}.new")
    try:
        hidden.write_text(page, encoding="utf-8")
        hidden.replace(output)
    except OSError as error:
        hidden.unlink(missing_ok=True)
        raise Failure(f"{output} can't be written: {error.strerror}.", "Name another file with --output.") from error
