"""Files of audits that can't be used: a state or records that are damaged, or records without a state.

All files of such an audit get another name, which tells of it once. They count among the bytes of audits, and are the
first that make room; otherwise they go with the audits of their age. What only the disk does not give now keeps its
name, because it may give it at the next start. Nothing here keeps an observer from polling. Source:
docs/reference/observer.md, "Audits".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["DAMAGED_SUFFIX", "DamagedAudits"]

log = logging.getLogger(__name__)

DAMAGED_SUFFIX: Final = ".damaged"
"""Behind the name of a file."""


@dataclass(frozen=True, slots=True)
class _Files:
    """Of one audit."""

    paths: tuple[Path, ...]
    bytes: int
    written_ms: int
    """When the newest of them was."""


class DamagedAudits:
    """The files by audit. Synchronous, one call at a time."""

    def __init__(self) -> None:
        self._audits: dict[str, _Files] = {}

    def set_aside(self, audit: str, paths: Sequence[Path], reason: str) -> None:
        """Give all files of an audit the other name. If the disk refuses, they keep theirs and are told again."""
        renamed = [_renamed(path) for path in paths]
        log.error(
            "the audit %s is damaged, and its records are not used: %s; its files have the suffix %s and are deleted "
            "with the audits of their age",
            audit,
            reason,
            DAMAGED_SUFFIX,
        )
        self.keep(audit, renamed)

    def leave(self, audit: str, paths: Sequence[Path], reason: str) -> None:
        """The disk does not give a file of it; all keep their names."""
        log.error("the audit %s is left out until the next start, because it can't be read: %s", audit, reason)
        self.keep(audit, paths)

    def keep(self, audit: str, paths: Iterable[Path]) -> None:
        """Count files that have their other name, or keep their own, as those of a damaged audit."""
        known = self._audits.get(audit)
        together = tuple(dict.fromkeys([*(known.paths if known is not None else ()), *paths]))
        sizes = [_size_and_time(path) for path in together]
        self._audits[audit] = _Files(together, sum(size for size, _ in sizes), max(time for _, time in sizes))

    def give_way(self, audit: str) -> None:
        """The broker tells of an audit again whose files kept their names: they get the other one."""
        known = self._audits.pop(audit, None)
        if known is not None:
            self.keep(audit, [_renamed(path) for path in known.paths])

    def remove(self, excess_bytes: int, kept_from_ms: int) -> None:
        """Delete those that were written before `kept_from_ms`, and of the others the oldest, until the excess is
        gone.
        """
        for audit, files in sorted(self._audits.items(), key=lambda each: each[1].written_ms):
            if files.written_ms < kept_from_ms or excess_bytes > 0:
                excess_bytes -= files.bytes
                del self._audits[audit]
                _delete(audit, files.paths)

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(files.bytes for files in self._audits.values())


def _renamed(path: Path) -> Path:
    if path.name.endswith(DAMAGED_SUFFIX):
        return path
    try:
        return path.rename(path.with_name(path.name + DAMAGED_SUFFIX))
    except OSError as error:
        log.error("the file %s of a damaged audit can't be renamed: %s", path.name, error)
        return path


def _delete(audit: str, paths: Iterable[Path]) -> None:
    try:
        for path in paths:
            path.unlink(missing_ok=True)
    except OSError as error:
        log.error("the damaged audit %s can't be deleted before the next start: %s", audit, error)


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:  # counts as old and empty
        return 0, 0
    return status.st_size, int(status.st_mtime * 1000)
