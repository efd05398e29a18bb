"""`penstock send` and `penstock receive`: a client for a look and for scripts (docs/reference/command-line.md)."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click

from penstock_api.failure import Failure, Misuse
from penstock_cli.broker_options import BrokerAccess, on_clients
from penstock_cli.named import ADDRESS
from penstock_cli.output import with_output
from penstock_cli.slow_streams import next_line, printed

if TYPE_CHECKING:
    from penstock_amqp.client.message_client import MessageClient
    from penstock_amqp.types.values import Value

__all__ = ["ahead_of", "receive", "send"]

AHEAD: Final = 100
"""Messages that the broker may send before the next one is printed, if they are short."""
AHEAD_BYTES: Final = 16 * 1024 * 1024
"""Bytes that they may have together, if none is longer than the longest that came before."""
LONGEST_TTL: Final = 2**32 / 1000 - 1
"""Seconds; a header counts in milliseconds and has 32 bits for them."""


@click.command(short_help="Send messages to a queue or an exchange.")
@click.argument("address", type=ADDRESS)
@click.argument("bodies", metavar="[BODY]...", nargs=-1)
@click.option("--subject", help="Subject of the messages; an exchange routes by it, unless ADDRESS has a key.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="An application property.")
@click.option("--durable/--not-durable", default=True, help="Whether they outlive the broker. Default: durable.")
@click.option(
    "--priority",
    metavar="NUMBER",
    type=click.IntRange(0, 9),
    default=4,
    show_default=True,
    help="Priority of the messages.",
)
@click.option(
    "--ttl",
    metavar="SECONDS",
    type=click.FloatRange(0.001, LONGEST_TTL),
    help="Seconds after which the messages expire.",
)
@click.option("--id", "message_id", help="Message-id, for a single message.")
@on_clients
def send(
    site: BrokerAccess,
    *,
    address: str,
    bodies: tuple[str, ...],
    subject: str | None,
    properties: tuple[str, ...],
    durable: bool,
    priority: int,
    ttl: float | None,
    message_id: str | None,
) -> int:
    """Send each BODY as a text message to ADDRESS, a queue or EXCHANGE/KEY. Without any, each line of the input is one.
    An empty BODY or line is a message with an empty text.

    The command ends once the broker has accepted all of them. Exit code 1: it did not take one; the command says how
    many it took before.

    \b
    Examples:
      penstock send orders/eu.fr '{"id": 4711}' --property region=eu
      tail -f orders.log | penstock send orders --broker amqps://main-amqp.shop.svc --ca-file ca.crt \\
          --user ann --password-file password
    """
    from penstock_amqp.client.message_session import Sender
    from penstock_amqp.messages.message_codec import Message, Properties, encode_message
    from penstock_amqp.messages.message_head import Header
    from penstock_cli.message_access import as_client
    from penstock_cli.progress import in_terminal, silent

    if message_id is not None and len(bodies) != 1:
        raise Misuse("--id is for a single message.", "Give one BODY, or leave out --id.")
    if not bodies and sys.stdin is None:  # closed, as by <&-
        raise Misuse("there is neither a BODY nor an input.", "Give a BODY, or the lines to send, such as < lines.txt.")
    applied = _pairs(properties)
    header = Header(durable=durable or None, priority=priority, ttl=None if ttl is None else round(ttl * 1000))

    sent = 0
    is_typed = not bodies and sys.stdin.isatty()  # who types knows how far it is
    told = (silent if is_typed else in_terminal)("sending")

    async def work(client: MessageClient) -> None:
        nonlocal sent
        async for body in _typed(bodies):
            about = Properties(message_id=message_id, subject=subject)
            await client.send(
                encode_message(Message(header=header, properties=about, application_properties=applied, body=body))
            )
            sent += 1
            told(sent, len(bodies) or None)

    try:
        as_client(site, Sender(address), work)
    except (Failure, KeyboardInterrupt) as end:
        if sent:
            click.echo(f"{sent} sent before this:", err=True)
            if isinstance(end, Misuse):  # of a later line: something was done
                raise Failure(end.cause, end.cure) from end
        raise
    click.echo(f"{sent} sent")
    return 0


@click.command(short_help="Receive messages from a queue or a subscription.")
@click.argument("address", type=ADDRESS)
@click.option("--subscription", help="Receive from this shared durable subscription of the exchange ADDRESS.")
@click.option("--count", metavar="NUMBER", type=click.IntRange(min=1), help="End after so many messages.")
@click.option(
    "--wait",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="End when nothing has come for so many seconds.",
)
@click.option("--follow", is_flag=True, help="Wait for ever, until Ctrl-C.")
@click.option("--browse", is_flag=True, help="Leave the messages in the queue.")
@click.option("--selector", help="Only messages that match this JMS selector.")
@with_output
@on_clients
def receive(
    site: BrokerAccess,
    *,
    address: str,
    subscription: str | None,
    count: int | None,
    wait: float,
    follow: bool,
    browse: bool,
    selector: str | None,
    as_json: bool,
) -> int:
    """Receive messages from ADDRESS, a queue or an exchange, print their bodies, and accept them.

    A message is accepted after it was printed: one that was printed may come again, none is lost. Exit code 1: fewer
    than --count messages came.

    \b
    Examples:
      penstock receive invoices --count 1
      penstock receive orders --subscription billing --follow --output json
    """
    from penstock_amqp.client.message_session import Subscriber
    from penstock_cli.message_access import as_client
    from penstock_cli.received_message import read_message

    if sys.stdout is None:  # closed, as by >&-
        raise Misuse("there is no output to print messages to.", "Say where they go, such as > messages.txt.")
    link = Subscriber(address=address, subscription=subscription, selector=selector, copies=browse)
    pause = None if follow else wait

    async def work(client: MessageClient) -> int:
        received = ahead = longest = 0
        while count is None or received < count:
            if ahead == 0:
                ahead = ahead_of(longest) if count is None else min(ahead_of(longest), count - received)
                client.ask_for(ahead)
            encoded = await client.receive(pause)
            if encoded is None:
                break
            longest = max(longest, len(encoded))
            found = read_message(encoded)
            await printed(json.dumps(found.document(), ensure_ascii=False) if as_json else found.line())
            client.accept()
            received, ahead = received + 1, ahead - 1
        return received

    try:
        received = as_client(site, link, work)
    except KeyboardInterrupt:
        if count is not None:  # else Ctrl-C is how it ends
            raise
        return 0
    if count is not None and received < count:
        raise Failure(
            f"{received} of {count} messages came, and then none for {wait:g} s.", "Wait for longer with --wait."
        )
    return 0


def ahead_of(longest: int) -> int:
    """How many messages to ask for, given the bytes of the longest that has come; 0: none has."""
    return max(min(AHEAD, AHEAD_BYTES // longest), 1) if longest else 1


def _pairs(texts: Iterable[str]) -> dict[str, Value]:
    """NAME=VALUE as application properties; whole numbers are sent as numbers, so that selectors can compare them."""
    found: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Misuse(f"{text!r} is not a property.", "Write NAME=VALUE, such as --property region=eu.")
        digits = value.removeprefix("-")
        found[name] = int(value) if digits.isascii() and digits.isdigit() and len(digits) < 19 else value
    return found


async def _typed(bodies: Sequence[str]) -> AsyncIterator[str]:
    """The bodies of the command line; without any, the lines of the input. Heartbeats go on while a line is awaited."""
    for body in bodies:
        yield body
    while not bodies:
        try:
            line = await next_line()
            line.encode()  # in some locales Python lets bytes through that are not text
        except UnicodeError as error:
            raise Misuse("the input is not text in UTF-8.", "Convert it, such as with iconv.") from error
        except OSError as error:  # else it counts as one of the connection
            raise Failure(f"the input can't be read: {error.strerror or error}.", "Give another input.") from error
        if not line:
            return
        yield line.rstrip("\r\n")
