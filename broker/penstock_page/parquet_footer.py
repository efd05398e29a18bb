"""A checksum of the footer of a Parquet file, which the format has only for pages.

The footer names the columns and says where they are, and what is least and most in each. One flipped bit in the name of
a column is enough: a reader that can do without the column reads nothing in it, without an error. So eight bytes before
the footer hold its CRC-32; every reader of Parquet skips them, because it finds all else by its place. Files of earlier
releases, and those that another tool has written, have none. Source: docs/reference/lag-job.md, "The ledger".
"""

from __future__ import annotations

import io
import os
import zlib
from pathlib import Path
from typing import IO, Final

__all__ = ["CHECKSUM_BYTES", "FooterDamaged", "add_checksum", "check_footer", "footer_bytes"]

CHECKSUM_BYTES: Final = 8
"""Four that are the same in all files, and the CRC-32, little-endian as all of Parquet."""

_CHECKSUM_MAGIC: Final = b"PSFC"
_MAGIC: Final = b"PAR1"
_LENGTH_AND_MAGIC: Final = 8
"""The last bytes of a Parquet file: four with the length of its footer, and four that are the same in all of them."""


class FooterDamaged(Exception):
    """The footer is not the one that was written."""


def add_checksum(file: IO[bytes]) -> None:
    """Put the checksum into a file that is complete, and open for reading and writing. Raises OSError."""
    tail = _end(file, _LENGTH_AND_MAGIC)
    footer = _end(file, footer_bytes(tail))[:-_LENGTH_AND_MAGIC]
    file.seek(-len(footer) - _LENGTH_AND_MAGIC, os.SEEK_END)
    file.write(_checksum(footer) + footer + tail)


def footer_bytes(tail: bytes) -> int:
    """How much of the end of a file its footer takes, without the checksum. In: at least the last eight bytes."""
    return int.from_bytes(tail[-_LENGTH_AND_MAGIC:-4], "little") + _LENGTH_AND_MAGIC


def check_footer(source: Path | IO[bytes] | bytes) -> None:
    """Compare the footer with its checksum, if the file has one. What is no Parquet file is left to its reader. The
    file, or the end of one, is at its beginning afterwards. Raises FooterDamaged or OSError.
    """
    if isinstance(source, Path):
        with source.open("rb") as file:
            _check(file)
    else:
        _check(io.BytesIO(source) if isinstance(source, bytes) else source)


def _check(file: IO[bytes]) -> None:
    tail = _end(file, _LENGTH_AND_MAGIC)
    if len(tail) == _LENGTH_AND_MAGIC and tail.endswith(_MAGIC):
        needed = footer_bytes(tail)
        end = _end(file, needed + CHECKSUM_BYTES)
        footer, before = end[-needed:-_LENGTH_AND_MAGIC], end[:-needed]
        if before.startswith(_CHECKSUM_MAGIC) and before != _checksum(footer):
            raise FooterDamaged("its footer does not agree with its checksum")
    file.seek(0)


def _checksum(footer: bytes) -> bytes:
    return _CHECKSUM_MAGIC + zlib.crc32(footer).to_bytes(4, "little")


def _end(file: IO[bytes], wanted: int) -> bytes:
    """The last bytes of a file, or all of it."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - wanted, 0))
    return file.read()
