"""What happens during an hour of chaos, decided by a seed alone: which fault comes when, and which Subscriptions are
made, changed and deleted before it. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Step", "steps"]

_NAMES: Final = 40
_KEYS: Final = ("no.one", "no.one.else", "nowhere.#", "never.*")
_MOST_EDITS: Final = 8


@dataclass(frozen=True, slots=True)
class Step:
    """Edits, and then a fault."""

    applied: Mapping[str, str]
    """Subscriptions to make or to change, with their binding keys."""
    deleted: Sequence[str]
    fault: str
    share: float
    """Of the longest time that the fault may last, from 0 to 1."""
    declared: Mapping[str, str] = field(repr=False)
    """All Subscriptions that must be there afterwards, with their binding keys."""


def steps(seed: int, faults: Sequence[str]) -> Iterator[Step]:
    """Steps without end. The faults come in rounds, each once in each round, so that also a short run meets many."""
    chance = random.Random(seed)
    declared: dict[str, str] = {}
    while True:
        for fault in chance.sample(list(faults), len(faults)):
            applied: dict[str, str] = {}
            deleted: list[str] = []
            for name in chance.sample(range(_NAMES), chance.randint(1, _MOST_EDITS)):
                title = f"chaos-{name:02}"
                if title in declared and chance.random() < 0.5:
                    deleted.append(title)
                    del declared[title]
                else:
                    applied[title] = declared[title] = chance.choice(_KEYS)
            yield Step(applied, tuple(deleted), fault, chance.random(), dict(declared))
