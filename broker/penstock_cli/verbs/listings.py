"""`penstock queues`, `exchanges`, `subscriptions` and `connections`: what a broker has
(docs/reference/management.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click

from penstock_cli.broker_options import BrokerAccess, on_broker
from penstock_cli.output import with_output

__all__ = ["connections", "exchanges", "queues", "subscriptions"]

LIST: Final = "list"
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
"""Columns of queues and subscriptions: attribute of the state, heading."""
EXCHANGE: Final = {
    "name": "EXCHANGE",
    "exchangeType": "TYPE",
    "boundSubscriptions": "SUBSCRIPTIONS",
    "received": "RECEIVED",
    "unroutableMessages": "UNROUTABLE",
    "unselectedMessages": "UNSELECTED",
    "owner": "MANAGED BY",
}
CONNECTION: Final = {
    "id": "CONNECTION",
    "containerId": "CONTAINER",
    "user": "USER",
    "peer": "PEER",
    "listener": "LISTENER",
    "links": "LINKS",
    "openedMs": "OPENED",
}


class Listing(click.Group):
    """A group that lists if no verb is named: `penstock queues` is `penstock queues list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments, with `list` before the first option."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [LIST, *args]
        return super().parse_args(ctx, args)


@click.group(cls=Listing, short_help="List the queues of a broker.")
def queues() -> None:
    """List the queues of a broker. `list` may be left out.

    \b
    Example:
      penstock queues --broker unix:/run/penstock/management.sock
    """


@click.group(cls=Listing, short_help="List the exchanges of a broker.")
def exchanges() -> None:
    """List the exchanges of a broker. `list` may be left out.

    \b
    Example:
      penstock exchanges --broker 127.0.0.1:5670 --ca-file ca.crt --user operator --password-file password
    """


@click.group(cls=Listing, short_help="List the subscriptions of a broker.")
def subscriptions() -> None:
    """List the subscriptions of a broker. `list` may be left out.

    \b
    Example, the names of those that nobody consumes from:
      penstock subscriptions -o json | jq -r 'select(.consumers == 0) | .subscriptionName'
    """


@click.group(cls=Listing, short_help="List the connections of a broker.")
def connections() -> None:
    """List the connections of a broker. `list` may be left out.

    \b
    Example:
      penstock connections --output json | jq -r .containerId | sort | uniq -c
    """


@queues.command(LIST)
@with_output
@on_broker
def list_queues(site: BrokerAccess, *, as_json: bool) -> int:
    """List the queues and how many messages wait in each."""
    return _list(site, "QUEUE", {"name": "QUEUE", **COUNTERS, "owner": "MANAGED BY"}, as_json, {"owner": _resource})


@exchanges.command(LIST)
@with_output
@on_broker
def list_exchanges(site: BrokerAccess, *, as_json: bool) -> int:
    """List the exchanges, how many messages each received, and how many of these no binding matched."""
    return _list(site, "EXCHANGE", EXCHANGE, as_json, {"owner": _resource})


@subscriptions.command(LIST)
@with_output
@on_broker
def list_subscriptions(site: BrokerAccess, *, as_json: bool) -> int:
    """List the subscriptions and how many messages wait in each."""
    return _list(site, "SUBSCRIPTION", {"queueName": "SUBSCRIPTION", "exchange": "EXCHANGE", **COUNTERS}, as_json)


@connections.command(LIST)
@with_output
@on_broker
def list_connections(site: BrokerAccess, *, as_json: bool) -> int:
    """List the connections: container-id, user, from where, and since when."""
    return _list(site, "CONNECTION", CONNECTION, as_json, {"openedMs": _time})


def _list(
    site: BrokerAccess,
    kind: str,
    columns: Mapping[str, str],
    as_json: bool,
    cells: Mapping[str, Callable[[object], object]] | None = None,
) -> int:
    """`cells`: how the values of a column are shown in the table, if not as they are."""
    from penstock_api.management import EntityType
    from penstock_cli.broker_client import ask
    from penstock_cli.progress import in_terminal
    from penstock_cli.tables import as_lines, as_table

    asked = () if as_json else tuple(columns)
    rows: Sequence[dict[str, object]] = ask(
        site, lambda client: client.query_all(EntityType[kind], attributes=asked, told=in_terminal("reading the list"))
    )
    if not as_json:
        shown = cells or {}
        rows = [{key: shown[key](value) if key in shown else value for key, value in row.items()} for row in rows]
    if rows or not as_json:
        click.echo(as_lines(rows) if as_json else as_table(columns, rows))
    return 0


def _resource(owner: object) -> object:
    """The resource that declared an entity, as `kubectl` names it; None if a client made it."""
    from penstock_api.management import Owner

    if owner is None:
        return None
    mark = Owner.read(owner)
    return f"{mark.kind} {mark.namespace}/{mark.name}"


def _time(milliseconds: object) -> object:
    from penstock_page.text import day_and_clock

    return day_and_clock(milliseconds) if isinstance(milliseconds, int) else None
