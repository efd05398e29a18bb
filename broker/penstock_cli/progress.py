"""How far a long operation is, told on standard error. One on messages is asked beside it, on a second connection.

The broker answers PURGE, MOVE and REDRIVE only when all is done and synced. Meanwhile the totals of the queue tell how
many messages have left it (docs/reference/management.md).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import click

from penstock_cli.terminal import can_erase

__all__ = [
    "Follow",
    "Progress",
    "ProgressLine",
    "followed",
    "in_terminal",
    "shown_on_terminal",
    "silent",
    "try_to_show",
    "with_progress",
]

LOOK_SECONDS: Final = 1.0

T = TypeVar("T")
Follow: TypeAlias = Callable[[str], Callable[[int, int], None]]
"""Called with what is about to be done; what it returns is called with how much is done, and of how much."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What an operation has done of what it was asked to do."""

    done: int
    wanted: int | None
    """None: it is not known, because a selector chooses."""

    @classmethod
    def between(
        cls, before: Mapping[str, object], now: Mapping[str, object], total: str, count: int | None, *, selects: bool
    ) -> Progress:
        """From two states of the queue; `total` names the total that the operation raises."""
        waiting = _number(before, "ready") + _number(before, "scheduled")
        wanted = None if selects else min(waiting, waiting if count is None else count)
        return cls(max(_number(now, total) - _number(before, total), 0), wanted)

    def sentence(self, verb: str) -> str:
        """Such as `1,200 of 5,000 moved (24 %)`; `verb` is what happens to a message."""
        if not self.wanted:
            return f"{self.done:,} {verb}"
        return f"{self.done:,} of {self.wanted:,} {verb} ({100 * self.done // self.wanted} %)"


async def followed(
    work: Awaitable[T],
    look: Callable[[], Awaitable[Progress]],
    show: Callable[[Progress], None],
    seconds: float = LOOK_SECONDS,
) -> T:
    """The result of `work`; while it lasts, `show` what `look` finds, `seconds` apart."""
    import asyncio  # the options of other verbs are read without it

    working = asyncio.ensure_future(work)
    try:
        while True:
            done, _ = await asyncio.wait({working}, timeout=seconds)
            if done:
                return working.result()
            await try_to_show(look, show)
    finally:
        working.cancel()


async def try_to_show(look: Callable[[], Awaitable[Progress]], show: Callable[[Progress], None]) -> None:
    """`show` what `look` finds. The work goes on without it: the broker may answer late, or the queue may be gone."""
    from penstock_amqp.client.errors import ManagementError, RequestRefused
    from penstock_amqp.errors import WireError

    try:
        found = await look()
    except (ManagementError, RequestRefused, OSError, WireError):
        return
    show(found)


def with_progress(verb: Callable[..., int]) -> Callable[..., int]:
    """Add `--progress` to a verb."""
    return click.option(
        "--progress/--no-progress",
        default=None,
        help="Say on standard error each second how far it is. Default: only in a terminal.",
    )(verb)


def shown_on_terminal(verb: str) -> Callable[[Progress], None]:
    """Writes progress to standard error: over the same line in a terminal that can erase, else line by line."""

    def show(progress: Progress) -> None:
        start, end = ("\r\x1b[K", "") if can_erase(sys.stderr) else ("", "\n")
        click.echo(f"{start}{progress.sentence(verb)}{end}", nl=False, err=True)

    return show


def _number(state: Mapping[str, object], key: str) -> int:
    value = state.get(key)
    return value if isinstance(value, int) else 0


class ProgressLine:
    """How far a long reading has come, on standard error: the first line after two seconds, then one every two."""

    EVERY_SECONDS: Final = 2.0

    def __init__(self, doing: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`doing`: what is done, as in "reading the log". `clock`: seconds."""
        self._doing, self._clock = doing, clock
        self._next = clock() + self.EVERY_SECONDS

    def __call__(self, done: int, total: int | None) -> None:
        """`done` of `total` is done; the unit does not matter. None: of how many is not known."""
        now = self._clock()
        if now >= self._next and total != 0:
            self._next = now + self.EVERY_SECONDS
            how_far = f"{done:,}" if total is None else f"{min(100 * done // total, 100)} %"
            click.echo(f"{self._doing}: {how_far}", err=True)


def silent(_doing: str) -> Callable[[int, int | None], None]:
    """Tells nothing."""
    return lambda _done, _total: None


def in_terminal(doing: str) -> Callable[[int, int | None], None]:
    """Tells how far it is, as `ProgressLine` does, where standard error is a terminal."""
    return ProgressLine(doing) if sys.stderr.isatty() else silent(doing)
