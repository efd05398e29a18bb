"""What a broker process writes to its log for those who read it at night: who did what, logins, JSON, debug.

The lines are those that docs/reference/log-lines.md lists.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from proton import ConnectionException
from support.broker_process import BrokerProcess
from support.proton_client import connected, publish, take

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import Deletion, EntityType, ExchangeDeclaration, Operation
from penstock_api.message_operations import MessageSelection


def lines(broker: BrokerProcess, beginning: str) -> list[str]:
    """The messages of the log that begin so, without time, severity and logger."""
    found = re.findall(r"^\S+ ([A-Z]+) (.*) \[[a-z_.]+\]$", broker.log(), flags=re.M)
    return [f"{level} {text}" for level, text in found if text.startswith(beginning)]


async def test_each_act_is_told_with_who_and_how_many(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as client:
        publish(client.create_sender("jobs"), [f"m{number}" for number in range(6)])
        publish(client.create_sender("other"), ["x", "y"])
    management = await ManagementClient.connect(broker_process.management)
    jobs = EntityType.QUEUE, "jobs"
    await management.request(Operation.MOVE, *jobs, MessageSelection(count=2, destination="other"))
    await management.request(Operation.REDRIVE, *jobs, MessageSelection(count=1))
    await management.request(Operation.PURGE, *jobs, MessageSelection())
    await management.request(Operation.DELETE, EntityType.QUEUE, "other", Deletion())
    await management.request(Operation.DELETE, EntityType.QUEUE, "other", Deletion())  # it is gone already
    await management.create(ExchangeDeclaration(exchange_type="Topic"), "news")
    await management.request(Operation.DELETE, EntityType.EXCHANGE, "news", Deletion())
    await management.close()
    who = re.match(r"INFO (User '[^']*' \(unix, listener management\)): ", lines(broker_process, "User ")[-1])
    assert who is not None
    acts = [line.removeprefix(f"INFO {who[1]}: ") for line in lines(broker_process, f"{who[1]}: ")]
    assert acts[0] == "MOVE of 2 messages of the queue 'jobs' to 'other'"
    assert acts[1].startswith("REDRIVE of 0 messages of the queue 'jobs'; 1 had to stay, the last because: ")
    assert acts[2:] == [
        "PURGE of 4 messages of the queue 'jobs'",
        "DELETE of the queue 'other' with 4 messages",
        "DELETE of the exchange 'news'",
    ]


def test_logins_and_refused_logins_are_told(tmp_path: Path) -> None:
    settings: dict[str, object] = {"authentication": {"users": {"ann": "right"}}, "autoCreate": True}
    with BrokerProcess(tmp_path / "data", dev=False, settings=settings) as broker:
        with connected(broker.url, user="ann", password="right", allow_insecure_mechs=True):
            pass
        wrong = connected(broker.url, user="ann", password="wrong", allow_insecure_mechs=True)
        with pytest.raises(ConnectionException), wrong:
            pass
        (came,) = lines(broker, "User 'ann' has logged in")
        assert re.fullmatch(r"INFO User 'ann' has logged in from 127\.0\.0\.1:\d+ on listener amqp \(PLAIN\)", came)
        assert len(lines(broker, "Refused 127.0.0.1:")) == 1
        assert "right" not in broker.log()
        assert "wrong'" not in broker.log()


def test_each_line_is_an_object_and_debug_tells_of_links_routes_and_blocks(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    said = tmp_path / "log"
    options = ["--data", tmp_path / "data", "--dev", "--listen", "127.0.0.1:0", "--ready-file", ready]
    command = [sys.executable, "-m", "penstock_cli", "broker", *map(str, options)]
    with said.open("w") as log:
        broker = subprocess.Popen([*command, "--log-level", "debug", "--log-format", "json"], stderr=log)
    try:
        while not ready.exists():
            assert broker.poll() is None, said.read_text()
            time.sleep(0.02)  # a condition of another process: there is nothing to wait on but the file
        with connected(f"amqp://{json.loads(ready.read_text())['amqp']}") as client:
            receiver = client.create_receiver("amq.topic/a", name="r")
            publish(client.create_sender("amq.topic"), ["x"], subject="a")
            take(receiver, 1)
            publish(client.create_sender("jobs"), ["kept"])
    finally:
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(60) == 0
    objects = [json.loads(line) for line in said.read_text().splitlines()]
    assert all(list(each) == ["time", "level", "logger", "message"] for each in objects)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", each["time"]) for each in objects)
    debug = [each["message"] for each in objects if each["level"] == "DEBUG"]
    for beginning in ("Attach of link 'r', which consumes", "A new route of exchange 'amq.topic': 1 queues", "Block "):
        assert [text for text in debug if text.startswith(beginning)], beginning
    assert [text for text in debug if text.startswith(("Detach of link", "Connection 1 of"))]
