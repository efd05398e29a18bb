"""Garbage collection looks at what is young, once, and at nothing else."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from penstock_broker.loop.garbage import YOUNG_MESSAGES, YOUNG_OBJECTS, YoungCollection


class Cycle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def collection() -> Iterator[YoungCollection]:
    found = YoungCollection()
    found.begin()
    found.step(YOUNG_MESSAGES)
    yield found
    found.end()
    gc.collect()


def test_many_new_objects_are_looked_at_and_frozen(collection: YoungCollection) -> None:
    frozen = gc.get_freeze_count()
    cycle = weakref.ref(Cycle())
    kept = [[each] for each in range(YOUNG_OBJECTS)]
    collection.step(YOUNG_MESSAGES)
    assert cycle() is None
    assert gc.get_freeze_count() >= frozen + len(kept)


def test_few_new_objects_wait(collection: YoungCollection) -> None:
    frozen = gc.get_freeze_count()
    cycle = weakref.ref(Cycle())
    collection.step(2 * YOUNG_MESSAGES - 1)
    assert cycle() is not None
    assert gc.get_freeze_count() == frozen
    collection.step(2 * YOUNG_MESSAGES)  # many messages have come, and as many have left
    assert cycle() is None


def test_python_collects_again_at_the_end() -> None:
    collection = YoungCollection()
    collection.begin()
    assert not gc.isenabled()
    collection.end()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
