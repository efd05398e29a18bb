"""`penstock status`: how a broker is, in a few lines (docs/reference/command-line.md)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from penstock_cli.broker_options import BrokerAccess, on_broker
from penstock_cli.output import with_output

if TYPE_CHECKING:
    from penstock_amqp.client.management import ManagementClient
    from penstock_cli.status_report import BrokerReport

__all__ = ["status"]


@click.command(short_help="Say how a broker is, and what needs attention.")
@click.option("--check", is_flag=True, help="Exit with code 1 if something needs attention.")
@with_output
@on_broker
def status(site: BrokerAccess, *, check: bool, as_json: bool) -> int:
    """Say how a broker is: its log, volume and memory, how much it holds, and what needs attention.

    Messages that wait and that nobody consumes need attention, in a subscription and in a queue. So a queue of dead
    letters does as long as there are some.

    \b
    Example, with the socket that `penstock up` prints:
      penstock status --broker unix:/tmp/penstock-1f2e/management.sock
    """
    from penstock_cli.broker_client import ask
    from penstock_cli.status_report import report_lines

    report = ask(site, _report)
    click.echo(
        json.dumps(report.to_document(), ensure_ascii=False) if as_json else "\n".join(report_lines(report)), nl=True
    )
    return 1 if check and report.concerns() else 0


async def _report(client: ManagementClient) -> BrokerReport:
    from penstock_api.management import LISTED_BY, EntityType
    from penstock_api.state_documents import BrokerState
    from penstock_cli.progress import in_terminal
    from penstock_cli.status_report import FIGURES, BrokerReport, QueueFigures

    async def figures(kind: EntityType, doing: str) -> list[QueueFigures]:
        key = LISTED_BY[kind]
        rows = await client.query_all(kind, attributes=(key, *FIGURES), told=in_terminal(doing))
        return [QueueFigures.of_row(row, key) for row in rows]

    broker = await client.read_state(BrokerState)
    subscriptions = await figures(EntityType.SUBSCRIPTION, "reading the subscriptions")
    return BrokerReport(broker, subscriptions, await figures(EntityType.QUEUE, "reading the queues"))
