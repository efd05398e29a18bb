"""`penstock queues list` and `penstock subscriptions list` (docs/reference/management.md)."""

from __future__ import annotations

from typing import Final

import click

from penstock_cli.broker_options import BrokerAccess, on_broker

__all__ = ["queues", "subscriptions"]

COUNTERS: Final = {
    "depth": "DEPTH",
    "ready": "READY",
    "inFlight": "IN FLIGHT",
    "scheduled": "SCHEDULED",
    "consumers": "CONSUMERS",
    "deadLettered": "DEAD LETTERS",
    "expired": "EXPIRED",
    "dropped": "DROPPED",
}
"""Columns of both tables: attribute of the state, heading."""


@click.group()
def queues() -> None:
    """List the queues of a broker."""


@click.group()
def subscriptions() -> None:
    """List the subscriptions of a broker."""


@queues.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print all attributes, one JSON object per line.")
@on_broker
def list_queues(site: BrokerAccess, *, as_json: bool) -> int:
    """List the queues and how many messages wait in each."""
    return _list(site, "QUEUE", {"name": "QUEUE"}, as_json)


@subscriptions.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print all attributes, one JSON object per line.")
@on_broker
def list_subscriptions(site: BrokerAccess, *, as_json: bool) -> int:
    """List the subscriptions and how many messages wait in each."""
    return _list(site, "SUBSCRIPTION", {"queueName": "SUBSCRIPTION", "exchange": "EXCHANGE"}, as_json)


def _list(site: BrokerAccess, kind: str, names: dict[str, str], as_json: bool) -> int:
    from penstock_api.management import EntityType
    from penstock_cli.broker_client import ask
    from penstock_cli.tables import as_lines, as_table

    columns = {**names, **COUNTERS}
    asked = () if as_json else tuple(columns)
    rows = ask(site, lambda client: client.query_all(EntityType[kind], attributes=asked))
    click.echo(as_lines(rows) if as_json else as_table(columns, rows))
    return 0
