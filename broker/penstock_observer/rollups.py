"""The store of rollups: takes what the lag job PUTs, and keeps the newest hours of a week and days of a year.

Each file is checked before anything is written; which ones go is a pure decision. A file that turns out to be damaged
is set aside under another name, which tells of it once, and goes when its period is not kept any more. Source:
docs/reference/observer.md, "Rollups".
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Reason: pyarrow ships no type information; what leaves this module is typed.

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pydantic import ValidationError

from penstock_api.ledger_format import HIDDEN_PREFIX
from penstock_api.rollup_format import (
    ABOUT_KEY,
    COLUMNS,
    LATER_COLUMNS,
    MAX_ROLLUP_BYTES,
    VERSION,
    Period,
    RollupAbout,
    RollupInfo,
    RollupName,
)
from penstock_api.whole_files import write_whole
from penstock_lag_rules import rollup_retention
from penstock_lag_rules.rollup_retention import is_future, past_retention
from penstock_observer.parquet import ARROW_TYPES
from penstock_observer.results import OTHER_BROKER, OTHER_VERSION, BrokerPod, RejectedResult
from penstock_observer.volume import at_start
from penstock_page.parquet_damage import PARQUET_DAMAGED
from penstock_page.parquet_footer import check_footer

__all__ = ["RollupStore", "check_rollup", "surplus"]

log = logging.getLogger(__name__)

NEEDED_MS: Final = 26 * 3_600_000
"""A day is merged from its hours soon after its end, so hours are needed for so long."""
DAMAGED_SUFFIX: Final = ".damaged"
"""Behind the name of a rollup: it could not be read when an observer started, and is not tried again."""
MAX_ROWS: Final = 2_000_000
MAX_EXPANDED_BYTES: Final = 2 * 1024 * 1024 * 1024
"""A file whose columns are larger than this when they are read is refused."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """One file."""

    about: RollupAbout
    rows: int
    bytes: int


def surplus(sizes: Mapping[RollupName, int], limit_bytes: int, now_ms: int) -> list[RollupName]:
    """The rollups to delete, in order: first those past their retention, then, until the rest is within the limit, the
    oldest hours, then the oldest days, and only then hours of the newest day and a bit, of which the next day is to be
    made. The newest rollup stays.
    """
    present = {name for name in sizes if not is_future(name, now_ms)} or set(sizes)
    newest = max(present, default=None)
    old = past_retention(sizes, now_ms)
    recent_ms = max((name.end_ms for name in present if name.period is Period.HOUR), default=0) - NEEDED_MS

    def rank(name: RollupName) -> tuple[int, RollupName]:
        if name.period is Period.DAY:
            return 1, name
        return (0 if name.start_ms < recent_ms or name not in present else 2), name

    rest = sorted((name for name in sizes if name not in set(old)), key=rank)
    total = sum(sizes[name] for name in rest)
    gone: list[RollupName] = []
    for name in rest:
        if total <= limit_bytes:
            break
        if name != newest:
            gone.append(name)
            total -= sizes[name]
    return old + gone


def check_rollup(content: bytes) -> tuple[RollupAbout, int]:
    """What a file says about itself, and its number of rows, without reading them. Raises RejectedResult."""
    try:
        check_footer(content)
        file = pq.ParquetFile(io.BytesIO(content))
        types = {field.name: field.type for field in file.schema_arrow}
    except PARQUET_DAMAGED as error:
        raise RejectedResult("NotARollup", f"the body is no Parquet file: {error}") from error
    found = (file.schema_arrow.metadata or {}).get(ABOUT_KEY)
    try:
        about = RollupAbout.model_validate_json(found or b"")
    except ValidationError as error:
        raise RejectedResult("NotARollup", "the file's metadata do not say which rollup it is") from error
    if about.version != VERSION:
        raise RejectedResult(
            OTHER_VERSION,
            f"the rollup has version {about.version}, but this observer accepts version {VERSION}: "
            "run the lag job of the same release as the broker",
        )
    needed = [column for column in COLUMNS if column.name in types or column.name not in LATER_COLUMNS]
    wrong = next((column.name for column in needed if types.get(column.name) != ARROW_TYPES[column.type]), None)
    if wrong is not None:
        raise RejectedResult("NotARollup", f"its column {wrong} is absent, or of another type")
    footer = file.metadata
    expanded = sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))
    if footer.num_rows > MAX_ROWS or expanded > MAX_EXPANDED_BYTES:
        raise RejectedResult("TooLarge", f"it has {footer.num_rows} rows and {expanded} bytes when it is read")
    return about, int(footer.num_rows)


class RollupStore:
    """A folder of rollups. Synchronous; the caller keeps it off the event loop, one call at a time."""

    def __init__(self, folder: Path, place: BrokerPod, limit_bytes: int) -> None:
        """Raises CannotRun if the folder can't be used."""
        self._folder = folder
        self._place = place
        self._limit_bytes = limit_bytes
        self._kept: dict[RollupName, _Kept] = {}
        self._aside: dict[RollupName, Path] = {}
        """Files that can't be used: damaged ones, and those of another release or Broker under their own name."""
        with at_start("rollup", folder):
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(folder.iterdir()):
                with at_start("rollup", folder):
                    self._adopt(path)

    @property
    def rollups(self) -> tuple[RollupInfo, ...]:
        """What is kept, in order of its start, a day before its first hour."""
        return tuple(
            RollupInfo(
                name=str(name),
                bytes=kept.bytes,
                rows=kept.rows,
                ordinals=kept.about.ordinals,
                hours=kept.about.hours,
                clock_set=kept.about.clock_set,
            )
            for name, kept in sorted(self._kept.items())
        )

    def path_of(self, text: str) -> Path | None:
        """The file of a rollup, None if there is none of that name."""
        name = RollupName.parse(text)
        return self._path(name) if name is not None and name in self._kept else None

    def put(self, text: str, content: bytes, now_ms: int) -> bool:
        """Keep a file; False if the same bytes are there already. Raises RejectedResult, or OSError if the disk
        fails.
        """
        name, kept = self._checked(text, content, now_ms)
        path = self._path(name)
        if name in self._kept and path.read_bytes() == content:
            return False
        self._folder.mkdir(parents=True, exist_ok=True)  # the volume may have been read-only at the start
        write_whole(path, lambda hidden: hidden.write_bytes(content))
        self._kept[name] = kept
        if (aside := self._aside.pop(name, path)) != path:
            aside.unlink(missing_ok=True)
        self._remove_aside(now_ms)
        self._remove(surplus({each: kept.bytes for each, kept in self._kept.items()}, self._limit_bytes, now_ms))
        return True

    def _checked(self, text: str, content: bytes, now_ms: int) -> tuple[RollupName, _Kept]:
        self._place.check_keeps("rollups")
        name = RollupName.parse(text)
        if name is None:
            raise RejectedResult("BadRollupName", f"{text!r} is not the name of a rollup")
        if len(content) > min(self._limit_bytes, MAX_ROLLUP_BYTES):
            raise RejectedResult(
                "TooLarge", f"the rollup has {len(content)} bytes, and all have {self._limit_bytes} here", conflict=True
            )
        about, rows = check_rollup(content)
        if about.name != text:
            raise RejectedResult("BadRollupName", f"the file is {about.name!r}, but the URL names {text!r}")
        self._place.check_owns("rollup", about.broker, about.namespace)
        if is_future(name, now_ms):
            raise RejectedResult("FutureRollup", f"{text} ends in the future")
        if name in past_retention({*self._kept, name}, now_ms):
            raise RejectedResult(
                "OlderThanKept",
                f"{text} is older than the {rollup_retention.KEPT[name.period]} newest {name.period}s, which are kept",
                conflict=True,
            )
        return name, _Kept(about, rows, len(content))

    def _remove(self, names: Iterable[RollupName]) -> None:
        for name in names:
            self._path(name).unlink(missing_ok=True)
            del self._kept[name]

    def _remove_aside(self, now_ms: int) -> None:
        """Those whose period is not kept any more, and of the others the oldest, as long as there is no room for them
        beside the rollups.
        """
        sizes = {name: path.stat().st_size for name, path in self._aside.items() if path.exists()}
        total = sum(kept.bytes for kept in self._kept.values()) + sum(sizes.values())
        for name in sorted(self._aside):
            if total > self._limit_bytes or name not in sizes or name in past_retention({*self._kept, name}, now_ms):
                self._aside.pop(name).unlink(missing_ok=True)
                total -= sizes.get(name, 0)

    def _adopt(self, path: Path) -> None:
        if path.name.startswith(HIDDEN_PREFIX):
            path.unlink()
            return
        name = RollupName.parse(path.name.removesuffix(DAMAGED_SUFFIX))
        if name is None:
            return
        if path.name.endswith(DAMAGED_SUFFIX):
            self._aside.setdefault(name, path)
            return
        try:
            content = path.read_bytes()
            about, rows = check_rollup(content)
            self._place.check_owns("rollup", about.broker, about.namespace)
        except OSError as error:  # it may be readable later, and the other files are
            log.error("rollup %s is left out, because it can't be read: %s", path.name, error)
            self._aside[name] = path
        except RejectedResult as error:
            if error.error == OTHER_BROKER:  # of a volume of another Broker that was mounted or restored here
                log.error("rollup %s is left out: %s", path.name, error)
            stays = error.error in (OTHER_VERSION, OTHER_BROKER)
            self._aside[name] = path if stays else self._set_aside(path, error)
        else:
            self._kept[name] = _Kept(about, rows, len(content))

    def _set_aside(self, path: Path, error: RejectedResult) -> Path:
        aside = path.with_name(path.name + DAMAGED_SUFFIX)
        path.rename(aside)
        log.error(
            "rollup %s is damaged, and what it told is lost unless the lag job makes it again, which it does as long "
            "as the ledger has that time: %s; the file is now %s and is deleted with the rollups of its age",
            path.name,
            error,
            aside.name,
        )
        return aside

    def _path(self, name: RollupName) -> Path:
        return self._folder / str(name)
