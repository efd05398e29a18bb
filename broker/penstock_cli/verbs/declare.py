"""`penstock declare`: makes exchanges, queues and subscriptions without a resource (docs/reference/command-line.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from penstock_api.failure import Misuse
from penstock_cli.broker_options import BrokerAccess, on_broker
from penstock_cli.named import NAME
from penstock_cli.verbs.size import SIZE

if TYPE_CHECKING:
    from penstock_api.management import ManagementDocument

__all__ = ["declare"]

TYPES: Final = ("Topic", "Direct", "Fanout", "Headers")
UNROUTABLE: Final = ("Accept", "Reject")
OVERFLOWS: Final = ("Reject", "DropOldest", "DropNewest")


@click.group(short_help="Make an exchange, a queue or a subscription.")
def declare() -> None:
    """Make an exchange, a queue or a subscription, or change it to what is said.

    What is declared here belongs to no resource: an operator leaves it alone, and `penstock export` writes manifests of
    it.
    """


def holding(verb: Callable[..., int]) -> Callable[..., int]:
    """Add the options of what a queue or subscription holds, and what becomes of messages that nobody accepts."""
    for option in (
        click.option("--expiry", metavar="ADDRESS", help="Where messages go whose time to live has passed."),
        click.option(
            "--max-deliveries",
            metavar="NUMBER",
            type=click.IntRange(min=1),
            help="Failed deliveries before --dead-letter.",
        ),
        click.option(
            "--dead-letter", metavar="ADDRESS", help="Where messages go that were rejected or failed too often."
        ),
        click.option(
            "--overflow",
            type=click.Choice(OVERFLOWS),
            default="Reject",
            show_default=True,
            help="What happens at a limit: refuse messages, or lose some.",
        ),
        click.option(
            "--max-messages",
            metavar="NUMBER",
            type=click.IntRange(min=1),
            help="Largest number of messages. Default: no limit.",
        ),
        click.option("--max-bytes", type=SIZE, help="Largest size of all messages, such as 16Mi. Default: no limit."),
    ):
        verb = option(verb)
    return verb


@declare.command("exchange")
@click.argument("name", type=NAME)
@click.option("--type", "kind", type=click.Choice(TYPES), default="Topic", show_default=True, help="How it routes.")
@click.option("--durable/--not-durable", default=True, help="Whether it outlives the broker. Default: durable.")
@click.option(
    "--unroutable",
    type=click.Choice(UNROUTABLE),
    default="Accept",
    show_default=True,
    help="What happens to a message that no binding matches: it is accepted and dropped, or refused.",
)
@on_broker
def declare_exchange(site: BrokerAccess, *, name: str, kind: str, durable: bool, unroutable: str) -> int:
    """Make the exchange NAME.

    \b
    Example:
      penstock declare exchange orders --type Topic
    """
    from penstock_api.management import ExchangeDeclaration
    from penstock_cli.request_bodies import request_body

    document = {"exchangeType": kind, "durable": durable, "unroutable": unroutable}
    return _declare(site, f"Exchange {name}", request_body(ExchangeDeclaration, document), name)


@declare.command("queue")
@click.argument("name", type=NAME)
@click.option("--durable/--not-durable", default=True, help="Whether it outlives the broker. Default: durable.")
@holding
@on_broker
def declare_queue(site: BrokerAccess, *, name: str, durable: bool, **held: Any) -> int:
    """Make the queue NAME.

    \b
    Example:
      penstock declare queue invoices --max-bytes 16Mi --dead-letter invoices-dead --max-deliveries 5
    """
    from penstock_api.management import QueueDeclaration
    from penstock_cli.request_bodies import request_body

    document = {"durable": durable, **_policies(held)}
    return _declare(site, f"Queue {name}", request_body(QueueDeclaration, document), name)


@declare.command("subscription")
@click.argument("name", type=NAME)
@click.option("--exchange", required=True, help="The exchange whose messages it gets.")
@click.option(
    "--binding-key",
    "keys",
    multiple=True,
    help="Routing key of the messages to get; can be repeated. Default: that of the exchange's type, # on Topic.",
)
@click.option("--selector", help="Only messages that match this JMS selector.")
@click.option("--client-id", help="Only clients with this container-id (JMS ClientID) use it. Default: any client.")
@click.option("--exclusive", is_flag=True, help="One link consumes. Default: any number of links share it.")
@holding
@on_broker
def declare_subscription(
    site: BrokerAccess,
    *,
    name: str,
    exchange: str,
    keys: tuple[str, ...],
    selector: str | None,
    client_id: str | None,
    exclusive: bool,
    **held: Any,
) -> int:
    """Make the durable subscription NAME.

    \b
    Example:
      penstock declare subscription billing --exchange orders --binding-key 'eu.#' --binding-key 'uk.#'
    """
    from penstock_api.management import SubscriptionDeclaration
    from penstock_cli.request_bodies import request_body

    document = {
        "subscriptionName": name,
        "exchange": exchange,
        "bindingKeys": tuple(sorted(set(keys))),
        "selector": selector,
        "scope": "Global" if client_id is None else "Container",
        "clientId": client_id,
        "sharing": "Exclusive" if exclusive else "Shared",
        **_policies(held),
    }
    return _declare(site, f"Subscription {name}", request_body(SubscriptionDeclaration, document), None)


def _policies(held: dict[str, Any]) -> dict[str, object]:
    if held["max_deliveries"] is not None and held["dead_letter"] is None:
        raise Misuse("--max-deliveries needs --dead-letter.", "Say where messages go that failed so often.")
    limits = {"maxBytes": held["max_bytes"], "maxMessages": held["max_messages"]}
    limited = {**limits, "overflow": held["overflow"]} if any(each is not None for each in limits.values()) else {}
    delivery = {
        "maxDeliveries": held["max_deliveries"],
        "deadLetter": held["dead_letter"],
        "expiry": held["expiry"],
    }
    return {"limits": limited, "delivery": delivery}


def _declare(site: BrokerAccess, what: str, body: ManagementDocument, name: str | None) -> int:
    from penstock_cli.broker_client import ask

    reply = ask(site, lambda client: client.create(body, name)).attributes
    click.echo(f"{what}: {reply.get('outcome')}")
    return 0
