"""`penstock export`: manifests of what no resource has declared (docs/how-to/adopt.md)."""

from __future__ import annotations

import click

from penstock_cli.broker_options import BrokerAccess, on_broker

__all__ = ["export"]


@click.command(short_help="Print manifests of what no resource has declared.")
@click.option("--namespace", default="default", show_default=True, help="Namespace of the resources and of the Broker.")
@click.option("--broker-name", default="main", show_default=True, help="Name of the Broker resource, for brokerRef.")
@on_broker
def export(site: BrokerAccess, *, namespace: str, broker_name: str) -> int:
    """Print Exchanges, Subscriptions and Queues, as YAML, for all that clients or people have made on the broker.

    Once they are applied, the operator adopts what is there: messages, consumers and bindings stay. What no resource
    can declare is left out, and told on standard error. Exit code 1: something was left out.

    \b
    Example:
      penstock export --namespace shop --broker-name main > adopted.yaml
    """
    import yaml
    from pydantic import ValidationError

    from penstock_api.failure import Misuse
    from penstock_api.manifest_export import ResourcePlace
    from penstock_api.references import BrokerRef
    from penstock_api.validation_messages import validation_messages
    from penstock_cli.broker_client import ask
    from penstock_cli.export import exported, found_on
    from penstock_cli.progress import in_terminal

    try:
        BrokerRef(name=broker_name, namespace=namespace)
    except ValidationError as error:
        options = {"name": "--broker-name", "namespace": "--namespace"}
        wrong = [message.partition(": ") for message in validation_messages(error)]
        told = "; ".join(f"{options[field]} {rule}" for field, _, rule in wrong)
        raise Misuse(f"{told}.", "Give the names of the Broker resource and of its namespace.") from error
    made = exported(ask(site, lambda client: found_on(client, in_terminal)), ResourcePlace(namespace, broker_name))
    if made.manifests:
        click.echo(
            yaml.safe_dump_all(made.manifests, sort_keys=False, allow_unicode=True, explicit_start=True), nl=False
        )
    for sentence in made.left_out:
        click.echo(f"left out: {sentence}", err=True)
    also = f"; {made.fleeting} subscriptions end with their client" if made.fleeting else ""
    click.echo(f"{len(made.manifests)} exported, {len(made.left_out)} left out{also}", err=True)
    return 1 if made.left_out else 0
