"""Reading a damaged Parquet file raises what is listed, wherever the damage is."""

from __future__ import annotations

import importlib
import io
from typing import Any

import pytest

from penstock_page.parquet_damage import PARQUET_DAMAGED

pa: Any = importlib.import_module("pyarrow")  # it ships no type information
pq: Any = importlib.import_module("pyarrow.parquet")


def _read(content: bytes) -> None:
    file = pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True)
    _ = file.schema_arrow.names
    file.read().to_pylist()


def test_each_byte_that_is_damaged_raises_what_is_listed() -> None:
    """With and without checksums; some damage is read as other values. Each of the three kinds is met."""
    table = pa.table({"queue_name": ["a", "b"], "depth": [1, 2]})
    met: set[type[Exception]] = set()
    for checksums in (True, False):
        written = io.BytesIO()
        pq.write_table(table, written, compression="none", write_page_checksum=checksums)
        whole = written.getvalue()
        for at in range(len(whole)):
            try:
                _read(whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1 :])
            except PARQUET_DAMAGED as error:
                met |= {kind for kind in PARQUET_DAMAGED if isinstance(error, kind)}
    assert met == {pa.ArrowException, OSError, UnicodeDecodeError}


@pytest.mark.parametrize("size", [0, 3, 8, 100])
def test_a_file_that_is_cut_off_raises_what_is_listed(size: int) -> None:
    written = io.BytesIO()
    pq.write_table(pa.table({"depth": [1, 2]}), written)
    with pytest.raises(PARQUET_DAMAGED):
        _read(written.getvalue()[:size])
