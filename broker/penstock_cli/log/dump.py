"""`penstock log dump`: one line per record of a log."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import click

from penstock_api.failure import Misuse
from penstock_broker.log import (
    ListedRecord,
    ReadOnlyFiles,
    UnknownQueue,
    UnknownSegment,
    Value,
    Wanted,
    list_records,
)
from penstock_cli.log.folder import unused_log

__all__ = ["dump_log"]


def dump_log(named: Path, *, segment: int | None, queue: str | None, messages: bool, as_json: bool) -> int:
    """Print the records; the exit code. Raises Failure."""
    shown = _as_json if as_json else _as_text
    with unused_log(named) as folder:
        try:
            for record in list_records(ReadOnlyFiles(), folder, Wanted(segment, queue, messages)):
                click.echo(shown(record))
        except UnknownQueue as error:
            raise Misuse(f"{error}.", "See the names with `penstock log verify`.") from error
        except UnknownSegment as error:
            raise Misuse(f"{error}.", "Name one of these, in decimal.") from error
    return 0


def _as_json(record: ListedRecord) -> str:
    fields = {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in record.fields.items()
    }
    place = {"segment": record.segment, "offset": record.offset, "sequence": record.sequence, "epoch": record.epoch}
    return json.dumps({**place, "timeMs": record.time_ms, "type": record.type, **fields}, ensure_ascii=False)


def _as_text(record: ListedRecord) -> str:
    said = " ".join(f"{name}={_value(value)}" for name, value in record.fields.items())
    return f"{record.segment}:{record.offset} #{record.sequence} e{record.epoch} {record.type} {said}".rstrip()


def _value(value: Value) -> str:
    """The value on one line, without control characters, which could trick a terminal: clients choose these values."""
    if isinstance(value, bytes):
        return repr(value)[1:]
    text = ",".join(map(str, value)) or "-" if isinstance(value, list) else str(value)
    return "".join(letter if letter.isprintable() else " " for letter in text)
