"""`penstock ping`, as a user types it, against a broker process."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from support.broker_process import BrokerProcess
from support.command_forks import penstock


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """It makes no queue by itself, and its one user may do nothing that needs a permission."""
    folder = tmp_path_factory.mktemp("broker")
    settings: dict[str, object] = {
        "authentication": {"users": {"ann": "secret"}, "scramIterations": 4096},
        "listeners": [{"name": "amqp", "address": "127.0.0.1:0", "saslMechanisms": ["SCRAM-SHA-256"]}],
        "permissions": [],
    }
    (folder / "password").write_text("secret\n")
    (folder / "wrong").write_text("wrong\n")
    with BrokerProcess(folder / "data", dev=False, listen=(), settings=settings) as broker:
        yield broker


def ping(url: str, broker: BrokerProcess, password: str, *more: str) -> subprocess.CompletedProcess[str]:
    login = ["--user", "ann", "--password-file", str(broker.data.parent / password)]
    return penstock("ping", "--broker", url, *login, *more)


def test_a_user_without_permissions_gets_its_message_back(broker: BrokerProcess) -> None:
    done = ping(broker.url, broker, "password")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"1 message sent and received in \d+ ms, login included\n", done.stdout)


def test_nothing_is_left_in_the_broker(broker: BrokerProcess) -> None:
    for _ in range(2):
        assert ping(broker.url, broker, "password").returncode == 0
    said = penstock("queues", "list", "--broker", broker.addresses["management"], "--output", "json")
    assert (said.returncode, said.stdout) == (0, ""), said.stderr


def test_a_wrong_password_is_told(broker: BrokerProcess) -> None:
    done = ping(broker.url, broker, "wrong")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the broker refused the login of ann" in done.stderr


def test_it_tries_again_for_as_long_as_it_is_told(broker: BrokerProcess) -> None:
    done = ping("127.0.0.1:1", broker, "password", "--wait", "1.5")
    assert done.returncode == 1
    assert done.stderr.count("nothing listens there. Trying again.") == 1
    assert "Check that it is running, and that --broker is a listener for clients." in done.stderr
