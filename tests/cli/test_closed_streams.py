"""Commands whose standard output or error is closed, as a service manager or `2>&-` may start them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.waiting import until

PENSTOCK = f"{sys.executable} -m penstock_cli"


@pytest.fixture(scope="module")
def management(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a running broker."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.addresses["management"]


@pytest.mark.parametrize("verb", ["status", "queues", "export", "purge work --yes"])
def test_a_closed_standard_error_changes_nothing(management: str, verb: str) -> None:
    told = subprocess.run(
        f"{PENSTOCK} declare queue work --broker {management} && {PENSTOCK} {verb} --broker {management} 2>&-",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (told.returncode, "work" in told.stdout) == (0, True), told.stderr


def test_a_picture_of_the_lag_without_an_output_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x")
    command = f"{PENSTOCK} lag --watch --observer http://127.0.0.1:1 --token-file {tmp_path / 'token'} >&-"
    told = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (told.returncode, "Is the observer running" in told.stderr) == (1, True), told.stderr


def test_a_broker_whose_outputs_are_closed_serves(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    options = f"--data {tmp_path / 'data'} --listen 127.0.0.1:0 --dev --ready-file {ready}"
    with subprocess.Popen(f"exec {PENSTOCK} broker {options} >&- 2>&-", shell=True) as process:
        until(lambda: ready.exists() or process.poll() is not None, "the broker to listen")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
