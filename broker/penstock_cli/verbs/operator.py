"""`penstock operator`: makes pods and topology from Broker, Exchange and Subscription resources
(docs/reference/operator.md).
"""

from __future__ import annotations

import os

import click

from penstock_cli.extras import needs_extra
from penstock_cli.logs import FORMATS, LEVELS

__all__ = ["operator"]


@click.command(short_help="Run the Kubernetes operator.")
@click.option(
    "--namespaces", metavar="NAME[,NAME...]", help="Namespaces whose resources the operator handles. Default: all."
)
@click.option("--broker-image", help="Image of broker and observer, for Brokers without spec.image.")
@click.option("--lag-image", help="Image of the lag job, for Brokers without spec.lagAnalysis.image.")
@click.option(
    "--lag-job",
    metavar="JSON",
    help="The one lag job for all Brokers with the backend Auto, as the chart's values `lag`. Default: none.",
)
@click.option(
    "--own-namespace",
    metavar="NAME",
    help="Namespace in which the operator runs, for NetworkPolicies and --lease. Default: none.",
)
@click.option(
    "--lease",
    metavar="NAME",
    help="Lease in --own-namespace by which one operator of several leads. Default: none, this operator always leads.",
)
@click.option(
    "--lease-seconds",
    metavar="SECONDS",
    show_default="15",
    help="Seconds without a renewal of the Lease after which another operator takes it.",
)
@click.option(
    "--identity",
    metavar="NAME",
    help="Names this operator in the Lease. Default: the host's name and something random.",
)
@click.option("--cluster-domain", show_default="cluster.local", help="DNS domain of the cluster.")
@click.option("--liveness-host", help="Address of /livez, /readyz and /metrics. Default: all addresses.")
@click.option("--liveness-port", metavar="NUMBER", show_default="8080", help="Port of /livez, /readyz and /metrics.")
@click.option(
    "--resync-seconds",
    metavar="SECONDS",
    show_default="120",
    help="Seconds between two complete lists of all resources.",
)
@click.option(
    "--poll-seconds", metavar="SECONDS", show_default="5", help="Seconds between two checks of each broker and its lag."
)
@click.option(
    "--workers", metavar="NUMBER", show_default="200", help="Resources that are reconciled at the same time, 1 to 1000."
)
@click.option(
    "--pass-seconds",
    metavar="SECONDS",
    show_default="120",
    help="Seconds that the reconcile of one resource may take, 30 to 3600; then it is ended, and repeated later.",
)
@click.option(
    "--log-level", type=click.Choice(LEVELS), show_default="info", help="Least severe messages that are logged."
)
@click.option(
    "--log-format", type=click.Choice(FORMATS), show_default="text", help="Form of the lines that are logged."
)
def operator(**options: str | None) -> int:
    """Run the operator: it makes brokers, exchanges, subscriptions and queues as the resources of a cluster say.

    An option overrides the environment variable PENSTOCK_OPERATOR_<OPTION>, which the Helm chart sets.
    """
    with needs_extra("operator"):
        from penstock_operator.main import run
        from penstock_operator.settings import OperatorSettings
    given = {f"PENSTOCK_OPERATOR_{name.upper()}": value for name, value in options.items() if value is not None}
    return run(OperatorSettings.from_environment({**os.environ, **given}))
