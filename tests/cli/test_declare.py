"""`penstock declare`, as a user types it, against a broker process; and the scripts of `penstock completion`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import command_forks
from support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


def penstock(broker: BrokerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command_forks.penstock(*arguments, "--broker", broker.management)


def listed(broker: BrokerProcess, kind: str, key: str, name: str) -> dict[str, object]:
    lines = penstock(broker, kind, "-o", "json").stdout.splitlines()
    (found,) = [each for each in map(json.loads, lines) if each[key] == name]
    return dict(found)


def test_what_is_declared_is_there_and_the_second_time_nothing_changes(broker: BrokerProcess) -> None:
    made = penstock(broker, "declare", "exchange", "orders", "--type", "Direct")
    assert (made.returncode, made.stdout) == (0, "Exchange orders: Created\n"), made.stderr
    assert penstock(broker, "declare", "exchange", "orders", "--type", "Direct").stdout.endswith(": Unchanged\n")
    assert listed(broker, "exchanges", "name", "orders")["exchangeType"] == "Direct"
    keys = ("--binding-key", "uk", "--binding-key", "eu", "--dead-letter", "dead", "--max-deliveries", "3")
    made = penstock(broker, "declare", "subscription", "billing", "--exchange", "orders", *keys, "--max-bytes", "16Mi")
    assert (made.returncode, made.stdout) == (0, "Subscription billing: Created\n"), made.stderr
    found = listed(broker, "subscriptions", "subscriptionName", "billing")
    assert (found["bindingKeys"], found["deadLetter"], found["sharing"]) == (["eu", "uk"], "dead", "Shared")
    assert "owner" not in found or found["owner"] is None
    own = penstock(broker, "declare", "subscription", "own", "--exchange", "orders", "--client-id", "c1", "--exclusive")
    assert own.returncode == 0, own.stderr
    found = listed(broker, "subscriptions", "subscriptionName", "own")
    assert (found["scope"], found["clientId"], found["sharing"]) == ("Container", "c1", "Exclusive")
    assert penstock(broker, "declare", "queue", "invoices", "--max-bytes", "1Mi").stdout == "Queue invoices: Created\n"


def test_an_exchange_can_refuse_what_no_binding_matches(broker: BrokerProcess) -> None:
    made = penstock(broker, "declare", "exchange", "bridge", "--type", "Fanout", "--unroutable", "Reject")
    assert (made.returncode, made.stdout) == (0, "Exchange bridge: Created\n"), made.stderr
    found = listed(broker, "exchanges", "name", "bridge")
    assert (found["exchangeType"], found["unroutable"]) == ("Fanout", "Reject")


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["subscription", "x", "--exchange", "nowhere"], 1, "Reason: ExchangeNotFound"),
        (["subscription", "x"], 2, "Missing option '--exchange'"),
        (["queue", "x", "--max-bytes", "lots"], 2, "'lots' is not a size; write bytes, or a number with a unit"),
        (["queue", "x", "--max-bytes", "0"], 2, "limits.maxBytes: must be at least 1\nNothing was asked"),
        (["queue", "x", "--dead-letter", "d", "--max-deliveries", "2000000"], 2, "must be at most 1000000"),
        (["queue", "x", "--dead-letter", ""], 2, "delivery.deadLetter: must not be empty"),
        (["subscription", "x" * 300, "--exchange", "amq.topic"], 2, "subscriptionName: must have at most 255"),
        (["queue", "x", "--max-deliveries", "3"], 2, "--max-deliveries needs --dead-letter."),
    ],
)
def test_what_can_not_be_declared_is_told(
    broker: BrokerProcess, arguments: list[str], code: int, complaint: str
) -> None:
    said = penstock(broker, "declare", *arguments)
    assert (said.returncode, complaint in said.stderr) == (code, True), said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_verbs_and_options(tmp_path: Path) -> None:
    """The script that the command prints, in a real bash, for a line that is typed in part."""
    folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    script = """
        source <(penstock completion bash)
        COMP_WORDS=($1); COMP_CWORD=$2; _penstock_completion penstock; echo "${COMPREPLY[@]}"
    """

    def completed(line: str, at: int) -> list[str]:
        command = ["bash", "-c", script, "bash", line, str(at)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=True)
        assert ran.stderr == ""
        return ran.stdout.split()

    assert completed("penstock sta", 1) == ["status"]
    assert completed("penstock declare sub", 2) == ["subscription"]
    assert completed("penstock status --output j", 3) == ["json"]


@pytest.mark.parametrize(("shell", "word"), [("zsh", "#compdef penstock"), ("fish", "complete --no-files")])
def test_other_shells_have_a_script_too(shell: str, word: str) -> None:
    assert word in command_forks.penstock("completion", shell).stdout
