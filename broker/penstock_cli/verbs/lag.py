"""`penstock lag`: the Spark job that turns the ledger into lag (docs/reference/lag-job.md), which owns its options; and
beside it `penstock lag report` and `penstock lag --watch`, which need no Spark (docs/how-to/lag-page.md).
"""

from __future__ import annotations

from typing import Final

import click

from penstock_api.failure import Misuse
from penstock_cli.extras import needs_extra

__all__ = ["lag"]

WATCH: Final = "--watch"
REPORT: Final = "report"
AUDIT: Final = "audit"
HELP: Final = frozenset({"-h", "--help"})
THERE_ARE: Final = (
    "There are `penstock lag report`, `penstock lag audit` and `penstock lag --watch`; the lag job has options alone."
)


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    short_help="Compute the lag of every subscription, with Spark.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def lag(arguments: tuple[str, ...]) -> int:
    """Compute the lag of every subscription with Spark, from the observer's ledger; see `penstock lag --help`."""
    if arguments[:1] == (REPORT,):
        with needs_extra("observer"):
            from penstock_cli.lag.report import report
        return _run(report, arguments[1:])
    if arguments[:1] == (AUDIT,):
        if arguments[1:2] == (REPORT,):
            with needs_extra("lag"):
                from penstock_cli.lag.audit_report import audit_report
            return _run(audit_report, arguments[2:])
        from penstock_cli.lag.audit import audit

        return _run(audit, arguments[1:])
    if WATCH in arguments:
        with needs_extra("observer"):
            from penstock_cli.lag.watch import watch
        return _run(watch, tuple(word for word in arguments if word != WATCH))
    if arguments and not arguments[0].startswith("-"):  # the job has options alone
        raise Misuse(f"there is no `penstock lag {arguments[0]}`.", THERE_ARE)
    if HELP & set(arguments):
        click.echo("See also: penstock lag --watch --help (live, without Spark)")
        click.echo("          penstock lag report --help (one HTML file for a window or a day, without Spark)")
        click.echo("          penstock lag audit --help  (every message of one subscription, for a limited time)\n")
    with needs_extra("lag"):
        from penstock_lag.main import run_command
    return run_command(arguments)


def _run(verb: click.Command, arguments: tuple[str, ...]) -> int:
    code: object = verb.main(args=list(arguments), prog_name=f"penstock {verb.name}", standalone_mode=False)
    return code if isinstance(code, int) else 0
