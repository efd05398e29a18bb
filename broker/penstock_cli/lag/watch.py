"""`penstock lag --watch`: the live lag in a terminal, drawn anew every few seconds until Ctrl-C."""

from __future__ import annotations

import os
import shutil
import sys
import time

import click

from penstock_api.failure import Failure
from penstock_api.lag_result import LagResult
from penstock_cli.help_option import WITH_HELP
from penstock_cli.lag.frame import frame
from penstock_cli.lag.sources import Sources, live_lag, of_another, on_observers
from penstock_lag.observer_client import ObserverError

__all__ = ["watch"]

HOME_AND_CLEAR = "\x1b[H\x1b[J"


@click.command("lag --watch", context_settings=WITH_HELP)
@click.option(
    "--interval",
    type=click.FloatRange(min=1, max=3600),
    default=5.0,
    show_default=True,
    help="Seconds between two pictures.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    help="Number of pictures. Default: until Ctrl-C in a terminal, 1 where the output is a file or a pipe.",
)
@on_observers
def watch(sources: Sources, *, interval: float, count: int | None) -> int:
    """Show the lag of every subscription as it stands now, those in trouble first.

    It needs neither Spark nor Java. In a terminal the picture is drawn anew until Ctrl-C. Where the output is a file or
    a pipe, it is written once, whole and without colours.

    Exit codes: 0 the lag was shown; 1 no observer answered; 2 wrong usage.
    """
    output: object = sys.stdout  # None if it is closed
    is_terminal = output is not None and sys.stdout.isatty()
    left = count if count is not None else (None if is_terminal else 1)
    try:
        while True:
            results, problems = _asked(sources)
            if not results and not is_terminal:
                raise Failure(f"{problems[0]}.", "Is the observer running, and is this its address?")
            _draw(results, problems, is_terminal)
            left = None if left is None else left - 1
            if left == 0:
                break
            time.sleep(interval)
    except KeyboardInterrupt:
        click.echo()
    return 0


def _draw(results: list[LagResult], problems: list[str], is_terminal: bool) -> None:
    if not is_terminal:
        click.echo(frame(results, problems), nl=False)
        return
    size = shutil.get_terminal_size()
    colour = not os.environ.get("NO_COLOR")
    picture = frame(results, problems, width=size.columns, height=size.lines - 1, colour=colour)
    click.echo(HOME_AND_CLEAR + picture, nl=False, color=True)


def _asked(sources: Sources) -> tuple[list[LagResult], list[str]]:
    results: list[LagResult] = []
    problems: list[str] = []
    for observer in sources.observers:
        try:
            result = live_lag(observer)
        except ObserverError as error:
            problems.append(str(error))
            continue
        if results and (why := of_another(observer, result, results[0])) is not None:
            problems.append(why)
            continue
        results.append(result)
        problems += result.missing
    return results, problems
