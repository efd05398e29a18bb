"""A start that fails leaves no trace: the next one finds the epoch and the end of the last run."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from support.broker_process import BrokerProcess
from support.proton_client import connected, publish, take


def failed(data: Path, message: str, **options: Any) -> None:
    """Start a broker that can't start."""
    with pytest.raises(AssertionError, match=message):
        BrokerProcess(data, **options).start()


def test_a_failed_start_raises_no_epoch_and_is_no_crash(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed(data, "can't listen on", listen=[f"127.0.0.1:{port}"])
        with BrokerProcess(data) as broker:
            with connected(broker.url) as client:
                publish(client.create_sender("jobs"), ["kept"])
            assert broker.stop() == 0
        failed(data, "can't listen on", listen=[f"127.0.0.1:{port}"])
    failed(data, "delivery is wrong", settings={"delivery": {"deadLetter": "$dead"}})
    with BrokerProcess(data) as broker:
        with connected(broker.url) as client:
            assert [body for body, _ in take(client.create_receiver("jobs"), 1)] == ["kept"]
        said = broker.log()
    starts = [line.partition("epoch ")[2].partition(",")[0] for line in said.splitlines() if "synced by" in line]
    assert starts == ["1", "1", "2", "2", "2"]
    assert said.count("Recovered epoch 1 (closed in order)") == 3
    assert "after a crash" not in said


def test_a_destination_that_a_client_has_made_something_else_of_keeps_no_broker_from_starting(tmp_path: Path) -> None:
    """The configuration is right. Dead letters wait until the queue is deleted, or a topic of this name is declared."""
    options: dict[str, Any] = {"settings": {"delivery": {"deadLetter": "topic://dead"}}}
    with BrokerProcess(tmp_path / "data", **options) as broker:
        with connected(broker.url) as client:
            publish(client.create_sender("dead"), ["kept"])
        assert broker.stop() == 0
    with BrokerProcess(tmp_path / "data", **options) as broker:
        with connected(broker.url) as client:
            assert [body for body, _ in take(client.create_receiver("dead"), 1)] == ["kept"]
        assert "'dead' is a queue here" in broker.log()
