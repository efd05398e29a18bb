"""`penstock operator`: Broker, Exchange and Subscription resources to pods and topology (docs/operator.md)."""

from __future__ import annotations

import os

import click

from penstock_cli.extras import needs_extra
from penstock_cli.logs import LEVELS

__all__ = ["operator"]


@click.command(short_help="Keep a cluster's brokers as its resources say.")
@click.option("--namespaces", metavar="NAME[,NAME...]", help="Namespaces to look after; none: all.")
@click.option("--broker-image", help="Image of broker and observer for Brokers that name none.")
@click.option("--lag-image", help="Image of the lag job for Brokers that name none.")
@click.option("--cluster-domain", show_default="cluster.local", help="DNS domain of the cluster.")
@click.option("--liveness-port", show_default="8080", help="Port of /livez, /readyz and /metrics.")
@click.option("--resync-seconds", show_default="120", help="Time between two complete lists.")
@click.option("--poll-seconds", show_default="5", help="Time between two looks at each broker and its lag.")
@click.option("--log-level", type=click.Choice(LEVELS), show_default="info", help="What is logged.")
def operator(**options: str | None) -> int:
    """Keep a cluster's brokers and their topology as its resources say.

    Each option lies over the environment variable PENSTOCK_OPERATOR_<OPTION>, which is how the chart says it.
    """
    with needs_extra("operator"):
        from penstock_operator.main import run
        from penstock_operator.settings import OperatorSettings
    given = {f"PENSTOCK_OPERATOR_{name.upper()}": value for name, value in options.items() if value is not None}
    return run(OperatorSettings.from_environment({**os.environ, **given}))
