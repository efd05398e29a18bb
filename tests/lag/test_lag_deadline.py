"""A run that hangs ends, alone and as Spark's driver, and says where it hung. Else no other run would ever begin."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import pyspark
import pytest

from penstock_api.failure import Misuse
from penstock_lag.deadline import set_deadline

ROOT = Path(__file__).parents[2]
ENTRYPOINT = ROOT / "hack" / "dockerfiles" / "spark-entrypoint"


@pytest.fixture
def silent_observer() -> Generator[str]:
    """It begins an answer, and then sends one byte a second: no time-out of a socket ever ends that."""
    over = threading.Event()

    def answer(client: socket.socket) -> None:
        with client:
            client.recv(65_536)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not over.wait(1):
                try:
                    client.sendall(b" ")
                except OSError:
                    return

    def serve() -> None:
        while not over.is_set():
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        over.set()


@pytest.fixture
def hasty_python(tmp_path: Path) -> str:
    """For a driver: it takes a thirtieth of the time for the whole. A busy machine may take long to start Java, and
    the time of the entrypoint runs meanwhile.
    """
    program = tmp_path / "python"
    program.write_text(
        "#!/bin/sh\n"
        "export PENSTOCK_LAG_DEADLINE_SECONDS=$((PENSTOCK_LAG_DEADLINE_SECONDS / 30))\n"
        f'exec "{sys.executable}" "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


def run_for(seconds: int, *command: str, driver_python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """It returns when the last process that has its standard error, so the JVM and its workers, has ended."""
    environment = {
        **os.environ,
        "PENSTOCK_LAG_DEADLINE_SECONDS": str(seconds),
        "PENSTOCK_OBSERVER_TOKEN": "s3cret",
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": driver_python,
    }
    return subprocess.run(command, capture_output=True, text=True, timeout=800, env=environment, check=False)


def arguments(observer: str) -> list[str]:
    return ["--observer", observer, "--broker", "main", "--namespace", "shop", "--run-name", "run-1"]


def test_a_run_that_hangs_ends_and_says_where(silent_observer: str) -> None:
    done = run_for(12, sys.executable, "-m", "penstock_lag", *arguments(silent_observer))
    assert done.returncode == 1
    assert "the run ends itself if it takes longer than 9 s" in done.stderr
    assert "Timeout (0:00:09)!" in done.stderr
    assert "observer_client.py" in done.stderr, "where it hung"


@pytest.mark.spark
def test_a_driver_that_hangs_fails(silent_observer: str, hasty_python: str) -> None:
    """With the entrypoint of the image, as the Spark operator starts it: Spark is the parent of Python there."""
    program = str(ROOT / "hack" / "dockerfiles" / "lag.py")
    driver = [str(ENTRYPOINT), "driver", "--master", "local[1]", program, *arguments(silent_observer)]
    done = run_for(600, *driver, driver_python=hasty_python)
    assert done.returncode == 1, "not that of the command that would have ended the JVM"
    assert "Timeout (0:00:15)!" in done.stdout, "Spark writes there what Python writes to either"
    assert "observer_client.py" in done.stdout


@pytest.mark.spark
def test_a_driver_whose_run_does_not_end_itself_is_ended(tmp_path: Path) -> None:
    """Python never gets to the run: as if Java itself hung."""
    program = tmp_path / "hangs.py"
    program.write_text("import time\n\ntime.sleep(3600)\n")
    assert run_for(10, str(ENTRYPOINT), "driver", "--master", "local[1]", str(program)).returncode == 124


@pytest.mark.parametrize(("given", "own"), [(1680, 1560), (481, 361), (480, 360), (40, 30)])
def test_a_run_ends_itself_before_others_end_it(given: int, own: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java needs a while to start, and on a busy node more."""
    armed: list[tuple[float, bool]] = []

    def arm(seconds: float, *, exit: bool) -> None:
        armed.append((seconds, exit))

    monkeypatch.setattr("faulthandler.dump_traceback_later", arm)
    set_deadline({"PENSTOCK_LAG_DEADLINE_SECONDS": str(given)})
    set_deadline({})
    assert armed == [(own, True)]


@pytest.mark.parametrize("text", ["0", "-1", "soon", "1.5"])
def test_a_deadline_is_whole_seconds(text: str) -> None:
    with pytest.raises(Misuse, match="PENSTOCK_LAG_DEADLINE_SECONDS can't be"):
        set_deadline({"PENSTOCK_LAG_DEADLINE_SECONDS": text})
