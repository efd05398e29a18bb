"""`penstock up` declares on a real broker: new, there already, refused, in no manifest any more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess

from penstock_cli.up import declarations
from penstock_cli.up.manifest_folder import read
from penstock_cli.up.topology import DeclaredEntity, declared

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "local"
SECONDS = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """An empty broker."""
    with BrokerProcess(tmp_path / "data") as process:
        yield process


@pytest.fixture
def topology() -> tuple[DeclaredEntity, ...]:
    """What examples/local declares: one exchange, three subscriptions."""
    return declared(read(EXAMPLES))


async def declare(broker: BrokerProcess, topology: tuple[DeclaredEntity, ...], prune: bool = False) -> list[str]:
    """The lines that declaring leads to."""
    socket = Path(broker.management.removeprefix("unix:"))
    return [str(line) for line in await declarations.declare(socket, topology, SECONDS, prune=prune)]


async def test_the_first_time_creates_and_the_second_changes_nothing(
    broker: BrokerProcess, topology: tuple[DeclaredEntity, ...]
) -> None:
    names = ["Exchange default/orders", "Subscription default/billing"]
    names += ["Subscription default/shipping-eu", "Subscription default/fraud"]
    assert await declare(broker, topology) == [f"{name}: Created" for name in names]
    assert await declare(broker, topology) == [f"{name}: Unchanged" for name in names]


async def test_a_refusal_is_told_and_the_others_are_declared(
    broker: BrokerProcess, topology: tuple[DeclaredEntity, ...]
) -> None:
    without_exchange = topology[1:]
    lines = await declare(broker, without_exchange)
    assert all(": Refused: " in line and line.endswith("(ExchangeNotFound)") for line in lines), lines


async def test_what_no_manifest_has_any_more_stays_until_it_is_pruned(
    broker: BrokerProcess, topology: tuple[DeclaredEntity, ...]
) -> None:
    await declare(broker, topology)
    fewer = topology[:-1]
    orphan = "Subscription default/fraud is in no manifest any more: "
    assert (await declare(broker, fewer))[-1] == orphan + "it stays; `penstock up --prune` removes it"
    assert (await declare(broker, fewer, prune=True))[-1] == orphan + "removed"
    assert not any("fraud" in line for line in await declare(broker, fewer))


async def test_a_queue_is_declared_and_pruned_as_its_policy_says(broker: BrokerProcess, tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "broker.yaml").write_text((EXAMPLES / "broker.yaml").read_text())
    (folder / "queues.yaml").write_text(
        "\n---\n".join(
            f"apiVersion: penstock.dev/v1alpha1\nkind: Queue\nmetadata: {{name: {name}}}\n"
            f"spec: {{brokerRef: {{name: shop}}, deletionPolicy: {policy}}}"
            for name, policy in (("invoices", "Delete"), ("kept", "Retain"))
        )
    )
    queues = declared(read(folder))
    assert await declare(broker, queues) == ["Queue default/invoices: Created", "Queue default/kept: Created"]
    assert await declare(broker, queues) == ["Queue default/invoices: Unchanged", "Queue default/kept: Unchanged"]
    assert await declare(broker, (), prune=True) == [
        "Queue default/invoices is in no manifest any more: removed",
        "Queue default/kept is in no manifest any more: it stays, as its deletionPolicy says",
    ]
