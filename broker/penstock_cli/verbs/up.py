"""`penstock up`: a broker with its topology, observer and lag job from a folder of manifests, without Kubernetes."""

from __future__ import annotations

from pathlib import Path

import click

from penstock_api.failure import Misuse
from penstock_cli.extras import needs_extra
from penstock_cli.verbs.host_port import HOST_PORT, split

__all__ = ["up"]


@click.command(short_help="Run a Broker and its topology from a folder of manifests.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("penstock-data"),
    show_default=True,
    help="Folder for messages, ledger and logs. It is made if it does not exist, and stays when the command ends.",
)
@click.option(
    "--listen",
    type=HOST_PORT,
    default="127.0.0.1:5672",
    show_default=True,
    help="Where clients connect by AMQP. With port 0 a free one from 20000 to 29999 is chosen.",
)
@click.option(
    "--listen-tls",
    type=HOST_PORT,
    default="127.0.0.1:5671",
    show_default=True,
    help="Where clients connect by AMQP with TLS, if the Broker has authentication.clientCaSecretRef.",
)
@click.option(
    "--observer",
    type=HOST_PORT,
    default="127.0.0.1:0",
    show_default=True,
    help="Where the observer serves HTTP.",
)
@click.option(
    "--snapshot-seconds",
    metavar="SECONDS",
    type=click.FloatRange(1, 365 * 24 * 3600),
    default=10.0,
    show_default=True,
    help="Seconds between two snapshots of the ledger.",
)
@click.option(
    "--segment-seconds",
    metavar="SECONDS",
    type=click.FloatRange(1, 365 * 24 * 3600),
    default=60.0,
    show_default=True,
    help="Age in seconds at which a ledger segment is finished.",
)
@click.option(
    "--show-messages",
    is_flag=True,
    help="Show messages with their bodies on the observer's page, such as dead letters, to those who log in.",
)
@click.option(
    "--lag/--no-lag", default=True, help="Whether to run the lag job on the schedule in spec.lagAnalysis. Default: yes."
)
@click.option(
    "--prune",
    is_flag=True,
    help="Delete from the broker what an earlier DIR declared and this one does not, as far as deletionPolicy allows.",
)
@click.option("--watch", is_flag=True, help="Declare the topology again when a file in DIR changes.")
def up(
    folder: Path,
    data: Path,
    listen: str,
    listen_tls: str,
    observer: str,
    snapshot_seconds: float,
    segment_seconds: float,
    show_messages: bool,
    lag: bool,
    prune: bool,
    watch: bool,
) -> int:
    """Run the Broker that DIR describes, with its Exchanges, Subscriptions and Queues, until Ctrl-C or SIGTERM.

    DIR holds the same manifests that `kubectl apply` takes. If the broker or the observer dies, it is started again.

    If the Broker allows anonymous clients and has no permissions, clients can also log in as guest with password guest.
    Otherwise its users, token issuers and permissions apply; DIR must hold the Secrets and ConfigMaps that they name.

    With --watch a change of the manifests is declared within a few seconds; a change of the Broker itself needs a new
    start. Together with --prune, a Subscription whose file is deleted ends.

    \b
    Example:
      penstock up examples/local --watch --prune

    Queues and topics that do not exist are created when a client names them, unless spec.autoCreate says otherwise.
    """
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "does not exist"
        raise Misuse(f"{folder} {problem}.", "Give the folder that holds the manifests; examples/local is one.")
    with needs_extra("broker"):
        from penstock_cli.up.commands import Pace
        from penstock_cli.up.run import Options, run
    options = Options(
        folder=folder,
        data=data,
        listen=split(listen),
        listen_tls=split(listen_tls),
        observer=split(observer),
        pace=Pace(snapshot_seconds, segment_seconds),
        shows_messages=show_messages,
        scheduled=lag,
        prune=prune,
        watch=watch,
    )
    return run(options, lambda line: click.echo(line))
