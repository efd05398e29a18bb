"""Garbage collection looks at what is young, once, and at nothing else."""

# pyright: reportPrivateUsage=false
# The parts of a start are private.

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.proton_client import Subscribed, connected, publish

from penstock_api.failure import Misuse
from penstock_broker import main
from penstock_broker.assembly import assemble
from penstock_broker.loop.garbage import YOUNG_MESSAGES, YOUNG_OBJECTS, YoungCollection, start_without_collection
from penstock_broker.loop.loop import Loop
from penstock_broker.loop.start_progress import StartProgress
from penstock_broker.settings.settings import BrokerSettings


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


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """Each collection that begins or ends."""
    seen: list[str] = []

    def note(phase: str, _info: dict[str, int]) -> None:
        seen.append(phase)

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def test_a_start_is_not_held_up_by_collections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collections: list[str]
) -> None:
    """What it makes stays; and a start that fails leaves collections to Python again."""

    def start(*_: object) -> Loop:
        collections.clear()
        kept = [[each] for each in range(100_000)]
        assert len(kept) == 100_000
        assert collections == []
        raise Misuse("far enough", "none")

    monkeypatch.setattr(main, "_start", start)
    with pytest.raises(Misuse, match="far enough"):
        main.serve(BrokerSettings(), tmp_path / "data")
    assert gc.isenabled()


def test_otherwise_the_same_objects_are_looked_at_again_and_again(collections: list[str]) -> None:
    kept = [[each] for each in range(100_000)]
    assert len(kept) == 100_000
    assert len(collections) > 20


def test_what_a_start_made_is_not_looked_at_when_it_serves() -> None:
    """That took 0.4 s with ten thousand subscriptions."""
    with start_without_collection():
        kept = [[each] for each in range(100_000)]
    collection = YoungCollection()
    try:
        assert gc.isenabled()
        assert gc.get_freeze_count() > len(kept)
        assert len(gc.get_objects()) < len(kept)
        collection.begin()
    finally:
        collection.end()


def test_what_a_start_puts_in_place_of_a_log_is_in_no_cycle_that_nothing_refers_to(
    broker_process: BrokerProcess,
) -> None:
    """It would never be freed: no collection looks at it."""
    with connected(broker_process.url) as client:
        for name in ("one", "two"):
            client.create_receiver("amq.topic/#", name=name, options=Subscribed(), credit=0)
        publish(client.create_sender("amq.topic"), ["a", "b"], subject="key")
    broker_process.kill()
    given = BrokerSettings().for_dev()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        log, recovered = main._open_log(given, broker_process.data, None, StartProgress(time.monotonic))
        loop = assemble(given, log, recovered, [])
        gc.collect()
        left = [each for each in gc.garbage if type(each).__module__.startswith("penstock_")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert sum(len(each) for each in recovered.messages.values()) == 4
    assert left == []
    loop.close()
    log.crash()
