"""Where `penstock ping`, `send` and `receive` connect, and what they need to log in."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from support.command_forks import penstock

from penstock_api.failure import Misuse
from penstock_cli.broker_options import BrokerAccess
from penstock_cli.message_access import access_of, client_address


@pytest.mark.parametrize(
    ("text", "trusts_a_file", "host", "port", "has_tls"),
    [
        ("amqp://localhost", False, "localhost", 5672, False),
        ("localhost", False, "localhost", 5672, False),
        ("amqps://main-amqp.shop.svc/", False, "main-amqp.shop.svc", 5671, True),
        ("amqps://main-amqp.shop.svc", True, "main-amqp.shop.svc", 5671, True),
        # --ca-file connects with TLS, so 5672 can't be meant; the default of --broker is amqp://localhost.
        ("main-amqp.shop.svc", True, "main-amqp.shop.svc", 5671, True),
        ("amqp://localhost", True, "localhost", 5671, True),
        ("amqp://localhost:5700", True, "localhost", 5700, True),
        ("[::1]", False, "::1", 5672, False),
        ("[::1]:5700", False, "::1", 5700, False),
    ],
)
def test_the_port_that_is_left_out_is_the_one_of_the_protocol(
    text: str, trusts_a_file: bool, host: str, port: int, has_tls: bool
) -> None:
    found = client_address(text, ssl.create_default_context() if trusts_a_file else None)
    assert (found.host, found.port, found.tls is not None) == (host, port, has_tls)


@pytest.mark.parametrize("text", ["ws://h:1", "a..b:5672", f"{'a' * 64}.example:5672", "h:5672/q", "", ":5672"])
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(Misuse, match="is not an address of a broker"):
        client_address(text, None)


def test_a_password_without_a_user_is_told_and_not_left_out(tmp_path: Path) -> None:
    """The login would be without a name, and where that is allowed nobody would notice."""
    password = tmp_path / "password"
    password.write_text("secret")
    with pytest.raises(Misuse) as told:
        access_of(BrokerAccess("localhost", None, password, None))
    assert str(told.value) == f"there is a password in {password}, and nobody to log in with it.\nSay who with --user."


def test_an_empty_user_is_told(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="--user is empty"):
        access_of(BrokerAccess("localhost", "", tmp_path, None))


@pytest.mark.parametrize("verb", [["status"], ["ping"], ["send", "q", "x"]])
def test_a_host_that_no_name_can_be_is_wrong_usage(verb: list[str]) -> None:
    said = penstock(*verb, "--broker", "склад..example:5672")
    assert (said.returncode, "Traceback" in said.stderr) == (2, False), said.stderr
    assert "'склад..example:5672'" in said.stderr
