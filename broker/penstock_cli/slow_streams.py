"""Input and output that may take long, without holding up the heartbeats of a connection: a line that nobody has typed
yet, and a pager on which nobody leafs on.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import click

__all__ = ["next_line", "printed"]

T = TypeVar("T")

ESCAPED: Final = 10
"""Most bytes of a letter, as of one that the encoding of the output lacks."""


async def next_line() -> str:
    """The next line of the input, with its end; empty at the end of the input."""
    return await _in_thread(sys.stdin.readline)


async def printed(line: str) -> None:
    """Print a line; wait as long as whoever reads the output takes nothing."""
    if not _can_wait():
        click.echo(line)
        return
    # What can be written at all can take so many bytes at once (POSIX, PIPE_BUF).
    length = select.PIPE_BUF if line.isascii() else select.PIPE_BUF // ESCAPED
    text = f"{line}\n"
    for at in range(0, len(text), length):
        await _writable(sys.stdout.fileno())
        click.echo(text[at : at + length], nl=False)


def _can_wait() -> bool:
    """Whether the output is a pipe or a terminal; a file takes everything."""
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except (OSError, ValueError):  # it has no descriptor
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)


async def _writable(output: int) -> None:
    if not select.select([], [output], [], 0)[1]:
        await _in_thread(lambda: select.select([], [output], []))


def _in_thread(call: Callable[[], T]) -> Awaitable[T]:
    """The result of a call that blocks. Its thread doesn't hold up the end of the program, unlike those of asyncio."""
    import asyncio

    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        with suppress(RuntimeError):  # the loop has ended
            try:
                result = call()
            except (OSError, ValueError) as error:  # a UnicodeDecodeError is a ValueError
                loop.call_soon_threadsafe(settle, partial(answer.set_exception, error))
            else:
                loop.call_soon_threadsafe(settle, partial(answer.set_result, result))

    def settle(give: Callable[[], None]) -> None:
        if not answer.done():  # Ctrl-C has cancelled it
            give()

    threading.Thread(target=work, daemon=True).start()
    return answer
