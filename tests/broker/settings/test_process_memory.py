"""How much memory the process may have, from folders as systems have them. Source: cgroup(7)."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from penstock_broker.settings.process_memory import ProcessMemory, memory_limit

PHYSICAL = os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/", {"memory.max": "268435456\n"}, 268_435_456),
        ("0::/", {"memory.max": "max\n"}, PHYSICAL),
        ("0::/", {}, PHYSICAL),
        ("0::/a/b", {"a/b/memory.max": "max\n", "a/memory.max": "300000000\n"}, 300_000_000),
        ("0::/a/b", {"a/b/memory.max": "200000000\n", "a/memory.max": "300000000\n"}, 200_000_000),
        ("0::/not/in/this/container", {"memory.max": "134217728\n"}, 134_217_728),
        ("4:memory:/x", {"memory/x/memory.limit_in_bytes": "134217728\n"}, 134_217_728),
        ("4:cpu,memory:/x", {"memory/x/memory.limit_in_bytes": "134217728\n"}, 134_217_728),
        ("4:cpu:/x\n0::/", {"x/memory.max": "134217728\n"}, PHYSICAL),
        ("4:memory:/x", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, PHYSICAL),
        ("", {"memory/memory.limit_in_bytes": "134217728\n"}, 134_217_728),
        ("0::/", {"memory.max": "0\n"}, PHYSICAL),
    ],
)
def test_the_least_limit_of_all_groups_counts(
    tmp_path: Path, groups: str, files: dict[str, str], expected: int
) -> None:
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "own").write_text(groups)
    assert memory_limit(tmp_path / "cgroup", tmp_path / "own") == expected


def test_without_control_groups_the_machine_is_the_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path / "nothing", tmp_path / "nothing either") == PHYSICAL


def test_what_the_process_has_and_gives_back() -> None:
    process = ProcessMemory()
    block = bytearray(b"x") * (64 * 1024 * 1024)
    grown = process.resident()
    assert grown > len(block)
    del block
    process.trim()
    assert process.resident() < grown - 32 * 1024 * 1024
