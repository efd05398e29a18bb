"""How much memory the process may have, from folders as systems have them. Source: cgroup(7)."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
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


def test_a_limit_of_the_address_space_counts() -> None:
    program = "from penstock_broker.settings.process_memory import memory_limit; print(memory_limit())"
    command = ["sh", "-c", f"ulimit -v 300000; exec {sys.executable} -c '{program}'"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{300_000 * 1024}\n"


def test_what_the_process_has_and_gives_back() -> None:
    process = ProcessMemory()
    block = bytearray(b"x") * (64 * 1024 * 1024)
    grown = process.resident()
    assert grown > len(block)
    del block
    process.trim()
    assert process.resident() < grown - 32 * 1024 * 1024


GROWTH = """
import ctypes, resource, sys
from penstock_broker.settings.process_memory import map_large_blocks

library = ctypes.CDLL(None)
library.malloc.restype = library.realloc.restype = ctypes.c_void_p
library.malloc.argtypes = (ctypes.c_size_t,)
library.realloc.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
library.free.argtypes = (ctypes.c_void_p,)
MIB = 1024 * 1024
if sys.argv[1] == "mapped":
    map_large_blocks()
library.free(library.malloc(31 * MIB))  # as any large block that is freed: glibc takes the next from the heap
block = library.malloc(8 * MIB)
ctypes.memset(block, 1, 8 * MIB)
library.malloc(100_000)  # it can't grow where it is
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
library.realloc(block, 16 * MIB)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""The pages that are new when a block of 8 MiB, which is full, grows to 16 MiB."""


def pages_of_growth(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", GROWTH, how], check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout)


def test_a_large_block_grows_without_being_copied() -> None:
    assert pages_of_growth("heap") >= 2048  # 8 MiB in pages of 4 KiB
    assert pages_of_growth("mapped") < 100
