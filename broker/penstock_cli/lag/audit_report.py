"""`penstock lag audit report`: proves with Spark where each message of an audit went (docs/how-to/audit.md)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from penstock_api.failure import Misuse
from penstock_lag.audit.figures import audit_figures
from penstock_lag.audit.report import AuditReport, as_text, make_report
from penstock_lag.audit.sources import AuditPaths, from_folders, from_observers
from penstock_lag.observer_client import Observer
from penstock_lag.session import Needs, local_session, tune
from penstock_lag.settings import TOKEN_VARIABLE, read_token
from penstock_lag.spark_failures import explained

__all__ = ["audit_report", "made"]


@click.command("lag audit report", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--subscription",
    required=True,
    metavar="NAMESPACE/NAME",
    help="The subscription: its resource, or its name, or that of its queue.",
)
@click.option("--audit", "name", help="The audit, as `start` named it. Default: the newest of the subscription.")
@click.option(
    "--observer",
    multiple=True,
    metavar="URL[,URL...]",
    help="Base URL of each observer of the Broker, in the order of the pods' ordinals.",
)
@click.option(
    "--ledger",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of an observer's ledger, which is read instead of asking an observer.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"File with the bearer token of the observers. Default: the token in {TOKEN_VARIABLE}.",
)
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="CA certificates (PEM) that must have signed those of the observers. Default: the system's.",
)
@click.option("--memory", default="1g", show_default=True, help="Heap of Spark.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def audit_report(
    *,
    subscription: str,
    name: str | None,
    observer: tuple[str, ...],
    ledger: tuple[Path, ...],
    token_file: Path | None,
    ca_file: Path | None,
    memory: str,
    as_json: bool,
) -> int:
    """Give every message of an audit exactly one account, and compare all counts.

    Exit codes: 0 every message has one account and everything agrees; 1 something differs or is missing, or the audit
    could not be read; 2 wrong usage.
    """
    urls = [url.strip() for given in observer for url in given.split(",") if url.strip()]
    if bool(urls) == bool(ledger):
        raise Misuse("it is not clear where the audit is.", "Give either --observer or --ledger.")
    with tempfile.TemporaryDirectory(prefix="penstock-audit-") as scratch:
        if ledger:
            paths = from_folders(ledger, subscription, name)
        else:
            token = read_token(token_file)
            paths = from_observers([Observer(url, token, ca_file) for url in urls], subscription, name, Path(scratch))
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
    return make_report(audit.state, figures, audit.is_complete)
