"""One picture of `penstock lag --watch`: what a terminal of a certain size shows of the lag of a Broker. Pure.

The colour is never the only sign of a state. Names and sentences come from clients; nothing of them can control the
terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock_api.lag_result import LagResult, SubscriptionLag
from penstock_page.render import title_of
from penstock_page.text import count, duration, printable
from penstock_page.trouble import SHOWN, counts_by_trouble, sorted_by_trouble

__all__ = ["frame"]

HEAD: Final = ("SUBSCRIPTION", "STATE", "LAG", "OLDEST", "IN/MIN", "OUT/MIN", "LOST", "CONSUMERS", "SUGGESTED", "WHY")
LEFT: Final = frozenset({0, 1, 9})
NAME_WIDTH: Final = 48
COLOURS: Final = {"bad": "\x1b[31m", "wary": "\x1b[33m", "unknown": "\x1b[35m", "good": "\x1b[32m"}
PLAIN: Final = "\x1b[0m"


def frame(
    results: Sequence[LagResult],
    problems: Sequence[str],
    *,
    width: int | None = None,
    height: int | None = None,
    colour: bool = False,
) -> str:
    """Lines that end with a newline: a summary, what is missing, and the subscriptions, those in trouble first.

    `width` cuts lines, `height` leaves the last subscriptions out and says how many; None: as much as there is.
    """
    lags = sorted_by_trouble(lag for result in results for lag in result.subscriptions)
    top = [_summary(results, lags), *(f"? {printable(problem)}" for problem in problems)]
    rows = [HEAD, *map(_row, lags)]
    # One line for the heading, and one to say what is left out.
    room = len(lags) if height is None else max(height - len(top) - 2, 1)
    shown = rows[: room + 1]
    widths = [max(len(row[at]) for row in shown) for at in range(len(HEAD))]
    lines = [_line(row, widths)[:width] for row in shown]
    if colour:
        lines[1:] = [_coloured(line, lag) for line, lag in zip(lines[1:], lags, strict=False)]
    if len(lags) > room:
        lines.append(f"... and {len(lags) - room} more in less trouble"[:width])
    elif not lags:
        lines.append("(no subscriptions)"[:width])
    return "\n".join([line[:width] for line in top] + lines) + "\n"


def _summary(results: Sequence[LagResult], lags: Sequence[SubscriptionLag]) -> str:
    counts = counts_by_trouble(lags)
    states = ", ".join(f"{SHOWN[state].symbol} {state.value} {found}" for state, found in counts.items())
    if not results:
        return "no observer answers"
    where = printable(f"{results[0].namespace}/{results[0].broker}")
    newest = max(result.window_end for result in results)
    return f"{where} at {newest:%H:%M:%S} UTC: {len(lags)} subscriptions" + (f" ({states})" if states else "")


def _row(lag: SubscriptionLag) -> tuple[str, ...]:
    name = printable(title_of(lag))
    return (
        name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 1]}…",
        f"{SHOWN[lag.state].symbol} {lag.state.value}",
        count(lag.waiting),
        duration(lag.oldest_age_seconds),
        count(lag.arrival_per_minute),
        count(lag.settled_per_minute),
        count(lag.lost),
        count(lag.consumers),
        count(lag.suggested_consumers),
        printable(lag.message),
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (
        cell.ljust(wide) if at in LEFT else cell.rjust(wide)
        for at, (cell, wide) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()


def _coloured(line: str, lag: SubscriptionLag) -> str:
    return f"{COLOURS[SHOWN[lag.state].severity]}{line}{PLAIN}"
