"""Rollups in a folder: each is there whole or as it was before, also after a loss of power."""

from __future__ import annotations

import os
import random
import tracemalloc
from pathlib import Path

import pytest

from penstock_api.rollup_format import Period, RollupAbout, RollupName
from penstock_lag.rollups.files import write_rollup
from penstock_lag.rollups.stores import FolderRollups, RollupsUnavailable
from penstock_lag_rules.figures import Growth
from penstock_lag_rules.rollups import LifeRow, Rollup

NAME = RollupName.parse("hour-2023-11-14T22.parquet")


def test_the_file_is_synced_before_its_name_and_then_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert NAME is not None
    synced: list[tuple[str, list[str]]] = []

    def spy(descriptor: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), sorted(os.listdir(tmp_path))))

    monkeypatch.setattr(os, "fsync", spy)
    FolderRollups(tmp_path, "main", "shop").put(NAME, b"new")
    hidden = ".hour-2023-11-14T22.parquet"
    assert synced == [(str(tmp_path / hidden), [hidden]), (str(tmp_path), ["hour-2023-11-14T22.parquet"])]
    assert (tmp_path / str(NAME)).read_bytes() == b"new"


def test_what_can_t_be_written_leaves_the_file_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert NAME is not None
    store = FolderRollups(tmp_path, "main", "shop")
    store.put(NAME, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RollupsUnavailable, match=r"hour-2023-11-14T22\.parquet could not be written: .*No space left"):
        store.put(NAME, b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(str(NAME), b"old")]


@pytest.mark.parametrize(("other", "says"), [(b"same", None), (b"another", r"T22\.parquet could not be written: ")])
def test_two_runs_may_make_the_same_rollup_at_the_same_time(other: bytes, says: str | None, tmp_path: Path) -> None:
    """Schedules that overlap: the other one's takes the place while this one syncs its own. If it is of other brokers,
    the run says so, and the next one adds them.
    """
    name = RollupName.of(Period.HOUR, 1_700_000_000_000)
    store = FolderRollups(tmp_path, "main", "shop")
    sync, others = os.fsync, [other]

    def meanwhile(descriptor: int) -> None:
        if others:
            store.put(name, others.pop())
        sync(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", meanwhile)
        if says is None:
            store.put(name, b"same")
        else:
            with pytest.raises(RollupsUnavailable, match=says):
                store.put(name, b"same")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(str(name), other)]


@pytest.mark.parametrize(("broker", "namespace"), [("main", "test"), ("orders", "shop")])
def test_rollups_of_another_broker_are_not_this_one_s_past(broker: str, namespace: str, tmp_path: Path) -> None:
    """Of the same name in another namespace, or of this one before it was renamed: their queues have the same names."""
    assert NAME is not None
    about = RollupAbout(broker="main", namespace="shop", name=str(NAME), ordinals=(0,), hours=1)
    FolderRollups(tmp_path, "main", "shop").put(NAME, write_rollup(Rollup(), about))
    assert list(FolderRollups(tmp_path, "main", "shop").stored() or ()) == [NAME]
    with pytest.raises(RollupsUnavailable, match=r"T22\.parquet is of shop/main: each Broker needs its own folder"):
        FolderRollups(tmp_path, broker, namespace).stored()


def a_life(queue_name: str) -> LifeRow:
    return LifeRow(
        ordinal=0, queue_name=queue_name, instance="i", epoch=1, incarnation=1, first_seq=1, last_seq=2, first_ms=0,
        last_ms=1, snapshots=2, first_depth=0, last_depth=0, min_depth=0, max_depth=0, depth_area=0, max_age_ms=None,
        min_consumers=0, max_consumers=0, last_consumers=0, first=Growth(), last=Growth(),
    )  # fmt: skip


def test_the_list_of_years_of_rollups_needs_no_memory_for_their_rows(tmp_path: Path) -> None:
    """Each has a quarter of a megabyte of names. A file that is none is left out."""
    chance = random.Random(1)
    names = [RollupName(hour * 3_600_000, Period.HOUR) for hour in range(40)]
    about = RollupAbout(broker="main", namespace="shop", name=str(names[0]), ordinals=(0, 2), hours=1)
    content = write_rollup(Rollup(lives=tuple(a_life(chance.randbytes(250).hex()) for _ in range(1000))), about)
    assert len(content) > 250_000
    store = FolderRollups(tmp_path, "main", "shop")
    for name in names:
        (tmp_path / str(name)).write_bytes(content)
    (tmp_path / "day-1970-01-01.parquet").write_bytes(content[:1000])
    tracemalloc.start()
    found = store.stored()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is not None
    assert sorted(found) == names
    assert {(info.bytes, info.ordinals, info.hours) for info in found.values()} == {(len(content), (0, 2), 1)}
    assert peak < 5 * len(content), "of 40 files"
