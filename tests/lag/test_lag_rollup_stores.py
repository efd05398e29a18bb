"""Rollups in a folder: each is there whole or as it was before, also after a loss of power."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock_api.rollup_format import RollupName
from penstock_lag.rollups.stores import FolderRollups, RollupsUnavailable

NAME = RollupName.parse("hour-2023-11-14T22.parquet")


def test_the_file_is_synced_before_its_name_and_then_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert NAME is not None
    synced: list[tuple[str, list[str]]] = []

    def spy(descriptor: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), sorted(os.listdir(tmp_path))))

    monkeypatch.setattr(os, "fsync", spy)
    FolderRollups(tmp_path).put(NAME, b"new")
    hidden = ".hour-2023-11-14T22.parquet"
    assert synced == [(str(tmp_path / hidden), [hidden]), (str(tmp_path), ["hour-2023-11-14T22.parquet"])]
    assert (tmp_path / str(NAME)).read_bytes() == b"new"


def test_what_can_t_be_written_leaves_the_file_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert NAME is not None
    store = FolderRollups(tmp_path)
    store.put(NAME, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RollupsUnavailable, match=r"hour-2023-11-14T22\.parquet could not be written: .*No space left"):
        store.put(NAME, b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(str(NAME), b"old")]
