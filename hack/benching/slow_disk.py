"""A disk whose writes take as long as wished, as those of volumes over a network do: ext4 on a loop device, on a file
that nbdfuse serves from nbdkit, which delays each write. All of it is of this machine, and needs root.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["slow_disk"]

SIZE_BYTES = 8 << 30
PROGRAMS = ("nbdkit", "nbdfuse", "losetup", "mkfs.ext4", "mount", "umount")
START_SECONDS = 10
STOP_SECONDS = 60


@contextmanager
def slow_disk(under: Path, milliseconds: int) -> Generator[Path]:
    """A folder on a disk each write of which takes `milliseconds` longer. Its image is a sparse file in `under`.

    Raises SystemExit if a program is missing, and CalledProcessError if one fails, as without root.
    """
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"A slow disk needs {', '.join(missing)}: apt-get install nbdkit libnbd-bin e2fsprogs")
    with TemporaryDirectory(prefix="disk-", dir=under) as name, ExitStack() as ends:
        folder = Path(name)
        image, socket, served, disk = (folder / each for each in ("image", "socket", "served", "disk"))
        served.mkdir()
        disk.mkdir()
        with image.open("wb") as file:
            file.truncate(SIZE_BYTES)
        server = ["nbdkit", "--foreground", "--threads", "32", "--unix", str(socket), "--filter=delay", "file"]
        _start(ends, [*server, str(image), f"delay-write={milliseconds}ms"], socket)
        _start(ends, ["nbdfuse", "-C", "4", str(served / "file"), f"nbd+unix:///?socket={socket}"], served / "file")
        ends.callback(_run, "umount", str(served))
        device = _run("losetup", "--find", "--show", str(served / "file"))
        ends.callback(_run, "losetup", "--detach", device)
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        _run("mount", device, str(disk))
        ends.callback(_run, "umount", str(disk))
        yield disk


def _start(ends: ExitStack, command: list[str], shows: Path) -> None:
    """Start a program that is up once `shows` exists."""
    process = subprocess.Popen(command)
    ends.callback(_stop, process)
    until = time.monotonic() + START_SECONDS
    while not shows.exists():
        if process.poll() is not None or time.monotonic() > until:
            raise subprocess.CalledProcessError(process.returncode or 1, command)
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(STOP_SECONDS)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
