"""What is shown over and over in one place is shown so only where a terminal can erase."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TextIO

import pytest

from penstock_cli.progress import Progress, shown_on_terminal
from penstock_cli.terminal import can_erase


@pytest.fixture
def terminal() -> Iterator[TextIO]:
    """A terminal that nobody looks at."""
    looking, shown = os.openpty()
    with os.fdopen(shown, "w") as stream:
        yield stream
    os.close(looking)


@pytest.mark.parametrize(
    ("term", "can"), [("xterm-256color", True), ("linux", True), ("dumb", False), ("", False), (None, False)]
)
def test_a_terminal_says_by_its_name_whether_it_can_erase(
    terminal: TextIO, monkeypatch: pytest.MonkeyPatch, term: str | None, can: bool
) -> None:
    if term is None:
        monkeypatch.delenv("TERM", raising=False)
    else:
        monkeypatch.setenv("TERM", term)
    assert can_erase(terminal) is can


def test_files_and_closed_streams_are_no_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with open(os.devnull, "w", encoding="utf-8") as file:
        assert not can_erase(file)
    assert not can_erase(None)


@pytest.mark.parametrize(("term", "wanted"), [("xterm", b"\r\x1b[K3 moved"), ("dumb", b"3 moved\r\n")])
def test_progress_is_told_line_by_line_where_nothing_can_be_erased(term: str, wanted: bytes) -> None:
    code = (
        "from penstock_cli.progress import Progress, shown_on_terminal; shown_on_terminal('moved')(Progress(3, None))"
    )
    looking, shown = os.openpty()
    environment = {**os.environ, "TERM": term}
    subprocess.run([sys.executable, "-c", code], stderr=shown, check=True, timeout=300, env=environment)
    os.close(shown)
    assert os.read(looking, 1000) == wanted
    os.close(looking)


def test_progress_of_no_terminal_has_lines(capsys: pytest.CaptureFixture[str]) -> None:
    shown_on_terminal("moved")(Progress(3, 6))
    assert capsys.readouterr().err == "3 of 6 moved (50 %)\n"
