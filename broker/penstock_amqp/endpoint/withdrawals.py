"""Takes the unsettled deliveries of links that have ended out of the engine, a slice at a time: a link may have a
million of them, and the connection's other links may have as many.

A pass looks at all deliveries of the connection once. Meanwhile these stand in `Engine.aside`, which only loses entries
by having None written in their place, and go back to `Engine.unsettled` unless their link has ended; those that the
engine hears of or sends are in `unsettled` at once. Links that end during a pass wait for the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, cast

from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.engine import Engine
from penstock_amqp.endpoint.events import Held
from penstock_amqp.endpoint.links import OutLink
from penstock_amqp.endpoint.proton import links

__all__ = ["Withdrawals", "Withdrawn"]


class Withdrawn(NamedTuple):
    """What a step has found."""

    held: list[Held]
    """Deliveries of links that have ended. They are settled without an outcome."""
    links: tuple[OutLink, ...]
    """Links of which nothing is left."""
    emptied: dict[Ptr, Held | None]
    """A table that is not used any more, to be freed in slices."""


class Withdrawals:
    """Those of one connection."""

    __slots__ = ("_engine", "_leaving", "_rest", "_waiting")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: dict[OutLink, None] = {}
        """Links for the next pass."""
        self._leaving: dict[OutLink, None] = {}
        """Links of the pass that is under way."""
        self._rest: Iterator[tuple[Ptr, Held | None]] | None = None
        """What the pass has still to look at; None: no pass is under way."""

    def add(self, link: OutLink) -> None:
        """The link has ended: `step` finds its deliveries."""
        self._waiting[link] = None

    def step(self, most: int) -> Withdrawn:
        """Look at the next `most` deliveries of the connection."""
        engine = self._engine
        if self._rest is None:
            self._leaving, self._waiting = self._waiting, {}
            engine.aside, engine.unsettled = cast("dict[Ptr, Held | None]", engine.unsettled), {}
            engine.has_recalled = False
            self._rest = iter(engine.aside.items())
        aside, unsettled, leaving = engine.aside, engine.unsettled, self._leaving
        found: list[Held] = []
        ended: list[Ptr] = []
        seen = 0
        for ptr, held in islice(self._rest, most):
            seen += 1
            if held is None:
                continue
            aside[ptr] = None
            if held[0] in leaving:
                found.append(held)
                ended.append(ptr)
            else:
                unsettled[ptr] = held
        if any(each.is_open and not each.keeps_handle and links.queued(each.ptr) for each in leaving):
            engine.drop(ended)
        else:
            engine.settle(ended)
        if seen == most:
            return Withdrawn(found, (), {})
        return self._end_pass(found)

    def _end_pass(self, found: list[Held]) -> Withdrawn:
        engine = self._engine
        emptied, engine.aside, self._rest = engine.aside, {}, None
        if engine.has_recalled:  # what the peer said of a delivery may have left it unsettled, and unseen by the pass
            self._waiting.update(self._leaving)
            return Withdrawn(found, (), emptied)
        return Withdrawn(found, tuple(self._leaving), emptied)
