"""The Python examples say how they are called, and that no broker answers; neither is a traceback or a silence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "clients" / "python"


@pytest.mark.parametrize("command", ["publish", "consume", "share", "unsubscribe"])
def test_without_arguments_the_usage_is_printed(command: str) -> None:
    done = subprocess.run([sys.executable, FOLDER / f"{command}.py"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Usage: python3 {command}.py amqp://USER:PASSWORD@HOST:PORT")


def test_a_broker_that_does_not_answer_is_told() -> None:
    command = [sys.executable, str(FOLDER / "publish.py"), "amqp://guest:guest@127.0.0.1:1", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as publisher:
        assert publisher.stderr is not None
        line = publisher.stderr.readline()
        publisher.kill()
    assert line.startswith("no connection to the broker, trying again: ")
