"""The file of --output is never half a document: a dashboard may read it at any time."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from observer.samples import a_result

from penstock_api.failure import Failure
from penstock_lag.delivery import Delivery
from penstock_lag.output_file import write_output
from penstock_lag.settings import LagJobSettings
from penstock_lag.targets import targets_of
from penstock_observer.results import read_result


def test_a_full_disk_leaves_the_document_of_the_run_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    write_output(path, b"before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_output(path, b"after")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("result.json", b"before")]


def test_a_run_that_is_killed_while_it_writes_leaves_the_document_of_the_run_before(tmp_path: Path) -> None:
    """The next run writes it all the same."""
    path = tmp_path / "result.json"
    write_output(path, b"before")
    program = (
        "import os, pathlib, sys\n"
        "from penstock_lag.output_file import write_output\n"
        "os.fsync = lambda _: os.kill(os.getpid(), 9)\n"
        "write_output(pathlib.Path(sys.argv[1]), b'after')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert ended.returncode == -9
    assert path.read_bytes() == b"before"
    write_output(path, b"later")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("result.json", b"later")]


def test_of_two_runs_that_write_at_the_same_time_one_document_is_there(tmp_path: Path) -> None:
    """The other one takes the place while this one syncs its own."""
    path = tmp_path / "result.json"
    sync = os.fsync
    others = [b"other"]

    def meanwhile(descriptor: int) -> None:
        if others:
            write_output(path, others.pop())
        sync(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", meanwhile)
        write_output(path, b"this one")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("result.json", b"other")]
    with pytest.raises(FileNotFoundError):
        write_output(tmp_path / "absent" / "result.json", b"document")


def test_a_file_keeps_its_mode_and_a_link_stays_one(tmp_path: Path) -> None:
    path, link = tmp_path / "result.json", tmp_path / "latest.json"
    path.write_bytes(b"before")
    path.chmod(0o640)
    link.symlink_to(path)
    write_output(link, b"after")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode), link.is_symlink()) == (b"after", 0o640, True)


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_output(pipe, b"document")
    reader.join(30)
    assert (read, stat.S_ISFIFO(pipe.stat().st_mode)) == ([b"document"], True)


def test_a_folder_that_takes_no_new_files_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file itself may be written."""
    path = tmp_path / "result.json"
    path.write_bytes(b"a longer one from before")
    write = Path.write_bytes

    def refuse(target: Path, body: bytes) -> int:
        if target != path:
            raise PermissionError(13, "Permission denied")
        return write(target, body)

    monkeypatch.setattr(Path, "write_bytes", refuse)
    write_output(path, b"after")
    assert path.read_bytes() == b"after"


def test_what_can_t_be_written_is_said_with_its_path(tmp_path: Path) -> None:
    """A folder."""
    run = LagJobSettings(
        observers=("http://127.0.0.1:9",), broker="main", namespace="shop", run_name="run-1", publish=False,
        output=tmp_path,
    )  # fmt: skip
    (target,) = targets_of(run)
    with Delivery(run) as delivery, pytest.raises(Failure, match=f"could not be written to {tmp_path}: "):
        delivery.deliver(target, read_result(a_result()))
