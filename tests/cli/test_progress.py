"""Progress of PURGE, MOVE and REDRIVE: what is told, when, and that it is asked beside the operation."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.proton_client import Subscribed, connected, publish

from penstock_amqp.client.errors import ManagementError, RequestRefused, TransportError
from penstock_amqp.errors import WireError
from penstock_cli.main import run
from penstock_cli.progress import Progress, ProgressLine, followed, in_terminal


@pytest.mark.parametrize(
    ("now", "count", "selects", "sentence"),
    [
        ({"moved": 7}, None, False, "0 of 40 moved (0 %)"),
        ({"moved": 17}, None, False, "10 of 40 moved (25 %)"),
        ({"moved": 17}, 20, False, "10 of 20 moved (50 %)"),
        ({"moved": 17}, 4000, False, "10 of 40 moved (25 %)"),
        ({"moved": 17}, 20, True, "10 moved"),
        ({}, None, False, "0 of 40 moved (0 %)"),
    ],
)
def test_what_is_told(now: dict[str, object], count: int | None, selects: bool, sentence: str) -> None:
    before: dict[str, object] = {"moved": 7, "ready": 30, "scheduled": 10, "inFlight": 5}
    assert Progress.between(before, now, "moved", count, selects=selects).sentence("moved") == sentence


async def test_progress_is_told_until_the_work_is_done() -> None:
    told: list[int] = []
    done = asyncio.Event()

    async def look() -> Progress:
        if len(told) == 2:
            done.set()
        return Progress(len(told), None)

    async def work() -> str:
        await done.wait()
        return "done"

    assert await followed(work(), look, lambda progress: told.append(progress.done), seconds=0.001) == "done"
    assert told[:3] == [0, 1, 2]


async def test_a_failure_of_the_work_is_its_own() -> None:
    async def work() -> str:
        raise ConnectionError("lost")

    async def look() -> Progress:
        return Progress(0, None)

    with pytest.raises(ConnectionError, match="lost"):
        await followed(work(), look, lambda _: None, seconds=10)


@pytest.mark.parametrize(
    "failure",
    [
        TimeoutError(),
        TransportError("the connection to the broker broke"),
        ManagementError(404, "no queue", condition=None, reason=None),
        RequestRefused("amqp:resource-limit-exceeded", "the broker is full"),
        WireError("not a frame"),
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_a_look_that_fails_does_not_end_the_work(failure: Exception) -> None:
    done = asyncio.Event()

    async def look() -> Progress:
        done.set()
        raise failure

    async def work() -> str:
        await done.wait()
        return "done"

    told: list[Progress] = []
    assert await followed(work(), look, told.append, seconds=0.001) == "done"
    assert told == []


def test_a_purge_tells_what_it_has_done(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with connected(broker.url) as connection:
            publish(connection.create_sender("many"), [str(n) for n in range(30)])
        command = [sys.executable, "-m", "penstock_cli", "purge", "many", "--yes", "--broker", broker.management]
        quiet = subprocess.run([*command, "--count", "10"], capture_output=True, text=True, timeout=300)
        assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "10 purged\n", "")
        told = subprocess.run([*command, "--progress"], capture_output=True, text=True, timeout=300)
        assert (told.returncode, told.stdout) == (0, "20 purged\n")
        assert told.stderr.splitlines()[-1] == "20 of 20 purged (100 %)"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_is_asked_beside_nothing_is_told_in_a_terminal_alone(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    assert isinstance(in_terminal("judging"), ProgressLine) is is_terminal


COMMANDS = {
    "send": ("send many one two", "sending: 100 %"),
    "subscriptions": ("subscriptions", "reading the list: 100 %"),
    "status": ("status", "reading the subscriptions: 100 %"),
    "export": ("export", "reading the exchanges: 100 %"),
}


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize(("command", "told"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_that_may_last_tells_how_far_it_is_in_a_terminal_alone(
    command: str,
    told: str,
    is_terminal: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    monkeypatch.setattr(ProgressLine, "EVERY_SECONDS", 0.0)
    with BrokerProcess(tmp_path / "data") as broker:
        site = broker.url if command.startswith("send") else broker.management
        with connected(broker.url) as connection:
            connection.create_receiver("orders", name="billing", credit=0, options=Subscribed())
        assert run([*command.split(), "--broker", site]) == 0
    assert (told in capsys.readouterr().err.splitlines()) is is_terminal


def test_of_what_has_no_known_end_the_number_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.9, 2.0, 3.9, 4.0])
    line = ProgressLine("sending", lambda: next(times))
    for sent in (10, 2_000, 3_000, 4_000):
        line(sent, None)
    assert capsys.readouterr().err == "sending: 2,000\nsending: 4,000\n"
