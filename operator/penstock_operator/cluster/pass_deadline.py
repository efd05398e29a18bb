"""A pass has a deadline: one that hangs is ended, says where it stood, and leaves its worker to other resources.

Source: docs/decisions/119-deadline-of-a-pass.md.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable
from pathlib import Path
from typing import Final, TypeVar

import penstock_operator

__all__ = ["PassOverdue", "within"]

ResultT = TypeVar("ResultT")

_PACKAGE: Final = Path(penstock_operator.__file__).parent


class PassOverdue(Exception):
    """A pass was ended at its deadline; the text says where it stood."""


async def within(seconds: float, work: Awaitable[ResultT]) -> ResultT:
    """The result of a pass, which is ended if it takes longer than so many seconds.

    Raises:
        PassOverdue: it took longer.
        What the pass raised, also a TimeoutError of its own.
    """
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            return await work
    except TimeoutError as error:
        if not deadline.expired() or error.__cause__ is None:
            raise
        raise PassOverdue(_where_it_stood(error.__cause__)) from error


def _where_it_stood(ended: BaseException) -> str:
    """The operator's own functions that the pass was in, and the last one's line: what it waited for."""
    own = [frame for frame in traceback.extract_tb(ended.__traceback__) if _PACKAGE in Path(frame.filename).parents]
    steps = [frame for frame in own if Path(frame.filename) != Path(__file__)]
    if not steps:
        return "outside of the operator's own code"
    last = steps[-1]
    place = f"{Path(last.filename).relative_to(_PACKAGE)}:{last.lineno}"
    return f"in {' > '.join(frame.name for frame in steps)} at {place}, `{last.line}`"
