"""Brokers for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess


@pytest.fixture
def broker_process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A running `--dev` broker with an empty data folder."""
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker
