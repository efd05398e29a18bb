"""Where the broker says that it serves; a full volume doesn't keep it from serving."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess

from penstock_api.failure import CannotRun
from penstock_broker.main import announce


def test_a_full_volume_keeps_nobody_from_being_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = tmp_path / "addresses.json"
    told.write_text('{"amqp": "of the start before"}')

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    announce({"amqp": "127.0.0.1:5672"}, told, None)
    assert capsys.readouterr().out == "listening amqp 127.0.0.1:5672\n"
    assert not told.exists()


def test_a_folder_that_is_not_ours_is_told(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="No such file or directory"):
        announce({}, tmp_path / "absent" / "addresses.json")


def test_a_listener_of_the_command_line_has_a_name_that_the_file_does_not_give(tmp_path: Path) -> None:
    """Two of one name would be one line in the addresses."""
    settings: dict[str, object] = {"listeners": [{"address": "127.0.0.1:0"}, {"name": "amqp-2", "address": "[::1]:0"}]}
    with BrokerProcess(tmp_path / "data", listen=("127.0.0.1:0",) * 2, settings=settings) as broker:
        ports = [broker.addresses[name].rpartition(":")[2] for name in ("amqp", "amqp-2", "amqp-3", "amqp-4")]
    assert len(set(ports)) == 4
