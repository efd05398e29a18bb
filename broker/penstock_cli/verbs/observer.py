"""`penstock observer`: the second process of a broker pod (docs/reference/observer.md)."""

from __future__ import annotations

import os
from pathlib import Path

import click

from penstock_cli.extras import needs_extra
from penstock_cli.logs import log_options
from penstock_cli.verbs.host_port import HOST_PORT, split
from penstock_cli.verbs.size import SIZE

__all__ = ["observer"]

HOUR = 3600.0
MIB = 1024 * 1024
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


def _own_api_server() -> str:
    """The API server, as every pod is told; empty outside a cluster."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}" if host else ""


@click.command(
    context_settings={"auto_envvar_prefix": "PENSTOCK_OBSERVER"},
    short_help="Serve metrics, queue states, ledger and lag results of a broker.",
)
@click.option("--broker-socket", type=click.Path(path_type=Path), required=True, help="The broker's --observer-socket.")
@click.option(
    "--ledger",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder of the ledger, which keeps snapshots of all subscriptions.",
)
@click.option("--listen", type=HOST_PORT, default="127.0.0.1:8080", show_default=True, help="Where HTTP is served.")
@click.option(
    "--token-file",
    type=FILE,
    required=True,
    help="File with the bearer token for everything; tokens for less are in files beside it, such as scrape.token.",
)
@click.option(
    "--messages-token-file",
    type=FILE,
    help="File with a token whose holder also sees messages on the page, if the broker has observerPeek: true.",
)
@click.option(
    "--account",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder with token and ca.crt of a ServiceAccount that may create TokenReviews and SubjectAccessReviews; with "
    "it people log in to the page with Kubernetes tokens.",
)
@click.option(
    "--api-server",
    default=_own_api_server,
    show_default="that of the cluster in which the observer runs",
    help="URL of the API server that is asked.",
)
@click.option("--broker", default="broker", show_default=True, help="Name of the Broker resource.")
@click.option("--namespace", default="default", show_default=True, help="Namespace of the Broker resource.")
@click.option(
    "--ordinal", metavar="NUMBER", type=int, default=0, show_default=True, help="Ordinal of the broker's pod."
)
@click.option(
    "--tls-cert", type=FILE, help="Certificate chain (PEM). With --tls-key it makes the observer serve HTTPS."
)
@click.option("--tls-key", type=FILE, help="Private key for --tls-cert (PEM).")
@click.option(
    "--interval", metavar="SECONDS", type=float, default=10.0, show_default=True, help="Seconds between two snapshots."
)
@click.option(
    "--segment-seconds",
    metavar="SECONDS",
    type=float,
    default=60.0,
    show_default=True,
    help="Age in seconds at which a ledger segment is finished.",
)
@click.option(
    "--segment-rows",
    metavar="NUMBER",
    type=int,
    default=250_000,
    show_default=True,
    help="Rows at which a ledger segment is finished.",
)
@click.option(
    "--segment-bytes",
    type=SIZE,
    default=128 * MIB,
    show_default="128 MiB",
    help="Bytes of memory at which a ledger segment is finished.",
)
@click.option(
    "--retain-seconds",
    metavar="SECONDS",
    type=float,
    default=48 * HOUR,
    show_default="48 h",
    help="Seconds after which a ledger segment is deleted.",
)
@click.option(
    "--retain-bytes",
    type=SIZE,
    default=1024 * MIB,
    show_default="1 GiB",
    help="Bytes of ledger segments beyond which the oldest are deleted; less if the volume offers less.",
)
@click.option(
    "--results-kept", metavar="NUMBER", type=int, default=20, show_default=True, help="Number of lag results to keep."
)
@click.option(
    "--results-bytes",
    type=SIZE,
    default=128 * MIB,
    show_default="128 MiB",
    help="Bytes of lag results to keep; at most a quarter of the volume.",
)
@click.option(
    "--rollups-bytes",
    type=SIZE,
    default=256 * MIB,
    show_default="256 MiB",
    help="Bytes of rollups of hours and days to keep; at most an eighth of the volume.",
)
@click.option(
    "--audit-bytes",
    type=SIZE,
    default=256 * MIB,
    show_default="256 MiB",
    help="Bytes of the records of audits to keep; at most a quarter of the volume.",
)
@log_options
def observer(listen: str, interval: float, **settings: object) -> int:
    """Serve metrics, the states of queues, the ledger and the lag results of one broker over HTTP.

    No message passes through the observer: if it stops, the broker goes on. Each option can also be given as an
    environment variable PENSTOCK_OBSERVER_<OPTION>, such as PENSTOCK_OBSERVER_LEDGER.
    """
    with needs_extra("observer"):
        from penstock_observer.main import run
        from penstock_observer.settings import ObserverSettings
    host, port = split(listen)
    return run(
        # The options above have the names and types of the settings' fields; their constructor checks the values.
        ObserverSettings(host=host, port=port, interval_seconds=interval, **settings),  # type: ignore[arg-type]
        announce=lambda url: click.echo(f"observer serves {url}"),
    )
