"""Printing into a pipe that nobody reads for a while: the connection must not notice it."""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from penstock_cli.slow_streams import printed
from penstock_cli.standard_output import OutputLost, StandardOutput

PAGE_BYTES = 4096


@contextmanager
def output_to(file: int, monkeypatch: pytest.MonkeyPatch, encoding: str) -> Generator[None]:
    """Standard output is this file, which is closed at the end."""
    output = StandardOutput(io.BufferedWriter(io.FileIO(file, "wb")), encoding=encoding, errors="backslashreplace")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", output)
        yield
    with suppress(OSError, OutputLost):  # its reader has ended
        output.close()


def small_pipe() -> tuple[int, int]:
    """Its ends for reading and writing; it holds one page."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PAGE_BYTES)
    return reading, writing


@pytest.mark.parametrize("letter", ["x", "ß", "数"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
async def test_the_loop_goes_on_while_nobody_reads(letter: str, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = letter * 3 * PAGE_BYTES
    shown = line.encode(encoding, "backslashreplace").decode(encoding)
    reading, writing = small_pipe()
    with output_to(writing, monkeypatch, encoding):
        printing = asyncio.create_task(printed(line))
        await asyncio.sleep(0)  # it has begun, and has filled the pipe; this line is reached all the same
        assert not printing.done()
        with open(reading, encoding=encoding) as reader:
            assert await asyncio.to_thread(reader.readline) == f"{shown}\n"
            await printing


async def test_a_reader_that_ends_meanwhile_is_a_lost_output(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = small_pipe()
    with output_to(writing, monkeypatch, "utf-8"):
        printing = asyncio.create_task(printed("x" * 3 * PAGE_BYTES))
        await asyncio.sleep(0)
        os.close(reading)
        with pytest.raises(OutputLost):
            await printing


async def test_a_file_gets_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "output"
    with output_to(os.open(file, os.O_CREAT | os.O_WRONLY), monkeypatch, "utf-8"):
        await printed("größe " * PAGE_BYTES)
    assert file.read_text() == "größe " * PAGE_BYTES + "\n"
