"""The checksum of a footer: no flipped bit of it is read, and whoever does not know it reads the file as before."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import Any

import pytest

from penstock_page.parquet_footer import CHECKSUM_BYTES, FooterDamaged, add_checksum, check_footer

pa: Any = importlib.import_module("pyarrow")  # it ships no type information
pq: Any = importlib.import_module("pyarrow.parquet")

TABLE = pa.table({"queue_name": ["a", "b"], "moved": [1, 2]})


def written() -> io.BytesIO:
    """A file without a checksum."""
    file = io.BytesIO()
    pq.write_table(TABLE, file, compression="none")
    return file


def checked() -> bytes:
    """A file with one."""
    file = written()
    add_checksum(file)
    return file.getvalue()


def test_no_flipped_bit_of_a_footer_is_read() -> None:
    """Nor one of its checksum, of its length or of the end of the file: the reader refuses what the check leaves to it.
    Without the checksum, 7 of 8 in the name of a column make a file without that column. Of the four bytes that say
    that there is a checksum none is looked at here: a flipped bit there leaves a sound file without one.
    """
    whole = checked()
    begin = len(whole) - int.from_bytes(whole[-8:-4], "little") - 8 - CHECKSUM_BYTES
    assert whole[begin : begin + 4] == b"PSFC"
    for at in range(begin + 4, len(whole)):
        for bit in range(8):
            flipped = whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
            with pytest.raises((FooterDamaged, pa.ArrowException, OSError)):
                check_footer(flipped)
                pq.read_metadata(io.BytesIO(flipped))


def test_a_file_with_a_checksum_is_read_as_one_without() -> None:
    """By who does not know it, and a file without one by who does."""
    assert pq.read_table(io.BytesIO(checked())).equals(TABLE)
    check_footer(written())
    check_footer(b"")
    check_footer(b"<html>")


def test_a_file_is_checked_by_its_path_and_by_its_end(tmp_path: Path) -> None:
    """A file object is at its beginning afterwards."""
    whole = checked()
    needed = int.from_bytes(whole[-8:-4], "little") + 8 + CHECKSUM_BYTES
    path = tmp_path / "x.parquet"
    path.write_bytes(whole)
    check_footer(path)
    check_footer(whole[-needed:])
    file = io.BytesIO(whole)
    check_footer(file)
    assert file.tell() == 0
    path.write_bytes(whole.replace(b"\x05moved", b"\x05moveD"))
    for source in (path, path.read_bytes()[-needed:], io.BytesIO(path.read_bytes())):
        with pytest.raises(FooterDamaged, match="its footer does not agree with its checksum"):
            check_footer(source)
