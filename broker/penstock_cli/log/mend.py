"""`penstock log repair`: sets aside what is damaged in a log, or only says what it would do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from penstock_broker.log import (
    Inspection,
    ReadOnlyFiles,
    RealFiles,
    Repair,
    carry_out,
    inspect_log,
    plan_repairs,
    plan_replacements,
)
from penstock_cli.log.folder import unused_log
from penstock_cli.log.verify import loss_lines, place_of
from penstock_cli.progress import ProgressLine

__all__ = ["mend_log"]


def mend_log(named: Path, *, is_meant: bool) -> int:
    """Mend the log in `named`, or, unless `is_meant`, say what would be done; the exit code. Raises Failure."""
    with unused_log(named, is_changed=is_meant) as folder:
        replacements = plan_replacements(ReadOnlyFiles(), folder, ProgressLine("reading the segments"))
        _tell(replacements, is_meant=is_meant)
        if replacements and not is_meant:
            click.echo("What else is damaged can be seen once this is done.")
            return _not_done()
        carry_out(RealFiles(), replacements, None)
        found = inspect_log(ReadOnlyFiles(), folder, ProgressLine("reading the log"))
        plan = plan_repairs(found)
        _tell(plan, is_meant=is_meant)
        for line in loss_lines(found):
            click.echo(line)
        if not is_meant:
            return _not_done() if plan else _nothing(found)
        carry_out(RealFiles(), plan, found.log_id)
        if not plan and not replacements:
            return _nothing(found)
        click.echo(f"Done. What was set aside is in {folder / 'damaged'}. A broker can be started on this log.")
        return 0


def _tell(plan: Sequence[Repair], *, is_meant: bool) -> None:
    for step in plan:
        click.echo(f"{place_of(step)}: {step.reason}")
        click.echo(f"  {'' if is_meant else 'would '}{step.kind.value}")


def _not_done() -> int:
    click.echo("Nothing was changed. Give --yes to do it.")
    return 1


def _nothing(found: Inspection) -> int:
    if found.is_sound:
        click.echo("Nothing is to be done.")
    else:
        click.echo("No file can be mended here. The next start of a broker notes which messages are lost.")
    return 0
