"""A look at the unsettled deliveries of one connection, a few at a time: there may be a million of them.

A long table is looked through where it is, for as long as nothing is sent or settled on the connection between two
steps, as when its client hangs; once something is, all is copied at once. `Engine.aside` keeps its size while a pass
looks through it (`withdrawals`), and what leaves it for `Engine.unsettled` is found there. So a delivery may be found
twice, and one that is settled meanwhile may be found or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from penstock_amqp.endpoint.engine import Engine
from penstock_amqp.endpoint.events import Held

__all__ = ["MOST_COPIED", "walk_held"]

MOST_COPIED: Final = 16_384
"""Deliveries that are copied at once in any case: some tenths of a millisecond."""


def walk_held(engine: Engine, most: int) -> Iterator[Sequence[Held | None]]:
    """The deliveries that were sent as a whole, `most` at a time, and None for each that is gone."""
    aside = engine.aside
    if len(aside) + len(engine.unsettled) > MOST_COPIED:
        set_aside = iter(aside.values())
        while engine.aside is aside and (found := list(islice(set_aside, most))):
            yield found
        if not engine.aside or engine.aside is aside:
            unsettled = engine.unsettled
            rest = iter(unsettled.values())
            try:
                while engine.unsettled is unsettled:
                    found_here = list(islice(rest, most))
                    if not found_here:
                        return
                    yield found_here
            except RuntimeError:
                pass  # the table has another size than it had in the last step
    copied = iter([*engine.unsettled.values(), *(held for held in engine.aside.values() if held is not None)])
    while part := list(islice(copied, most)):
        yield part
