"""`penstock broker`: one broker process on one data folder."""

from __future__ import annotations

from pathlib import Path

import click

from penstock_cli.extras import needs_extra
from penstock_cli.logs import log_options
from penstock_cli.verbs.host_port import HOST_PORT

__all__ = ["broker"]

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(context_settings={"auto_envvar_prefix": "PENSTOCK_BROKER"})
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder that keeps messages and topology (the log).",
)
@click.option("--listen", type=HOST_PORT, multiple=True, help="Where clients connect without TLS. Can be repeated.")
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Configuration file (YAML), see docs/reference/configuration.md.",
)
@click.option(
    "--dev",
    is_flag=True,
    help="Development mode: let everybody in (ANONYMOUS, guest/guest); create queues and topics that clients name.",
)
@click.option("--management", metavar="unix:PATH", help="Unix socket on which $management allows every operation.")
@click.option(
    "--observer-socket", type=FILE, help="Unix socket on which $management allows only reading, for the observer."
)
@click.option("--probes", type=HOST_PORT, help="Where the HTTP probes GET /livez and GET /readyz are answered.")
@click.option(
    "--ready-file", type=FILE, help="File to which the addresses are written, as JSON, once clients can connect."
)
@log_options
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
    """Run a broker until it gets SIGTERM.

    Durable messages and subscriptions are kept in the folder --data, also when the process is killed. After SIGTERM the
    broker accepts no new work, closes the connections of its clients, writes everything to disk and exits with code 0.

    An option overrides the same setting in the configuration file. Each option can also be given as an environment
    variable PENSTOCK_BROKER_<OPTION>, such as PENSTOCK_BROKER_DATA.
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
