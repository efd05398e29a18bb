"""The folder of audits: their records as Parquet files, and beside them what is known of each audit.

A file is written under a hidden name, synced and renamed, like a segment of the ledger. The folder has a limit of its
own: the oldest audits that have ended are deleted, and one that is on and larger than the limit alone is not stored any
more, which its report says. What can't be read is left to `damaged_audits`. Synchronous; the caller keeps it off the
event loop. Source: docs/reference/observer.md, "Audits".
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Reason: pyarrow ships no type information; what leaves this module is typed.

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from penstock_api.ledger_format import HIDDEN_PREFIX, SUFFIX
from penstock_api.message_audit import AUDIT_COLUMNS, COUNTED, AuditEvent, AuditFiles, AuditState, EndedBy
from penstock_api.whole_files import write_whole
from penstock_observer.damaged_audits import DAMAGED_SUFFIX, DamagedAudits
from penstock_observer.volume import at_start
from penstock_page.parquet_footer import FooterDamaged, add_checksum, check_footer

__all__ = ["AuditFull", "AuditStore"]

log = logging.getLogger(__name__)

STATE_SUFFIX: Final = ".json"

SCHEMA: Final[Any] = pa.schema(
    [pa.field(name, pa.string() if name == "message_id" else pa.int64(), nullable=False) for name in AUDIT_COLUMNS]
)

_NAME: Final = re.compile(r"([0-9]+-[0-9]+-[0-9]+)-([0-9]{12,})-([0-9]{12,})\.parquet")
_STATE_NAME: Final = re.compile(r"([0-9]+-[0-9]+-[0-9]+)\.json")


class AuditFull(Exception):
    """Records of an audit can't be stored; the message is a sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class StoredAudit:
    """One audit: its state as it was told last, and its files with their bytes, in order."""

    state: AuditState
    files: dict[str, int] = field(default_factory=dict[str, int])
    records: int = 0
    """The next one to fetch."""
    counted: int = 0
    is_whole: bool = True
    """No record is missing between the files."""

    @property
    def is_complete(self) -> bool:
        """Nothing is to be fetched any more, and nothing is missing."""
        return self.state.is_written and self.is_whole and self.records == self.state.records

    def listed(self) -> AuditFiles:
        """As the interface tells it."""
        return AuditFiles(
            state=self.state,
            files=tuple(self.files),
            bytes=sum(self.files.values()),
            records=self.records,
            is_complete=self.is_complete,
        )


