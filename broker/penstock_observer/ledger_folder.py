"""What is in a ledger folder when an observer opens it: locks it, removes what is half written, and reads each footer.

Source: docs/reference/lag-job.md, "The ledger"; docs/reference/observer.md, "Retention".
"""

from __future__ import annotations

import fcntl
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock_api.failure import CannotRun
from penstock_api.ledger_format import HIDDEN_PREFIX, SUFFIX, SegmentName
from penstock_api.observer_api import SegmentInfo
from penstock_observer.parquet import Outline, UnreadableSegment, outline_of
from penstock_observer.retention import KeptSegment
from penstock_observer.rows import RowOrigin

__all__ = ["LedgerFolder", "is_gone", "open_folder"]

log = logging.getLogger(__name__)

LOCK: Final = ".lock"


@dataclass(slots=True)
class LedgerFolder:
    """A folder that is locked, and its segments."""

    lock: int
    """Descriptor; the folder is locked until it is closed."""
    sealed: dict[SegmentName, SegmentInfo] = field(default_factory=dict[SegmentName, SegmentInfo])
    thinned: set[SegmentName] = field(default_factory=set[SegmentName])
    """Of the sealed ones."""
    damaged: dict[SegmentName, KeptSegment] = field(default_factory=dict[SegmentName, KeptSegment])
    """Those whose footer can't be read, and those of another broker."""


def open_folder(folder: Path, writer: RowOrigin) -> LedgerFolder:
    """Make the folder unless it is there, lock and read it. In: whose ledger it is. Raises OSError, or CannotRun if
    another process has it open; it is not locked then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = LedgerFolder(_lock(folder))
    try:
        for path in sorted(folder.iterdir()):
            if path.name.startswith(HIDDEN_PREFIX) and path.name.endswith(SUFFIX):
                log.info("removing %s, which an earlier process left half written", path.name)
                path.unlink()
            elif (name := SegmentName.parse(path.name)) is not None:
                _read(path, name, writer, found)
    except BaseException:
        os.close(found.lock)
        raise
    return found


def is_gone(path: Path) -> bool:
    """Whether a file is not there. A volume that gives no answer does not say that."""
    try:
        path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _read(path: Path, name: SegmentName, writer: RowOrigin, found: LedgerFolder) -> None:
    status = path.stat()
    try:
        outline = outline_of(path)
        _check_owner(path, outline, writer)
        if outline.rows > name.rows or (outline.rows < name.rows and not outline.thinned):
            raise UnreadableSegment(f"{path.name}: holds {outline.rows} rows, its name says {name.rows}")
    except UnreadableSegment as error:
        log.error("a segment is left out of the ledger: %s", error)
        written_ms = int(status.st_mtime * 1000)
        found.damaged[name] = KeptSegment(name, status.st_size, written_ms, written_ms)
        return
    found.sealed[name] = SegmentInfo(
        name=path.name,
        bytes=status.st_size,
        rows=outline.rows,
        first_ms=outline.first_ms,
        last_ms=outline.last_ms,
    )
    if outline.thinned:
        found.thinned.add(name)


def _check_owner(path: Path, outline: Outline, writer: RowOrigin) -> None:
    """Raises UnreadableSegment if its rows are of another broker, whose queues may have the same names: its volume was
    mounted here, or restored to another namespace. What a segment does not say is not compared.
    """
    said = (outline.namespace, outline.broker, outline.ordinal)
    own = (writer.namespace or None, writer.broker, writer.ordinal)
    if any(None not in (one, other) and one != other for one, other in zip(said, own, strict=True)):
        raise UnreadableSegment(f"{path.name}: it is of broker {_named(*said)}, and this ledger is of {_named(*own)}")


def _named(namespace: str | None, broker: str | None, ordinal: int | None) -> str:
    pod = f"{'?' if broker is None else broker}-{'?' if ordinal is None else ordinal}"
    return pod if namespace is None else f"{namespace}/{pod}"


def _lock(folder: Path) -> int:
    """Lock the folder for this process until the descriptor is closed; the system unlocks it when the process dies."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise CannotRun(
            f"the ledger folder {folder} is in use by another observer.",
            "Stop that one, or give each observer a folder of its own (--ledger).",
        ) from None
    return descriptor
