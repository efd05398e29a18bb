"""Mends the files of a log: `penstock log repair`. Each step keeps a copy of what it changes, and can be repeated.

A broker does most of this itself when it starts. What it leaves to a person is a segment in which the disk can't read
the place where the log ends, because only a person can give up what may have been there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from penstock_broker.log.disk.damage import DAMAGED, copy_name, missing_name, replace_file, save_copy, set_aside
from penstock_broker.log.disk.files import FileLayer, write_all
from penstock_broker.log.disk.spare_segments import number_of
from penstock_broker.log.format.blocks import SEGMENT_START, SegmentHeader, encode_segment_header
from penstock_broker.log.inspection.log_inspection import Flaw, Inspection
from penstock_broker.log.recovery.record_reader import Progress
from penstock_broker.log.scan.segment_files import ByteSpan, names_of, read_around


class RepairKind(Enum):
    """What one step does."""

    COPY = "copy the damaged bytes to damaged/"
    HEADER = "write the segment's header anew"
    NOTE = "write in damaged/ that the segment is missing: bring the file back before, if there is a copy of it"
    MOVE = "move the file to damaged/"
    REPLACE = "move the file to damaged/, and put what can be read of it in its place"


@dataclass(frozen=True, slots=True)
class Repair:
    """One step, about bytes [start, end) of a file."""

    kind: RepairKind
    path: Path
    segment: int
    start: int
    end: int
    reason: str


class NotSaved(Exception):
    """A copy could not be written, so nothing was changed in its place. The message names the file."""


def plan_replacements(files: FileLayer, folder: Path, progress: Progress) -> list[Repair]:
    """The segments of which the disk can't read some bytes: these come first, since they may hide where the log ends.

    Raises OSError.
    """
    plan: list[Repair] = []
    names = names_of("segment", files.names(folder))
    for done, name in enumerate(names):
        progress(done, len(names))
        content, spans = _readable(files, folder / name)
        if spans:
            places = ", ".join(f"{start} to {end}" for start, end in spans)
            reason = f"the disk can't read bytes {places}"
            plan.append(Repair(RepairKind.REPLACE, folder / name, number_of(name), 0, len(content), reason))
    return plan


def plan_repairs(inspection: Inspection) -> list[Repair]:
    """What is to be done about the flaws that were not set aside yet. Pure."""
    return [_repair_of(flaw) for flaw in inspection.flaws if flaw.copy is None]


def carry_out(files: FileLayer, plan: Sequence[Repair], log_id: bytes | None) -> None:
    """Do all of it, in order. `log_id`: for the headers that are written anew. Raises NotSaved or OSError."""
    for step in plan:
        match step.kind:
            case RepairKind.MOVE:
                set_aside(files, step.path)
            case RepairKind.REPLACE:
                _replace(files, step)
            case RepairKind.COPY:
                _copy(files, step)
            case RepairKind.NOTE:
                _note(files, step)
            case RepairKind.HEADER:
                assert log_id is not None, "a log without id has no header to mend"
                _copy(files, step)
                _write_header(files, step, log_id)


def _repair_of(flaw: Flaw) -> Repair:
    return Repair(_kind_of(flaw), flaw.path, flaw.segment, flaw.start, flaw.end, flaw.reason)


def _kind_of(flaw: Flaw) -> RepairKind:
    if flaw.is_foreign:
        return RepairKind.MOVE
    if flaw.is_header:
        return RepairKind.HEADER
    return RepairKind.NOTE if flaw.is_missing else RepairKind.COPY


def _readable(files: FileLayer, path: Path) -> tuple[bytes, list[ByteSpan]]:
    """The whole file with zeros for what the disk can't read, however much that is, and where it is."""
    handle = files.open(path, create=False)
    try:
        return read_around(files, handle, path, most=files.size(handle))
    finally:
        files.close(handle)


def _copy(files: FileLayer, step: Repair) -> None:
    content = _readable(files, step.path)[0][step.start : step.end]
    if save_copy(files, step.path.parent / DAMAGED, copy_name(step.segment, step.start, step.end), content) is None:
        raise NotSaved(f"{step.path}, bytes {step.start} to {step.end}, could not be copied")


def _note(files: FileLayer, step: Repair) -> None:
    folder = step.path.parent / DAMAGED
    text = f"{step.path.name}: {step.reason}\n"
    if save_copy(files, folder, missing_name(step.segment), text.encode()) is None:
        raise NotSaved(f"{step.path.name} is missing, which could not be written to {folder}")


def _write_header(files: FileLayer, step: Repair, log_id: bytes) -> None:
    handle = files.open(step.path, create=False)
    try:
        size = max(files.size(handle), SEGMENT_START)
        write_all(files, handle, encode_segment_header(SegmentHeader(step.segment, size, log_id, 0)), 0)
        files.fdatasync(handle)
    finally:
        files.close(handle)


def _replace(files: FileLayer, step: Repair) -> None:
    """The whole copy is durable under another name before either name changes."""
    content, _ = _readable(files, step.path)
    folder = step.path.parent / DAMAGED
    name = f"{step.path.name}.readable"
    if save_copy(files, folder, name, content) is None:
        raise NotSaved(f"what can be read of {step.path} could not be copied")
    replace_file(files, step.path, folder / name)
