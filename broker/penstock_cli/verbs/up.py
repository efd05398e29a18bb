"""`penstock up`: a broker with its topology, observer and lag job from a folder of manifests, without Kubernetes."""

from __future__ import annotations

from pathlib import Path

import click

from penstock_cli.extras import needs_extra
from penstock_cli.verbs.host_port import HOST_PORT, split

__all__ = ["up"]


@click.command(short_help="Run a Broker and its topology from a folder of manifests.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("penstock-data"),
    show_default=True,
    help="Folder of messages, ledger and logs; made if absent, kept at the end.",
)
@click.option("--listen", type=HOST_PORT, default="127.0.0.1:5672", show_default=True, help="AMQP; port 0: a free one.")
@click.option(
    "--listen-tls",
    type=HOST_PORT,
    default="127.0.0.1:5671",
    show_default=True,
    help="AMQP with TLS, if the Broker takes certificates of clients.",
)
@click.option(
    "--observer",
    type=HOST_PORT,
    default="127.0.0.1:0",
    show_default=True,
    help="HTTP of the observer.",
)
@click.option("--snapshot-seconds", type=float, default=10.0, show_default=True, help="Time between two snapshots.")
@click.option(
    "--segment-seconds", type=float, default=60.0, show_default=True, help="Age of a finished ledger segment."
)
@click.option("--lag/--no-lag", default=True, help="Run the lag job as spec.lagAnalysis says (default: do).")
@click.option("--prune", is_flag=True, help="Remove what DIR declared once and no more, as deletionPolicy allows.")
def up(
    folder: Path,
    data: Path,
    listen: str,
    listen_tls: str,
    observer: str,
    snapshot_seconds: float,
    segment_seconds: float,
    lag: bool,
    prune: bool,
) -> int:
    """Run the Broker that DIR describes, with its Exchanges and Subscriptions, until Ctrl-C or SIGTERM.

    DIR holds the same manifests that `kubectl apply` takes. A broker that dies starts again. Where the Broker lets
    anybody in, clients may also come as guest/guest; else its users, tokens and permissions hold, from Secrets and
    ConfigMaps in DIR. Queues and topics are made by naming them, unless the Broker says which.
    """
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
        scheduled=lag,
        prune=prune,
    )
    return run(options, lambda line: click.echo(line))
