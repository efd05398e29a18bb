"""`penstock up --watch`: notices that manifests in a folder have changed, by looking at names, sizes and times.

It looks each second instead of asking the kernel, because folders of containers and network drives tell nothing. A
change counts once two looks in a row found the same, so that a file is not read while an editor writes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, TypeAlias

from penstock_cli.up.manifest_folder import SUFFIXES

__all__ = ["FolderState", "changes", "folder_state"]

LOOK_SECONDS: Final = 1.0

FolderState: TypeAlias = frozenset[tuple[Path, int, int]]
"""Path, time of change in nanoseconds, and size of each manifest."""


def folder_state(folder: Path) -> FolderState:
    """The manifests of a folder as they are now; a file that goes away meanwhile is not among them."""
    found: set[tuple[Path, int, int]] = set()
    for path in folder.rglob("*"):
        if path.suffix in SUFFIXES:
            try:
                state = path.stat()
            except OSError:
                continue
            found.add((path, state.st_mtime_ns, state.st_size))
    return frozenset(found)


async def changes(
    look: Callable[[], FolderState], known: FolderState, stop: asyncio.Event, seconds: float = LOOK_SECONDS
) -> AsyncIterator[FolderState]:
    """Yield each new state of the manifests once it has settled, until `stop` is set; `known` is the first one."""
    last = known
    while True:
        try:
            async with asyncio.timeout(seconds):
                await stop.wait()
        except TimeoutError:
            pass
        else:
            return
        now = look()
        if now == last and now != known:
            known = now
            yield now
        last = now
