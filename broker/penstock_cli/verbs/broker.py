"""`penstock broker`: one broker process on one data folder."""

from __future__ import annotations

from pathlib import Path

import click

from penstock_cli.extras import needs_extra
from penstock_cli.logs import log_level
from penstock_cli.verbs.host_port import HOST_PORT

__all__ = ["broker"]

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(context_settings={"auto_envvar_prefix": "PENSTOCK_BROKER"})
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder of the log.")
@click.option(
    "--listen", type=HOST_PORT, multiple=True, help="Where clients connect in plain AMQP; repeat for several."
)
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Settings as YAML.")
@click.option("--dev", is_flag=True, help="Allow ANONYMOUS and guest/guest, make queues and topics when first named.")
@click.option("--management", metavar="unix:PATH", help="Unix socket of $management with all rights.")
@click.option("--observer-socket", type=FILE, help="Unix socket of $management for the observer.")
@click.option("--probes", type=HOST_PORT, help="Where GET /livez and /readyz are answered.")
@click.option("--ready-file", type=FILE, help="File to write the addresses to, as JSON, once clients can connect.")
@log_level
def broker(
    data: Path,
    listen: tuple[str, ...],
    config: Path | None,
    dev: bool,
    management: str | None,
    observer_socket: Path | None,
    probes: str | None,
    ready_file: Path | None,
) -> int:
    """Run a broker until SIGTERM.

    Durable work is in DATA and survives kill -9. SIGTERM stops taking work, tells the clients, commits and exits 0.
    Options lie over the configuration file; each can also be set as PENSTOCK_BROKER_<OPTION>.
    """
    with needs_extra("broker"):
        from penstock_broker.main import run
    return run(
        data=data,
        listen=listen,
        config=config,
        dev=dev,
        management=management,
        observer_socket=observer_socket,
        probes=probes,
        ready_file=ready_file,
    )
