"""Where the records of an audit and the ledger's rows of its time are: at an observer, or in the folder of a ledger.

Files of an observer are copied into a folder of the run; those of a folder on this machine are read where they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from penstock_api.failure import Failure
from penstock_api.ledger_format import SUFFIX, SegmentName
from penstock_api.message_audit import AUDIT_FILE, AUDITS, AuditFiles, AuditList, AuditState
from penstock_api.observer_api import SEGMENT, SEGMENTS, SegmentList
from penstock_lag.ledger.segment_footers import FooterUnreadable, footer_of
from penstock_lag.observer_client import Observer, ObserverError
from penstock_page.parquet_footer import FooterDamaged, check_footer

__all__ = ["AuditPaths", "chosen", "from_folders", "from_observers"]


@dataclass(frozen=True, slots=True)
class AuditPaths:
    """One audit, its files, and segments of the ledger that may have rows of its time."""

    audit: AuditFiles
    files: tuple[str, ...]
    segments: tuple[str, ...]
    damaged: tuple[str, ...] = ()
    """Sentences about those that are left out of `segments`: a column whose name is damaged is read as zeros, and the
    broker would be blamed for it.
    """


def chosen(audits: Iterable[AuditFiles], subscription: str, name: str | None) -> AuditFiles:
    """The audit with this name, else the newest of the subscription: NAMESPACE/NAME of its resource, or its name, or
    that of its queue. Raises Failure if there is none.
    """
    of_it = [each for each in audits if subscription in _names(each.state) and name in (None, each.state.audit)]
    if not of_it:
        which = f"no audit {name}" if name is not None else "no audit"
        raise Failure(
            f"there is {which} of {subscription!r}.",
            "Begin one with `penstock lag audit start`; the observer fetches it at its next interval.",
        )
    return max(of_it, key=lambda each: each.state.started_ms)


def _names(state: AuditState) -> set[str]:
    names = {state.subscription_name, state.queue_name}
    return names if state.name is None else names | {f"{state.namespace}/{state.name}"}


def from_observers(observers: Sequence[Observer], subscription: str, name: str | None, scratch: Path) -> AuditPaths:
    """Copy what is needed into the scratch folder. Raises Failure if there is no such audit, if an observer does not
    answer, or if a file of the audit is damaged.
    """
    try:
        listed = [(each, AuditList.model_validate_json(each.get(AUDITS))) for each in observers]
        audit = chosen((each for _, of in listed for each in of.audits), subscription, name)
        observer = next(each for each, of in listed if audit in of.audits)
        segments = SegmentList.model_validate_json(observer.get(SEGMENTS)).segments
        begin_ms, end_ms = _time_of(audit.state)
        needed = [each.name for each in segments if each.last_ms >= begin_ms and each.first_ms <= end_ms]
        files = tuple(_copied(observer, AUDIT_FILE.format(name=each), scratch / each) for each in audit.files)
        _check(files)
        copies = [_copied(observer, SEGMENT.format(name=each), scratch / each) for each in needed]
        why = {copy: reason for copy in copies if (reason := _damage(Path(copy))) is not None}
        return AuditPaths(
            audit,
            files,
            tuple(copy for copy in copies if copy not in why),
            tuple(_left_out(Path(copy), reason) for copy, reason in why.items()),
        )
    except ValidationError as error:
        raise Failure("an answer of an observer was not understood.", "Is it of another release?") from error
    except (ObserverError, OSError) as error:
        cure = "Try again; what is past its retention vanishes."
        told = error.cure(cure) if isinstance(error, ObserverError) else cure
        raise Failure(f"the audit can't be read: {error}.", told) from error


def _time_of(state: AuditState) -> tuple[int, int]:
    """Beginning and end. If the clock was set back, it ended earlier than it began."""
    begin_ms, end_ms = sorted((state.started_ms, state.ended_ms or state.until_ms))
    return begin_ms, end_ms


def _damage(file: Path) -> str | None:
    """Why a segment can't be believed (no full stop); None if its footer is the one that was written. Its pages have
    checksums that Spark looks at.
    """
    try:
        check_footer(file)
    except FooterDamaged as error:
        return str(error)
    return None


def _left_out(file: Path, reason: str) -> str:
    return f"Segment {file.name} of the ledger is not compared, because it is damaged: {reason}."


def _check(files: Iterable[str]) -> None:
    """With a flipped bit in the name of a column, all of its records would be of no kind, or of no message, and be held
    against the broker. Raises Failure if a file is damaged, OSError.
    """
    for file in files:
        try:
            check_footer(Path(file))
        except FooterDamaged as error:
            raise Failure(
                f"the audit can't be read: {Path(file).name} is damaged: {error}.", "Its disk may be at fault."
            ) from error


def _copied(observer: Observer, path: str, to: Path) -> str:
    to.write_bytes(observer.get(path))
    return str(to)


def from_folders(ledgers: Sequence[Path], subscription: str, name: str | None) -> AuditPaths:
    """The files in the folders of ledgers. Raises Failure if there is no such audit, or if one can't be read."""
    try:
        listed = [(folder, [_stored(path) for path in sorted((folder / "audit").glob("*.json"))]) for folder in ledgers]
        audit = chosen((each for _, of in listed for each in of), subscription, name)
        folder = next(each for each, of in listed if audit in of)
        segments = [path for path in sorted(folder.iterdir()) if SegmentName.parse(path.name) is not None]
        needed, damaged = _needed(segments, audit.state)
    except (OSError, ValueError) as error:
        raise Failure(f"the audit can't be read: {error}.", "Give the folder of an observer's ledger.") from error
    files = tuple(str(folder / "audit" / each) for each in audit.files)
    _check(files)
    return AuditPaths(audit, files, needed, damaged)


def _needed(segments: Sequence[Path], state: AuditState) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of the segments of a folder, in their order, those with rows of the time of an audit; and sentences about those
    that are damaged and may have some, as far as the sound ones beside them tell. Raises Failure.
    """
    begin_ms, end_ms = _time_of(state)
    times: list[tuple[int, int] | FooterUnreadable] = []
    for path in segments:
        try:
            footer = footer_of(path)
            times.append((footer["first_ms"], footer["last_ms"]))
        except FooterUnreadable as error:
            times.append(error)
    needed: list[str] = []
    damaged: list[str] = []
    for number, (path, time) in enumerate(zip(segments, times, strict=True)):
        if isinstance(time, FooterUnreadable):
            before = next((each for each in reversed(times[:number]) if isinstance(each, tuple)), (0, end_ms))
            after = next((each for each in times[number:] if isinstance(each, tuple)), (begin_ms, 0))
            if before[1] <= end_ms and after[0] >= begin_ms:
                damaged.append(_left_out(path, time.reason))
        elif time[1] >= begin_ms and time[0] <= end_ms:
            needed.append(str(path))
    return tuple(needed), tuple(damaged)


def _stored(path: Path) -> AuditFiles:
    state = AuditState.read(json.loads(path.read_bytes()))
    files = sorted(path.parent.glob(f"{state.audit}-*{SUFFIX}"))
    records = int(files[-1].stem.rpartition("-")[2]) + 1 if files else 0
    return AuditFiles(
        state=state,
        files=tuple(each.name for each in files),
        records=records,
        is_complete=state.is_written and records == state.records,
    )
