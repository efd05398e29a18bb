"""What the runbooks do to messages, done to a real broker: the commands as they are printed, but for the way to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from e2e.local_site import LocalSite
from support.kubectl_commands import parsed
from support.page_commands import shown
from support.proton_client import Subscribed, close, connected, publish
from support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
RUNBOOKS = ROOT / "docs" / "how-to" / "runbooks"
MANIFESTS = """
apiVersion: penstock.dev/v1alpha1
kind: Broker
metadata: {name: main}
spec: {authentication: {anonymous: true}}
---
apiVersion: penstock.dev/v1alpha1
kind: Exchange
metadata: {name: orders}
spec: {brokerRef: {name: main}, type: Topic}
---
apiVersion: penstock.dev/v1alpha1
kind: Subscription
metadata: {name: billing}
spec: {brokerRef: {name: main}, exchangeRef: {name: orders}, delivery: {deadLetter: billing-dead}}
"""


def printed(runbook: str, verb: str) -> list[str]:
    """Verb and arguments of `penstock` in a runbook, without the options that say where the broker of the pod is."""
    inner = next(
        found.inner
        for each in shown(RUNBOOKS / f"{runbook}.md")
        if each.command.startswith("kubectl ") and (found := parsed(each.command)).inner[:2] == ("penstock", verb)
    )
    return list(inner[1 : inner.index("--broker")])


def test_a_poison_message_is_looked_at_moved_away_and_put_back(tmp_path: Path) -> None:
    """Three messages; two are moved and published anew, one is rejected and redriven, and all are purged in the end."""
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "billing.yaml").write_text(MANIFESTS)
    with LocalSite(manifests, tmp_path / "data") as site:
        site.wait_until_serving()
        at = str(site.state()["management"])

        def penstock(*arguments: str) -> str:
            command = [sys.executable, "-m", "penstock_cli", *arguments, "--broker", at]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
            assert ran.returncode == 0, ran.stderr
            return ran.stdout + ran.stderr

        until(lambda: "billing" in penstock("subscriptions", "list"), "the subscription to be declared", 60)
        with connected(f"amqp://{site.state()['amqp']}") as connection:
            sender = connection.create_sender("orders")
            for name in ("4712", "ID:4711", "ID:4713"):
                publish(sender, ["an order"], id=name)
            looked = penstock(*printed("subscription-poison", "peek"))
            assert [name in looked for name in ("4712", "ID:4711", "ID:4713")] == [True, True, True]

            move = printed("subscription-poison", "move")
            assert "1 moved" in penstock(*move)
            assert "1 moved" in penstock(*move[:-1], "JMSMessageID = 'ID:AMQP_NO_PREFIX:4712'")
            assert "ID:4711" in penstock("peek", "billing-dead")
            assert "2 moved" in penstock("move", "billing-dead", "orders/eu.fr")

            receiver = connection.create_receiver("orders", name="billing", credit=1, options=Subscribed())
            receiver.receive(timeout=60)
            receiver.reject()
            close(receiver)
            redrive = printed("subscription-losing", "redrive")
            until(lambda: "1 shown" in penstock("peek", "billing-dead"), "the dead letter", 60)
            assert "1 redriven" in penstock(*redrive)

            assert "3 purged" in penstock(*printed("storage-refuses-work", "purge"))
