"""`penstock peek`, `purge`, `move` and `redrive`: the messages of one queue or subscription
(docs/reference/management.md).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import click

from penstock_api.failure import Failure
from penstock_cli.broker_options import BrokerAccess, on_broker
from penstock_cli.named import ADDRESS
from penstock_cli.output import with_output
from penstock_cli.progress import with_progress

if TYPE_CHECKING:
    from penstock_amqp.client.management import ManagementClient
    from penstock_api.management import ManagementDocument
    from penstock_api.message_operations import HandledMessages, MessageSelection

__all__ = ["move", "peek", "purge", "redrive"]

COUNT = click.IntRange(min=1)
LONGEST_SECONDS: Final = 24 * 3600.0
"""An operation lasts as long as it has to; a broker that is lost ends it at once."""
COLUMNS: Final = {
    "number": "NUMBER",
    "state": "STATE",
    "sizeBytes": "BYTES",
    "deliveryCount": "DELIVERIES",
    "messageId": "MESSAGE ID",
    "subject": "SUBJECT",
    "body": "BODY",
}


def selecting(verb: Callable[..., int]) -> Callable[..., int]:
    """Add the options that choose messages."""
    verb = click.option("--selector", help="Only messages that match this JMS selector.")(verb)
    return click.option(
        "--count",
        metavar="NUMBER",
        type=COUNT,
        help="Largest number of messages, oldest first. Default: all that wait now.",
    )(verb)


@click.command(short_help="Show messages that wait in a queue or subscription.")
@click.argument("address", type=ADDRESS)
@click.option(
    "--offset",
    metavar="NUMBER",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of messages to skip before the first one shown.",
)
@click.option(
    "--count",
    metavar="NUMBER",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    help="Largest number of messages to show.",
)
@click.option("--selector", help="Only messages that match this JMS selector.")
@click.option(
    "--body-bytes",
    metavar="BYTES",
    type=click.IntRange(0, 65_536),
    default=1024,
    show_default=True,
    help="Largest number of bytes to show of each message body.",
)
@with_output
@on_broker
def peek(
    site: BrokerAccess, *, address: str, offset: int, count: int, selector: str | None, body_bytes: int, as_json: bool
) -> int:
    """Show messages that wait in ADDRESS, the name of a queue or subscription. The messages stay where they are.

    \b
    Example:
      penstock peek billing --selector "JMSPriority > 4" --count 3
    """
    from penstock_api.message_operations import PeekRequest
    from penstock_cli.request_bodies import request_body
    from penstock_cli.tables import as_lines, as_table

    document = {"offset": offset, "count": count, "selector": selector, "maxBodyBytes": body_bytes}
    wanted = request_body(PeekRequest, document)
    answer = _asked(site, "PEEK", address, wanted)
    messages = cast(list[dict[str, object]], answer["messages"])
    click.echo(as_lines(messages) if as_json else as_table(COLUMNS, messages))
    if not as_json:
        click.echo(f"{len(messages)} shown of {answer['depth']} messages, those in flight included", err=True)
    return 0


@click.command(short_help="Delete messages that wait in a queue or subscription.")
@click.argument("address", type=ADDRESS)
@selecting
@click.option("--yes", is_flag=True, help="Delete without asking for confirmation.")
@with_progress
@on_broker
def purge(
    site: BrokerAccess, *, address: str, count: int | None, selector: str | None, yes: bool, progress: bool | None
) -> int:
    """Delete messages that wait in ADDRESS, the name of a queue or subscription. They can't be brought back.

    \b
    Example:
      penstock purge billing --selector "region = 'test'"
    """
    from penstock_api.message_operations import MessageSelection

    if not yes:
        _be_sure(site, address)
    wanted = _Handling("PURGE", "purged", "purged", MessageSelection(count=count, selector=selector))
    return _handled(site, address, wanted, progress)


@click.command(short_help="Move waiting messages to another queue or exchange.")
@click.argument("address", type=ADDRESS)
@click.argument("destination", type=ADDRESS)
@selecting
@with_progress
@on_broker
def move(
    site: BrokerAccess,
    *,
    address: str,
    destination: str,
    count: int | None,
    selector: str | None,
    progress: bool | None,
) -> int:
    """Move messages that wait in ADDRESS, a queue or subscription, to DESTINATION, a queue or EXCHANGE/KEY.

    \b
    Example:
      penstock move billing parked --count 100
    """
    from penstock_api.message_operations import MessageSelection
    from penstock_cli.request_bodies import request_body

    document = {"count": count, "selector": selector, "destination": destination}
    selection = request_body(MessageSelection, document)
    return _handled(site, address, _Handling("MOVE", "moved", "moved", selection), progress)


@click.command(short_help="Move dead letters back to the queues from which they came.")
@click.argument("address", type=ADDRESS)
@selecting
@with_progress
@on_broker
def redrive(site: BrokerAccess, *, address: str, count: int | None, selector: str | None, progress: bool | None) -> int:
    """Move dead letters that wait in ADDRESS back to the queues or subscriptions from which they came.

    \b
    Example:
      penstock redrive billing-dead
    """
    from penstock_api.message_operations import MessageSelection

    wanted = _Handling("REDRIVE", "redriven", "moved", MessageSelection(count=count, selector=selector))
    return _handled(site, address, wanted, progress)


def _be_sure(site: BrokerAccess, address: str) -> None:
    """Ask the person, unless there is nothing to ask about: no such address, or no broker that answers."""
    from penstock_cli.broker_client import ask, find

    ask(site, lambda client: find(client, address))
    try:
        if sys.stdin is None:  # closed, as by <&-
            raise click.Abort
        click.confirm(f"Drop messages of {address!r} for good?", abort=True, err=True)
    except click.Abort:
        click.echo(err=True)
        raise Failure("nothing was dropped.", "Give --yes where nobody can confirm.") from None


@dataclass(frozen=True, slots=True)
class _Handling:
    """One operation on messages."""

    operation: str
    """Name of an `Operation`."""
    verb: str
    """What happens to a message, for people."""
    total: str
    """The total of the queue that the operation raises."""
    selection: MessageSelection


def _handled(site: BrokerAccess, address: str, wanted: _Handling, progress: bool | None) -> int:
    """Send the request and print what it did; exit code 1 if some messages could not be handled."""
    from penstock_api.management import Operation
    from penstock_api.message_operations import HandledMessages
    from penstock_cli.broker_client import ask_beside, find
    from penstock_cli.progress import Progress, followed, shown_on_terminal, try_to_show
    from penstock_cli.terminal import can_erase

    shows = sys.stderr.isatty() if progress is None else progress
    show = shown_on_terminal(wanted.verb)
    selection = wanted.selection

    async def question(client: ManagementClient, beside: ManagementClient) -> HandledMessages:
        kind, name = await find(client, address)
        before = await beside.read(kind, name)

        async def look() -> Progress:
            now = await beside.read(kind, name)
            return Progress.between(before, now, wanted.total, selection.count, selects=selection.selector is not None)

        async def work() -> HandledMessages:
            answer = await client.request(
                Operation[wanted.operation], kind, name, selection, timeout_seconds=LONGEST_SECONDS
            )
            return HandledMessages.read(answer.check().attributes)

        if not shows:
            return await work()
        handled = await followed(work(), look, show)
        await try_to_show(look, show)
        return handled

    handled = ask_beside(site, question)
    if shows and can_erase(sys.stderr):
        click.echo(err=True)  # below the line that was drawn over and over
    click.echo(f"{handled.messages} {wanted.verb}")
    if handled.left:
        click.echo(f"penstock: {handled.left} could not be moved and stay in the queue: {handled.why}", err=True)
    return 1 if handled.left else 0


def _asked(site: BrokerAccess, operation: str, address: str, body: ManagementDocument) -> dict[str, object]:
    from penstock_api.management import Operation
    from penstock_cli.broker_client import ask, find

    async def question(client: ManagementClient) -> dict[str, object]:
        kind, name = await find(client, address)
        return (await client.request(Operation[operation], kind, name, body)).check().attributes

    return ask(site, question)
