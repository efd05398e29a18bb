"""`penstock lag audit start|stop`: an audit of one subscription begins or ends (docs/how-to/audit.md). The report is in
`audit_report`, because it needs Spark.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from penstock_cli.broker_options import BrokerAccess, on_broker
from penstock_cli.help_option import WITH_HELP
from penstock_cli.named import ADDRESS

if TYPE_CHECKING:
    from penstock_amqp.client.management import ManagementClient
    from penstock_api.management import ManagementDocument
    from penstock_api.message_audit import AuditState

__all__ = ["audit"]


@click.group("lag audit", context_settings=WITH_HELP)
def audit() -> None:
    """Write down every message of one subscription for a limited time, and prove where each one went.

    The proof: penstock lag audit report --help
    """


@audit.command("start", short_help="Begin an audit of a subscription.")
@click.argument("subscription", type=ADDRESS)
@click.option(
    "--seconds",
    metavar="SECONDS",
    type=click.IntRange(1, 3600),
    default=600,
    show_default=True,
    help="The audit ends by itself after so many seconds.",
)
@on_broker
def start(site: BrokerAccess, *, subscription: str, seconds: int) -> int:
    """Begin an audit of SUBSCRIPTION, the name of a subscription or of its queue."""
    from penstock_api.message_audit import AuditStart

    state = _asked(site, "START_AUDIT", subscription, AuditStart(seconds=seconds))
    click.echo(
        f"audit {state.audit} of {state.queue_name}: {state.begin.depth} messages are there; it ends at ", nl=False
    )
    click.echo(f"{datetime.fromtimestamp(state.until_ms / 1000, UTC):%H:%M:%S} UTC")
    return 0


@audit.command("stop", short_help="End an audit before its time.")
@click.argument("subscription", type=ADDRESS)
@on_broker
def stop(site: BrokerAccess, *, subscription: str) -> int:
    """End the audit of SUBSCRIPTION, the name of a subscription or of its queue."""
    state = _asked(site, "STOP_AUDIT", subscription, None)
    click.echo(f"audit {state.audit} of {state.queue_name}: {state.records} records, ended by {state.ended_by}")
    return 0


def _asked(site: BrokerAccess, operation: str, name: str, body: ManagementDocument | None) -> AuditState:
    from penstock_api.management import EntityType, Operation
    from penstock_api.message_audit import AuditState
    from penstock_cli.broker_client import ask, find

    async def question(client: ManagementClient) -> dict[str, object]:
        kind, found = await find(client, name, (EntityType.SUBSCRIPTION,))
        return (await client.request(Operation[operation], kind, found, body)).check().attributes

    return AuditState.read(ask(site, question))
