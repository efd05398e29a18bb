"""`penstock ping`: whether a broker takes a message and gives it back (docs/reference/command-line.md)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from penstock_api.failure import Failure, Misuse
from penstock_cli.broker_options import BrokerAccess, on_clients

if TYPE_CHECKING:
    from penstock_amqp.client.message_client import MessageClient

__all__ = ["ping"]

BODY: Final = "penstock ping"
ANSWER_SECONDS: Final = 10.0
"""How long the message may take through a broker that has accepted it."""
PAUSE_SECONDS: Final = 1.0
"""Between two attempts."""


@click.command(short_help="Send one message through a broker and receive it.")
@click.option(
    "--wait",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Try again for so many seconds, while the broker starts.",
)
@on_clients
def ping(site: BrokerAccess, *, wait: float) -> int:
    """Log in, send one message to a temporary queue, and receive it. No other queue, exchange or subscription gets it.

    A temporary queue needs no permission. Exit code 1: the broker can't be reached, refuses, or loses the message.

    \b
    Example:
      penstock ping --broker amqps://main-amqp.shop.svc --ca-file ca.crt --user app --password-file password
    """
    end: float | None = None
    while True:
        begin = time.monotonic()
        try:
            _round(site)
        except Misuse:
            raise
        except Failure as failure:
            end = time.monotonic() + wait if end is None else end  # the first attempt also loads the program
            if time.monotonic() + PAUSE_SECONDS > end:
                raise
            click.echo(f"{failure.cause} Trying again.", err=True)
            time.sleep(PAUSE_SECONDS)
        else:
            click.echo(f"1 message sent and received in {(time.monotonic() - begin) * 1000:.0f} ms, login included")
            return 0


def _round(site: BrokerAccess) -> None:
    """Receive from a new temporary queue what a second connection sends there."""
    from penstock_amqp.client.message_client import MessageClient
    from penstock_amqp.client.message_session import Sender, Subscriber
    from penstock_amqp.messages.message_codec import Message, encode_message
    from penstock_cli.message_access import access_of, as_client
    from penstock_cli.received_message import read_message

    address, login = access_of(site)

    async def work(receiver: MessageClient) -> bytes | None:
        if receiver.address is None:
            raise Failure("The broker did not name its temporary queue.", "Check that --broker is a Penstock broker.")
        receiver.ask_for(1)
        sender = await MessageClient.connect(address, Sender(receiver.address), login=login)
        try:
            await sender.send(encode_message(Message(body=BODY)))
        finally:
            await sender.close()
        arrived = await receiver.receive(ANSWER_SECONDS)
        if arrived is not None:
            receiver.accept()
        return arrived

    arrived = as_client(site, Subscriber(address=None), work)
    if arrived is None:
        raise Failure(
            f"The broker accepted a message and did not deliver it within {ANSWER_SECONDS:.0f} s.",
            "Look at its state with `penstock status`, and at its log.",
        )
    if read_message(arrived).body != BODY:
        raise Failure("The broker delivered another message than the one that was sent.", "Report this as a bug.")
