"""`penstock log verify`: what a log holds and what of it is damaged, for people or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from penstock_broker.log import Flaw, Inspection, ReadOnlyFiles, Repair, inspect_log
from penstock_cli.log.folder import unused_log
from penstock_cli.progress import ProgressLine
from penstock_cli.tables import as_table

__all__ = ["loss_lines", "place_of", "verify_log"]

COLUMNS = {"kind": "KIND", "name": "NAME", "messages": "MESSAGES", "bytes": "BYTES"}


def verify_log(named: Path, *, as_json: bool) -> int:
    """Print what the log in `named` holds; the exit code. Raises Failure."""
    with unused_log(named) as folder:
        found = inspect_log(ReadOnlyFiles(), folder, ProgressLine("reading the log"))
    click.echo(json.dumps(_document(found), indent=2) if as_json else "\n".join(_lines(found)))
    return 0 if found.is_sound else 1


def _lines(found: Inspection) -> Iterator[str]:
    total = sum(each.size for each in found.segments)
    blocks = sum(each.blocks for each in found.segments)
    yield f"folder       {found.folder}"
    yield f"segments     {len(found.segments)} of {total} bytes in all, {_numbers(found)}"
    if found.log_id is not None:
        yield f"log id       {found.log_id.hex()}"
    ended = "closed in order" if found.is_closed else "not closed: the broker or the machine was stopped in the middle"
    yield f"epochs       {found.epochs[0]} to {found.epochs[1]}, {ended}"
    sequences = f"sequences {found.sequences[0]} to {found.sequences[1]}, called synced up to {found.claimed}"
    yield f"blocks       {blocks}, {sequences}"
    yield f"checkpoint   {f'begins in segment {found.checkpoint}' if found.checkpoint else 'none'}"
    if found.tail is not None:
        dropped = found.tail.end - found.tail.offset
        behind = (
            f"; {dropped} bytes behind it were promised to nobody and are dropped at the next start" if dropped else ""
        )
        yield f"end          segment {found.tail.segment}, byte {found.tail.offset}{behind}"
    yield f"documents    {found.documents}"
    yield ""
    rows = [
        {"kind": each.kind, "name": each.name, "messages": each.messages, "bytes": each.bytes} for each in found.queues
    ]
    yield as_table(COLUMNS, rows) if rows else "No queue holds messages."
    yield ""
    for flaw in found.flaws:
        aside = f"set aside before, as {flaw.copy}" if flaw.copy else "not set aside yet"
        if flaw.is_missing:
            aside = f"noted before, as {flaw.copy}" if flaw.copy else "not noted yet"
        yield f"DAMAGED      {place_of(flaw)}: {flaw.reason} ({aside})"
    yield from loss_lines(found)
    yield _verdict(found)


def place_of(flaw: Flaw | Repair) -> str:
    """The file, and the bytes in it; a file that is missing has none."""
    return f"{flaw.path}, bytes {flaw.start} to {flaw.end}" if flaw.end else f"{flaw.path}"


def loss_lines(found: Inspection) -> Iterator[str]:
    """Which messages are lost, one line per queue."""
    for queue, count in sorted(found.losses.items()):
        yield f"LOST         {count} {'message' if count == 1 else 'messages'} of {queue}"
    if found.flaws and not found.losses:
        yield "LOST         no message that can still be named; damaged bytes may have held others"


def _numbers(found: Inspection) -> str:
    numbers = f"numbers {found.segments[0].number} to {found.segments[-1].number}" if found.segments else "none"
    absent = ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in found.absent)
    return f"{numbers}, without {absent} (recycled, unless they are named below)" if absent else numbers


def _verdict(found: Inspection) -> str:
    if not found.is_sound:
        return "The log is damaged. See what `penstock log repair` would do about it."
    if found.flaws:
        return "What is damaged was set aside. The rest of the log is sound."
    return "The log is sound."


def _document(found: Inspection) -> dict[str, object]:
    return {
        "folder": str(found.folder),
        "sound": found.is_sound,
        "logId": found.log_id.hex() if found.log_id is not None else None,
        "segments": [
            {
                "number": each.number,
                "file": each.path.name,
                "bytes": each.size,
                "blocks": each.blocks,
                "end": each.end,
                "sealed": each.is_sealed,
            }
            for each in found.segments
        ],
        "absentSegments": [list(each) for each in found.absent],
        "epochs": list(found.epochs),
        "sequences": list(found.sequences),
        "claimed": found.claimed,
        "closed": found.is_closed,
        "checkpoint": found.checkpoint,
        "end": None if found.tail is None else {"segment": found.tail.segment, "offset": found.tail.offset},
        "unpromisedBytes": 0 if found.tail is None else found.tail.end - found.tail.offset,
        "documents": found.documents,
        "queues": [
            {"kind": each.kind, "name": each.name, "messages": each.messages, "bytes": each.bytes}
            for each in found.queues
        ],
        "damage": [
            {
                "file": flaw.path.name,
                "segment": flaw.segment,
                "start": flaw.start,
                "end": flaw.end,
                "reason": flaw.reason,
                "copy": str(flaw.copy) if flaw.copy else None,
            }
            for flaw in found.flaws
        ],
        "lost": found.losses,
    }
