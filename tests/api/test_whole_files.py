"""A file that is there whole or not at all: what a reader finds, and what is synced before its name is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock_api.whole_files import write_whole


def test_a_file_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    def write(hidden: Path) -> None:
        hidden.write_bytes(b"ab")
        assert (hidden.parent, hidden.name[0], names(tmp_path)) == (tmp_path, ".", [hidden.name])
        hidden.write_bytes(b"abc")

    assert write_whole(tmp_path / "result.json", write) == 3
    assert (names(tmp_path), (tmp_path / "result.json").read_bytes()) == (["result.json"], b"abc")


def test_another_content_takes_the_place_of_the_former(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(b"former")
    assert write_whole(path, lambda hidden: hidden.write_bytes(b"new")) == 3
    assert (names(tmp_path), path.read_bytes()) == (["result.json"], b"new")


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    def fail(hidden: Path) -> None:
        hidden.write_bytes(b"half")
        raise OSError("no space left")

    path = tmp_path / "result.json"
    path.write_bytes(b"former")
    with pytest.raises(OSError, match="no space left"):
        write_whole(path, fail)
    assert (names(tmp_path), path.read_bytes()) == (["result.json"], b"former")


def test_the_content_is_synced_before_the_name_and_the_name_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, list[str]]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), names(tmp_path)))

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(tmp_path / "result.json", lambda hidden: hidden.write_bytes(b"abc"))
    (content, before), (folder, after) = synced
    assert (Path(content).parent, before, after) == (tmp_path, [Path(content).name], ["result.json"])
    assert Path(folder) == tmp_path


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())
