"""A broker process on volumes that are small, full, too small, read-only, or that refuse to write on."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection, SendException
from support.broker_process import BrokerProcess
from support.proton_client import connected
from support.volumes import make_read_only, small_volume

BODY = "x" * 200_000
DEFAULT = {"log": {}, "maxMessageBytes": 2 * 1024 * 1024, "autoCreate": True}


def fill(connection: BlockingConnection, most: int) -> int:
    """Publish durable messages until one is refused; how many were accepted."""
    sender = connection.create_sender("orders")
    for accepted in range(most):
        try:
            sender.send(Message(body=f"{accepted} {BODY}", durable=True), timeout=60)
        except SendException:
            return accepted
    raise AssertionError(f"{most} messages were accepted")


def drain(connection: BlockingConnection, count: int) -> list[int]:
    """Take and accept so many messages; their numbers."""
    receiver = connection.create_receiver("orders", credit=20)
    found: list[int] = []
    for _ in range(count):
        message = receiver.receive(timeout=60)
        found.append(int(str(message.body).partition(" ")[0]))
        receiver.accept()
    receiver.close()
    return found


def started(data: Path) -> subprocess.CompletedProcess[str]:
    """A broker that is not expected to start, as a user starts it."""
    command = [sys.executable, "-m", "penstock_cli", "broker", "--dev", "--data", str(data), "--listen", "127.0.0.1:0"]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_a_volume_of_40_megabytes_works_is_full_and_works_again(tmp_path: Path) -> None:
    with (
        small_volume(tmp_path / "volume", 40) as volume,
        BrokerProcess(volume / "data", settings=DEFAULT) as broker,
    ):
        assert "segments have 2097152 bytes, because the volume is small" in broker.log()
        with connected(broker.url) as connection:
            accepted = fill(connection, most=210)
        assert accepted > 100, "half of the volume holds messages"
        broker.kill()
        broker.start()
        with connected(broker.url) as connection:
            assert drain(connection, accepted) == list(range(accepted))
            again = connection.create_sender("orders")
            for _ in range(20):
                again.send(Message(body=f"0 {BODY}", durable=True), timeout=60)
        assert broker.stop() == 0


def test_a_volume_that_is_too_small_is_told_with_the_least_size(tmp_path: Path) -> None:
    with small_volume(tmp_path / "volume", 6) as volume:
        said = started(volume / "data")
        assert (said.returncode, "needs at least 8388608 (8 MiB)" in said.stderr) == (3, True), said.stderr


def test_a_volume_that_others_have_filled_is_told(tmp_path: Path) -> None:
    with small_volume(tmp_path / "volume", 40) as volume:
        (volume / "others").write_bytes(bytes(39 * 1024 * 1024))
        said = started(volume / "data")
        assert said.returncode == 3
        assert "give the volume more space, at least 2097152 bytes" in said.stderr
        assert "Traceback" not in said.stderr


def test_a_volume_that_can_only_be_read_is_told_and_can_be_looked_at(tmp_path: Path) -> None:
    with small_volume(tmp_path / "volume", 40) as volume:
        with BrokerProcess(volume / "data", settings=DEFAULT) as broker:
            with connected(broker.url) as connection:
                connection.create_sender("orders").send(Message(body="one", durable=True))
            broker.kill()
        for path in tmp_path.glob("volume/data.*"):
            path.unlink()
        make_read_only(volume)
        said = started(volume / "data")
        assert (said.returncode, "Read-only file system" in said.stderr) == (3, True), said.stderr
        command = [sys.executable, "-m", "penstock_cli", "log", "verify", str(volume / "data")]
        looked = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert (looked.returncode, looked.stdout.splitlines()[-1]) == (0, "The log is sound."), looked.stderr


def test_a_write_that_fails_ends_durable_work_until_the_next_start(tmp_path: Path) -> None:
    """The limit on the size of files makes a real write fail, with EFBIG, as a failing volume does with EIO."""
    with BrokerProcess(tmp_path / "data") as broker:
        with connected(broker.url) as connection:
            sender = connection.create_sender("orders")
            sender.send(Message(body=f"0 {BODY}", durable=True))
            resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
            with pytest.raises(Exception, match=r"(?i)disconnect|reset|closed|refused|rejected"):
                sender.send(Message(body=f"1 {BODY}", durable=True), timeout=60)
        assert "the log has failed and takes no durable work until the broker is restarted" in broker.log()
        assert os.strerror(errno.EFBIG) in broker.log()
        assert broker.stop() == 1
        broker.start()
        with connected(broker.url) as connection:
            assert drain(connection, 1) == [0]
