"""`penstock lag`: the Spark job that turns the ledger into lag (docs/reference/lag-job.md). The job owns its
options.
"""

from __future__ import annotations

import click

from penstock_cli.extras import needs_extra

__all__ = ["lag"]


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    short_help="Compute the lag of every subscription, with Spark.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def lag(arguments: tuple[str, ...]) -> int:
    """Compute the lag of every subscription with Spark, from the observer's ledger; see `penstock lag --help`."""
    with needs_extra("lag"):
        from penstock_lag.main import main
    return main(list(arguments))
