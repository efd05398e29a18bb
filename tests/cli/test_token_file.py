"""`penstock receive` with the token of a ServiceAccount, over TLS, at a broker where only a declaration lets it in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.certificates import Authority
from support.command_forks import penstock
from support.token_signer import AUDIENCE, ISSUER, Signer

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import ExchangeDeclaration, Owner, SubscriptionDeclaration

SIGNER = Signer()
BILLING = "system:serviceaccount:shop:billing"


def token(subject: str) -> str:
    now = int(time.time())
    return SIGNER.token(sub=subject, iat=now, nbf=now, exp=now + 600).decode()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("bound")
    authority = Authority(folder)
    issued = authority.issue("localhost")
    authority.ca.rename(folder / "ca.crt")
    (folder / "jwks.json").write_bytes(SIGNER.jwks())
    for name, content in (
        ("billing", token(BILLING)),
        ("evil", token("system:serviceaccount:evil:app")),
        ("empty", ""),
    ):
        (folder / name).write_text(content)
    tls = {"certificate": str(issued.certificate), "key": str(issued.key)}
    issuer = {"issuer": ISSUER, "audiences": [AUDIENCE], "keysFile": str(folder / "jwks.json")}
    settings: dict[str, object] = {
        "authentication": {"tokens": [issuer]},
        "listeners": [{"name": "amqps", "address": "localhost:0", "tls": tls}],
        "permissions": [],
    }
    with BrokerProcess(folder / "data", dev=False, listen=(), settings=settings) as process:
        yield process


def at(broker: BrokerProcess, name: str, scheme: str = "amqps", *, ca: bool = True) -> list[str]:
    folder, port = broker.data.parent, broker.addresses["amqps"].rpartition(":")[2]
    trusted = ["--ca-file", str(folder / "ca.crt")] if ca else []
    return ["--broker", f"{scheme}://localhost:{port}", "--token-file", str(folder / name), *trusted]


def owner(kind: str, name: str) -> Owner:
    return Owner.model_validate({"clusterId": "c", "kind": kind, "namespace": "shop", "name": name, "uid": name})


async def test_a_token_lets_in_whom_the_declaration_names(broker: BrokerProcess) -> None:
    client = await ManagementClient.connect(broker.management)
    orders = ExchangeDeclaration(exchange_type="Topic", publishers=(BILLING,), owner=owner("Exchange", "orders"))
    await client.create(orders, "orders")
    await client.create(
        SubscriptionDeclaration(
            subscription_name="billing",
            exchange="orders",
            consumers=("system:serviceaccount:shop:*",),
            owner=owner("Subscription", "billing"),
        )
    )
    await client.close()
    sent = penstock("send", "orders", "one", *at(broker, "billing"))
    assert (sent.returncode, sent.stdout) == (0, "1 sent\n"), sent.stderr
    receive = ("receive", "orders", "--subscription", "billing", "--count", "1")
    got = penstock(*receive, *at(broker, "billing"))
    assert (got.returncode, got.stdout) == (0, "one\n"), got.stderr
    refused = penstock(*receive, *at(broker, "evil"))
    assert refused.returncode == 1
    assert "may not consume on subscription 'billing'" in refused.stderr


def test_a_ping_logs_in_by_the_token_both_times(broker: BrokerProcess) -> None:
    """It receives on one connection and sends on another, at a broker that lets nobody in without a name."""
    said = penstock("ping", *at(broker, "evil"))
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith("1 message sent and received in ")


@pytest.mark.parametrize(
    ("scheme", "ca", "name", "further", "complaint"),
    [
        ("amqp", False, "billing", [], "a token is not sent without TLS"),
        ("amqps", True, "billing", ["--user", "ann"], "there are two ways to log in"),
        ("amqps", True, "billing", ["--password-file", __file__], "there are two ways to log in"),
        ("amqps", True, "empty", [], "is empty: there is no token"),
    ],
)
def test_a_token_that_can_not_be_used_is_told(
    broker: BrokerProcess, scheme: str, ca: bool, name: str, further: list[str], complaint: str
) -> None:
    said = penstock("receive", "orders", *at(broker, name, scheme, ca=ca), *further)
    assert (said.returncode, complaint in said.stderr) == (2, True), said.stderr


def test_a_token_that_the_broker_does_not_take_is_told(broker: BrokerProcess) -> None:
    path: Path = broker.data.parent / "wrong"
    path.write_text("no.token.atall")
    said = penstock("receive", "orders", *at(broker, "wrong"))
    assert said.returncode == 1
    assert f"the broker refused the login of the token in {path}" in said.stderr
    assert "Check that the token is not older than it may be" in said.stderr
