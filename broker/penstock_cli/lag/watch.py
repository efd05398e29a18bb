"""`penstock lag --watch`: the live lag in a terminal, drawn anew every few seconds until Ctrl-C."""

from __future__ import annotations

import os
import shutil
import sys
import time
from http import HTTPStatus

import click

from penstock_api.failure import Failure
from penstock_api.lag_result import LagResult
from penstock_cli.help_option import WITH_HELP
from penstock_cli.lag.frame import frame
from penstock_cli.lag.sources import Sources, live_lag, of_another, on_observers
from penstock_cli.terminal import can_erase
from penstock_lag.observer_client import ObserverError

__all__ = ["watch"]

HOME_AND_CLEAR = "\x1b[H\x1b[J"


@click.command("lag --watch", context_settings=WITH_HELP)
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(min=1, max=3600),
    default=5.0,
    show_default=True,
    help="Seconds between two pictures.",
)
@click.option(
    "--count",
    metavar="NUMBER",
    type=click.IntRange(min=1),
    help="Number of pictures. Default: until Ctrl-C in a terminal, 1 where the output is no terminal.",
)
@on_observers
def watch(sources: Sources, *, interval: float, count: int | None) -> int:
    """Show the lag of every subscription as it stands now, those in trouble first.

    It needs neither Spark nor Java. In a terminal the picture is drawn anew until Ctrl-C. Where the output is a file, a
    pipe or a terminal that can't erase (TERM=dumb), it is written once, whole and without colours.

    Exit codes: 0 the lag was shown; 1 no observer answered; 2 wrong usage.
    """
    is_terminal = can_erase(sys.stdout)
    left = count if count is not None else (None if is_terminal else 1)
    try:
        while True:
            results, problems, failed = _asked(sources)
            if not results and not is_terminal:
                raise Failure(f"{problems[0]}.", _cure(failed[0]))
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


def _cure(error: ObserverError) -> str:
    if error.status is None:
        return "Is the observer running, and is this its address?"
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return "The observer answers; see whether its broker runs."
    return error.cure("Is this the address of an observer, without a path, such as http://127.0.0.1:8080?")


def _asked(sources: Sources) -> tuple[list[LagResult], list[str], list[ObserverError]]:
    """What the observers say, what is wrong, in sentences, and the errors among that."""
    results: list[LagResult] = []
    problems: list[str] = []
    failed: list[ObserverError] = []
    for observer in sources.observers:
        try:
            result = live_lag(observer)
        except ObserverError as error:
            problems.append(str(error))
            failed.append(error)
            continue
        if results and (why := of_another(observer, result, results[0])) is not None:
            problems.append(why)
            continue
        results.append(result)
        problems += result.missing
    return results, problems, failed
