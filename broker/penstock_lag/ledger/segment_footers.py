"""What the footer of a segment says, without its rows. It is at the end of the file: only that is needed."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Reason: pyarrow ships no type information.

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from penstock_api.failure import Failure
from penstock_api.ledger_format import NAMESPACE_KEY
from penstock_lag.ledger.schema import REQUIRED
from penstock_lag.spark_failures import GONE
from penstock_page.parquet_damage import PARQUET_DAMAGED
from penstock_page.parquet_footer import CHECKSUM_BYTES, check_footer, footer_bytes

__all__ = ["TAIL_BYTES", "FooterUnreadable", "bytes_needed", "footer_in", "footer_of"]

CURE: Final = "Move the file elsewhere, or give another folder as --ledger."

TAIL_BYTES: Final = 64 * 1024
"""The footer of a segment is smaller, as long as the file has few row groups."""


class FooterUnreadable(Failure):
    """A file, or its footer, is damaged, or its place does not give it: it may be somebody else's."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} can't be read: {reason}.", CURE)
        self.reason = reason


def footer_of(path: Path) -> dict[str, Any]:
    """Number of rows, first_ms, last_ms, broker, ordinal, namespace (None: of an earlier release), and with_... : how
    many rows have each required column.
    Raises FooterUnreadable if it is no Parquet file, Failure if its footer says nothing of a required column.
    """
    return _outline(path, str(path))


def footer_in(tail: bytes, path: str) -> dict[str, Any]:
    """The same, of the end of the file at `path`, which has at least `bytes_needed`."""
    return _outline(io.BytesIO(tail), path)


def bytes_needed(tail: bytes) -> int:
    """How much of the end of a file its footer and its checksum take. In: the last bytes, at least eight of them."""
    return footer_bytes(tail) + CHECKSUM_BYTES


def _outline(source: Path | io.BytesIO, path: str) -> dict[str, Any]:
    try:
        check_footer(source)
        footer = pq.read_metadata(source)
        _ = footer.schema.names
    except FileNotFoundError as error:  # merged, or deleted, since the folder was listed
        raise Failure(f"{path} can't be read: {error}.", GONE) from error
    except PARQUET_DAMAGED as error:
        raise FooterUnreadable(path, str(error)) from error
    found: dict[str, Any] = {"rows": footer.num_rows}
    ranges = {name: _range(footer, name, path) for name in REQUIRED}
    for name, (_, _, nulls) in ranges.items():
        found[f"with_{name}"] = footer.num_rows - nulls
    found |= {"first_ms": ranges["time_ms"][0], "last_ms": ranges["time_ms"][1]}
    namespace = (footer.metadata or {}).get(NAMESPACE_KEY)
    found["namespace"] = None if namespace is None else namespace.decode(errors="replace")
    return found | {name: ranges[name][1] for name in ("broker", "ordinal")}


def _range(footer: Any, name: str, path: str) -> tuple[Any, Any, int]:
    """Least, most, and the number of nulls."""
    if name not in footer.schema.names:
        return None, None, footer.num_rows
    column = footer.schema.names.index(name)
    said = [footer.row_group(group).column(column).statistics for group in range(footer.num_row_groups)]
    if any(each is None or not each.has_min_max for each in said):
        raise Failure(f"{path}: its footer says nothing of the column {name}.", CURE)
    return min(each.min for each in said), max(each.max for each in said), sum(each.null_count for each in said)
