"""A look at the unsettled deliveries of one connection, a few at a time: there may be a million of them.

A long table is looked through where it is, for as long as nothing is sent or settled on the connection between two
steps, as when its client hangs; once something is, all is copied at once. A table that a pass looks through
(`Engine.aside`, see `withdrawals`) keeps its size, and what leaves it for `Engine.unsettled` is found there. So a
delivery may be found twice, and one that is settled meanwhile may be found or not.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.engine import Engine
from penstock_amqp.endpoint.events import Held

__all__ = ["MOST_COPIED", "walk_held"]

MOST_COPIED: Final = 16_384
"""Deliveries that are copied at once in any case: some tenths of a millisecond."""


def walk_held(engine: Engine, most: int) -> Iterator[Sequence[Held | None]]:
    """The deliveries that were sent as a whole, `most` at a time, and None for each that is gone."""
    is_long = len(engine.aside) + len(engine.unsettled) > MOST_COPIED
    if is_long and (yield from _in_place(engine, engine.aside, most)):
        return
    copied = iter([*engine.unsettled.values(), *(held for held in engine.aside.values() if held is not None)])
    while part := list(islice(copied, most)):
        yield part


def _in_place(
    engine: Engine, table: Mapping[Ptr, Held | None], most: int
) -> Generator[Sequence[Held | None], None, bool]:
    """Those of this table, and behind it those of `Engine.unsettled`; False if that could not be finished."""
    rest = iter(table.values())
    try:
        while engine.unsettled is table or engine.aside is table:
            found = list(islice(rest, most))
            if found:
                yield found
            elif engine.unsettled is table:
                return True
            else:
                return (yield from _in_place(engine, engine.unsettled, most))
    except RuntimeError:
        pass  # the table has another size than it had in the last step
    return False
