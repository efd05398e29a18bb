"""`penstock broker`: one broker process on one data folder."""

from __future__ import annotations

from pathlib import Path

import click

from penstock_cli.needing import needs_extra
from penstock_cli.verbs.endpoint import ENDPOINT

__all__ = ["broker"]


@click.command(context_settings={"auto_envvar_prefix": "PENSTOCK_BROKER"})
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder of the log.")
@click.option("--listen", type=ENDPOINT, multiple=True, help="Where clients connect in plain AMQP; repeat for several.")
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Settings as YAML.")
@click.option("--dev", is_flag=True, help="Allow ANONYMOUS and guest/guest, make queues and topics when first named.")
def broker(data: Path, listen: tuple[str, ...], config: Path | None, dev: bool) -> int:
    """Run a broker until SIGTERM.

    Durable work is in DATA and survives kill -9. SIGTERM stops taking work, tells the clients, commits and exits 0.
    """
    with needs_extra("broker"):
        from penstock_broker.main import run
    return run(data=data, listen=listen, config=config, dev=dev)
