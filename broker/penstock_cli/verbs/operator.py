"""`penstock operator`: Broker, Exchange and Subscription resources to pods and topology (docs/operator.md)."""

from __future__ import annotations

import dataclasses

import click

from penstock_cli.needing import needs_extra

__all__ = ["operator"]


@click.command()
@click.option("--namespace", "-n", "namespaces", multiple=True, help="Namespace to watch; repeat; none: all of them.")
@click.option("--broker-image", help="Image of broker and observer for Brokers that name none.")
@click.option("--lag-image", help="Image of the lag job for Brokers that name none.")
@click.option("--cluster-domain", help="DNS domain of the cluster.")
@click.option("--liveness-port", type=int, help="Port of the liveness probe.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="What is logged.")
def operator(namespaces: tuple[str, ...], **options: object) -> int:
    """Keep a cluster's brokers and their topology as its resources say.

    Each option defaults to PENSTOCK_OPERATOR_<OPTION>, then to what the chart's values describe.
    """
    with needs_extra("operator"):
        from penstock_operator.main import run
        from penstock_operator.settings import Settings
    given = {name: value for name, value in options.items() if value is not None}
    if namespaces:
        given["namespaces"] = namespaces
    return run(dataclasses.replace(Settings.from_environment(), **given))
