"""Archives whose bytes follow from what they hold: sorted names, one time, no owner, and no name in the gzip header."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

__all__ = ["Member", "add", "packed_folder"]

Member = tuple[str, bytes]
"""The name of a file in an archive, and its bytes."""


def packed_folder(folder: Path, name: str, seconds: int) -> bytes:
    """All files of a folder as `name`/..., in a tar that is compressed with gzip."""
    members = [
        (f"{name}/{file.relative_to(folder).as_posix()}", file.read_bytes())
        for file in folder.rglob("*")
        if file.is_file()
    ]
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        add(tar, members, seconds)
    return gzip.compress(plain.getvalue(), compresslevel=9, mtime=seconds)


def add(tar: tarfile.TarFile, members: Iterable[Member], seconds: int) -> None:
    """Add files in the order of their names."""
    for name, content in sorted(members):
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode, entry.mtime = len(content), 0o644, seconds
        tar.addfile(entry, io.BytesIO(content))