class AuditStore:
    """The folder, opened for writing. Raises CannotRun if it can't be used. Times are those of the broker's clock."""

    def __init__(
        self, folder: Path, limit_bytes: int, age_ms: int, ledger_begins_ms: Callable[[], int] | None = None
    ) -> None:
        """Keeps audits of `limit_bytes` together at most, and each until `age_ms` after its beginning; and longer, as
        long as there are rows in the ledger that are as old: a clock that is set deletes those no more than these.
        """
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._age_ms = age_ms
        self._ledger_begins_ms = ledger_begins_ms
        self._audits: dict[str, StoredAudit] = {}  # replaced, never changed: the event loop reads it meanwhile
        self._full: set[str] = set()  # took all of the room, so that nothing more of them is stored
        self._damaged = DamagedAudits()
        with at_start("audit", folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._audits = self._scan()

    def listed(self) -> tuple[AuditFiles, ...]:
        """All audits, the oldest first."""
        return tuple(each.listed() for each in sorted(self._audits.values(), key=lambda each: each.state.started_ms))

    def path_of(self, name: str) -> Path | None:
        """A file of an audit; None for any other name, so that no name leads out of the folder."""
        return self._folder / name if any(name in each.files for each in self._audits.values()) else None

    def unfinished(self) -> list[AuditState]:
        """The audits of which more may be fetched."""
        return [each.state for each in self._audits.values() if not each.is_complete and _may_go_on(each.state)]

    def next_of(self, audit: str) -> int:
        """How many of its records are stored; a file holds records without a gap."""
        known = self._audits.get(audit)
        return 0 if known is None else known.records

    def lost(self, audit: str, reason: EndedBy) -> None:
        """The broker knows the audit no more. Raises OSError."""
        known = self._audits[audit]
        self._put(replace(known, state=known.state.model_copy(update={"ended_by": reason.value})))

    def append(self, state: AuditState, first: int, events: Sequence[AuditEvent]) -> None:
        """Store records, of which `first` came before. Raises AuditFull, or OSError: then they can be fetched again."""
        if events:
            self._make_room(state)
            if state.audit not in self._audits:  # files of which no state is known would be of no audit after a crash
                self._damaged.give_way(state.audit)
                self._put(StoredAudit(state))
        known = self._audits.get(state.audit, StoredAudit(state))
        known = replace(known, state=state, is_whole=known.is_whole and first == known.records)
        if not events:
            self._put(known)
            return
        table, counted = _table(first, events, known.counted)
        name = f"{state.audit}-{first:012d}-{first + len(events) - 1:012d}{SUFFIX}"
        try:
            size = write_whole(self._folder / name, partial(_write, table))
            files = {**known.files, name: size}
            self._put(replace(known, files=files, records=first + len(events), counted=counted))
        except OSError:  # it may be there: its records come again, with others, under another name
            (self._folder / name).unlink(missing_ok=True)
            raise

    def _put(self, audit: StoredAudit) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)  # the volume may have been read-only at the start
        body = audit.state.model_dump_json(by_alias=True, exclude_none=True).encode()
        write_whole(self._folder / f"{audit.state.audit}{STATE_SUFFIX}", lambda path: path.write_bytes(body))
        self._audits = {**self._audits, audit.state.audit: audit}

    def _make_room(self, state: AuditState) -> None:
        """Delete old audits. Raises AuditFull if that of `state` takes all of the room itself, or did so before: what
        is left of it must not drive out audits that can still be complete.
        """
        if state.audit in self._full:
            raise self._too_large(state)
        kept_from_ms = state.started_ms - self._age_ms
        if self._ledger_begins_ms is not None:
            kept_from_ms = min(kept_from_ms, self._ledger_begins_ms())
        self._damaged.remove(self._bytes() + self._damaged.bytes - self._limit_bytes, kept_from_ms)
        oldest = sorted(self._audits.values(), key=lambda each: each.state.started_ms)
        for each in oldest:
            is_over = self._bytes() > self._limit_bytes or each.state.started_ms < kept_from_ms
            if is_over and each.state.audit != state.audit:
                self._delete(each)
        if self._bytes() > self._limit_bytes:
            self._full.add(state.audit)
            raise self._too_large(state)

    def _too_large(self, state: AuditState) -> AuditFull:
        return AuditFull(
            f"the audit of {state.queue_name} takes more than {self._limit_bytes} bytes; its other records are not "
            "stored, and it will not be complete: raise --audit-bytes, or audit for a shorter time"
        )

    def _bytes(self) -> int:
        return sum(sum(each.files.values()) for each in self._audits.values())

    def _delete(self, audit: StoredAudit) -> None:
        for name in (f"{audit.state.audit}{STATE_SUFFIX}", *audit.files):
            (self._folder / name).unlink(missing_ok=True)
        self._audits = {name: each for name, each in self._audits.items() if name != audit.state.audit}

    def _scan(self) -> dict[str, StoredAudit]:
        usable: dict[str, list[Path]] = {}  # files of each audit
        damaged: dict[str, list[Path]] = {}
        for path in sorted(self._folder.iterdir()):
            name = path.name.removesuffix(DAMAGED_SUFFIX)
            named = _STATE_NAME.fullmatch(name) or _NAME.fullmatch(name)
            if path.name.startswith(HIDDEN_PREFIX):
                with at_start("audit", self._folder):
                    path.unlink()
            elif named is not None:
                (usable if name == path.name else damaged).setdefault(named[1], []).append(path)
        for audit, paths in damaged.items():
            self._damaged.keep(audit, paths)
        found = [self._adopted(audit, sorted(paths, key=_is_records)) for audit, paths in usable.items()]
        return {stored.state.audit: stored for stored in found if stored is not None}

    def _adopted(self, audit: str, paths: Sequence[Path]) -> StoredAudit | None:
        """What the files of an audit say, its state first; None if that can't be used."""
        if _is_records(paths[0]):
            self._damaged.set_aside(audit, paths, f"there is no {audit}{STATE_SUFFIX}")
            return None
        try:
            state = AuditState.read(json.loads(paths[0].read_bytes()))
            if state.audit != audit:
                raise ValueError(f"{paths[0].name} is of the audit {state.audit}")
            return self._with_files(StoredAudit(state))
        except (ValidationError, ValueError, FooterDamaged, pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # Arrow's own have no number
                self._damaged.leave(audit, paths, str(error))
            else:
                self._damaged.set_aside(audit, paths, str(error))
        return None

    def _with_files(self, audit: StoredAudit) -> StoredAudit:
        for path in sorted(self._folder.glob(f"{audit.state.audit}-*{SUFFIX}")):
            name = _NAME.fullmatch(path.name)
            if name is None:
                continue
            first, last = int(name[2]), int(name[3])
            audit = replace(
                audit,
                files={**audit.files, path.name: path.stat().st_size},
                records=last + 1,
                is_whole=audit.is_whole and first == audit.records,
            )
        if audit.files:
            audit = replace(audit, counted=_last_counted(self._folder / list(audit.files)[-1]))
        return audit


def _is_records(path: Path) -> bool:
    return path.suffix != STATE_SUFFIX


def _may_go_on(state: AuditState) -> bool:
    return state.ended_by not in (EndedBy.RESTART.value, EndedBy.FORGOTTEN.value)


def _table(first: int, events: Sequence[AuditEvent], counted: int) -> tuple[Any, int]:
    running: list[int] = []
    for event in events:
        counted += event.kind in COUNTED
        running.append(counted)
    columns: list[list[object]] = [list(column) for column in zip(*events, strict=True)]
    values = [range(first, first + len(events)), *columns, running]
    return pa.table([pa.array(each, of.type) for each, of in zip(values, SCHEMA, strict=True)], schema=SCHEMA), counted


def _write(table: Any, path: Path) -> None:
    """Pages with the checksums of Parquet, and a footer with ours, as a segment of the ledger."""
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)
    with path.open("r+b") as file:
        add_checksum(file)


def _last_counted(path: Path) -> int:
    check_footer(path)
    table = pq.read_table(path, columns=["counted"], page_checksum_verification=True)
    found: int = table.column("counted")[-1].as_py()
    return found
