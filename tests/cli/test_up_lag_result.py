"""`penstock up` goes on if the observer has died when a lag run ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock_cli.up import commands
from penstock_cli.up.children import ChildProcess
from penstock_cli.up.commands import Endpoints, Pace
from penstock_cli.up.layout import Layout, free_endpoint
from penstock_cli.up.manifest_folder import read
from penstock_cli.up.run import Options, _Up  # pyright: ignore[reportPrivateUsage]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "local"


def test_a_run_has_the_deadline_of_its_broker(tmp_path: Path) -> None:
    """Else one that hangs would be the last one: no other starts before it has ended."""
    broker = read(EXAMPLES).broker
    analysis = broker.spec.lag_analysis.model_copy(update={"deadline_minutes": 90})
    hasty = broker.model_copy(update={"spec": broker.spec.model_copy(update={"lag_analysis": analysis})})
    endpoint = free_endpoint("127.0.0.1", 0)
    layout = Layout(tmp_path, tmp_path)
    child = commands.lag_child(hasty, Endpoints(endpoint, endpoint, None), layout, "run-1")
    assert child.environment == {"PENSTOCK_LAG_DEADLINE_SECONDS": "5520"}


def test_a_result_that_nobody_serves_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def done_at_once(*_: object) -> ChildProcess:
        return ChildProcess("lag", ("true",), tmp_path / "lag.log")

    monkeypatch.setattr(commands, "lag_child", done_at_once)  # a run of Spark takes a minute
    layout = Layout(tmp_path, tmp_path)
    layout.prepare()
    endpoint = free_endpoint("127.0.0.1", 0)
    options = Options(
        folder=EXAMPLES,
        data=tmp_path,
        listen=("127.0.0.1", 0),
        listen_tls=("127.0.0.1", 0),
        observer=("127.0.0.1", 0),
        pace=Pace(10.0, 60.0),
        shows_messages=False,
        scheduled=True,
        prune=False,
    )
    said: list[str] = []

    async def analysed() -> None:
        up = _Up(read(EXAMPLES), Endpoints(endpoint, endpoint, None), layout, options, said.append)
        await up._analyse()  # pyright: ignore[reportPrivateUsage]

    asyncio.run(analysed())
    (line,) = said
    assert "is done; its result can't be read from the observer: " in line
    assert "Connection refused" in line
