"""The file layer of the crash tests: only what was synced is on the disk."""

from pathlib import Path

import pytest
from crash.lossy_files import LossyFiles, Tally

from penstock_broker.log.disk.files import RealFiles


@pytest.fixture
def files(tmp_path: Path) -> LossyFiles:
    return LossyFiles(Tally(tmp_path / "tally"))


@pytest.mark.parametrize("is_before", [True, False])
def test_a_folder_that_is_synced_while_a_file_is_made_does_not_fail(
    tmp_path: Path, files: LossyFiles, monkeypatch: pytest.MonkeyPatch, is_before: bool
) -> None:
    """The thread that syncs may come at any moment, and a failure would be taken for one of the disk."""
    really = RealFiles.open

    def interrupted(self: RealFiles, path: Path, *, create: bool) -> int:
        if is_before:
            files.fsync_folder(tmp_path)
        handle = really(self, path, create=create)
        if not is_before:
            files.fsync_folder(tmp_path)
        return handle

    monkeypatch.setattr(RealFiles, "open", interrupted)
    handle = files.open(tmp_path / "spare", create=True)
    files.pwrite(handle, b"zeros", 0)
    files.fdatasync(handle)
    files.fsync_folder(tmp_path)
    assert (tmp_path / "spare").read_bytes() == b"zeros"
