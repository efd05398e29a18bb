"""`penstock up --watch`: what counts as a change, and that a real broker gets it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from e2e.local_site import LocalSite
from support.waiting import until

from penstock_cli.up.manifest_watch import FolderState, changes, folder_state

BROKER = """
apiVersion: penstock.dev/v1alpha1
kind: Broker
metadata: {name: main}
spec: {authentication: {anonymous: true}}
---
apiVersion: penstock.dev/v1alpha1
kind: Exchange
metadata: {name: orders}
spec: {brokerRef: {name: main}}
"""
BILLING = """
apiVersion: penstock.dev/v1alpha1
kind: Subscription
metadata: {name: billing}
spec: {brokerRef: {name: main}, exchangeRef: {name: orders}, bindingKeys: [KEY]}
"""


def named(*names: str) -> FolderState:
    return frozenset((Path(name), 1, 1) for name in names)


async def test_a_change_counts_once_it_has_settled() -> None:
    """The looks in order: a file is written in three steps, nothing happens, and it is deleted."""
    stop = asyncio.Event()
    looks = [named("a"), named("a", "b"), named("a", "b", "c"), named("a", "b", "c"), named("a", "b", "c")]
    looks += [named("a"), named("a"), named("a")]

    def look() -> FolderState:
        found = looks.pop(0)
        if not looks:
            stop.set()
        return found

    found = [seen async for seen in changes(look, named("a"), stop, seconds=0.001)]
    assert found == [named("a", "b", "c"), named("a")]


def test_other_files_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.yaml").write_text("a")
    before = folder_state(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    assert folder_state(tmp_path) == before
    (tmp_path / "deep" / "a.yaml").write_text("ab")
    assert folder_state(tmp_path) != before


def test_a_change_reaches_the_broker_and_a_mistake_does_not(tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "broker.yaml").write_text(BROKER)
    (folder / "billing.yaml").write_text(BILLING.replace("KEY", "eu"))
    with LocalSite(folder, tmp_path / "data", "--watch", "--prune") as site:
        site.wait_until_serving()

        def keys() -> list[object]:
            at = str(site.state()["management"])
            command = [sys.executable, "-m", "penstock_cli", "subscriptions", "--json", "--broker", at]
            lines = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
            return [json.loads(line)["bindingKeys"] for line in lines]

        def said(words: str) -> bool:
            return words in (tmp_path / "up.log").read_text()

        assert keys() == [["eu"]]
        (folder / "billing.yaml").write_text(BILLING.replace("KEY", "uk.#"))
        until(lambda: keys() == [["uk.#"]], "the change to be declared", 60)
        (folder / "billing.yaml").write_text("kind: Subscription\napiVersion: penstock.dev/v1alpha1\n")
        until(lambda: said("The broker keeps what it has."), "the mistake to be told", 60)
        assert keys() == [["uk.#"]]
        (folder / "billing.yaml").write_text(BILLING.replace("KEY", "uk.#"))
        (folder / "broker.yaml").write_text(BROKER.replace("name: main}}", "name: main}, type: Fanout}"))
        until(lambda: said("are declared, but 1 of them was refused"), "the refusal to be counted", 60)
        assert said("Exchange default/orders: Refused: ")
        (folder / "billing.yaml").unlink()
        (folder / "broker.yaml").write_text(BROKER.replace("anonymous: true}", "anonymous: true}, maxMessageSize: 2Mi"))
        until(lambda: said("Broker default/main has changed: end this command"), "the Broker's change to be told", 60)
        until(lambda: keys() == [], "the subscription to be removed", 60)
