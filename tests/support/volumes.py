"""Small volumes of their own for tests: a tmpfs, which needs root. Where it can't be mounted, the test is not run."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["make_read_only", "make_writable", "small_volume"]


@contextmanager
def small_volume(folder: Path, mebibytes: int) -> Generator[Path]:
    """A volume of this size at `folder`, which is made. Skips the test if this user or machine can't mount it."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "penstock-test", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no volume can be mounted here, which needs root: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def make_read_only(volume: Path) -> None:
    """Nothing on the volume can be changed from now on."""
    subprocess.run(["mount", "-o", "remount,ro", str(volume)], check=True)


def make_writable(volume: Path) -> None:
    """Somebody has mended the volume."""
    subprocess.run(["mount", "-o", "remount,rw", str(volume)], check=True)
