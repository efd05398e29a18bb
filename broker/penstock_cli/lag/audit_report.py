"""`penstock lag audit report`: proves with Spark where each message of an audit went (docs/how-to/audit.md)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from penstock_api.failure import Misuse
from penstock_cli.help_option import WITH_HELP
from penstock_cli.lag.sources import Sources, on_observers_if_given
from penstock_lag.audit.figures import audit_figures
from penstock_lag.audit.report import AuditReport, as_text, make_report
from penstock_lag.audit.sources import AuditPaths, from_folders, from_observers
from penstock_lag.session import Needs, local_session, tune
from penstock_lag.spark_failures import explained

__all__ = ["audit_report", "made"]


@click.command("lag audit report", context_settings=WITH_HELP)
@click.option(
    "--subscription",
    required=True,
    metavar="NAMESPACE/NAME",
    help="The subscription: its resource, or its name, or that of its queue.",
)
@click.option("--audit", "name", help="The audit, as `start` named it. Default: the newest of the subscription.")
@click.option(
    "--ledger",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of an observer's ledger, which is read instead of asking an observer.",
)
@click.option("--memory", default="1g", show_default=True, help="Heap of Spark.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@on_observers_if_given
def audit_report(
    sources: Sources,
    *,
    subscription: str,
    name: str | None,
    ledger: tuple[Path, ...],
    memory: str,
    as_json: bool,
) -> int:
    """Give every message of an audit exactly one account, and compare all counts.

    Exit codes: 0 every message has one account and everything agrees; 1 something differs or is missing, or the audit
    could not be read; 2 wrong usage.
    """
    if bool(sources.observers) == bool(ledger):
        raise Misuse("it is not clear where the audit is.", "Give either --observer or --ledger.")
    with tempfile.TemporaryDirectory(prefix="penstock-audit-") as scratch:
        if ledger:
            paths = from_folders(ledger, subscription, name)
        else:
            paths = from_observers(sources.observers, subscription, name, Path(scratch))
        report = made(paths, memory)
    sys.stdout.write(
        report.model_dump_json(by_alias=True, exclude_none=True, indent=2) + "\n" if as_json else as_text(report)
    )
    return 0 if report.agrees else 1


def made(paths: AuditPaths, memory: str) -> AuditReport:
    """Let Spark count, and judge. Raises Failure if Spark fails."""
    audit = paths.audit
    with local_session(Needs("penstock lag audit", memory, audit.records)) as spark:
        tune(spark, audit.records)
        with explained(spark, audit.records):
            figures = audit_figures(spark, audit.state, paths.files, paths.segments)
    return make_report(audit.state, figures, audit.is_complete, paths.damaged)
