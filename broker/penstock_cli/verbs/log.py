"""`penstock log verify`, `dump` and `repair`: a broker's log on disk (docs/how-to/damaged-log.md)."""

from __future__ import annotations

from pathlib import Path

import click

from penstock_cli.extras import needs_extra

__all__ = ["log"]

FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))


@click.group()
def log() -> None:
    """Look at the log of a broker that is stopped, and mend it.

    DIR is the broker's data folder, or the folder `log` in it.
    """


@log.command("verify")
@FOLDER
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def verify(folder: Path, *, as_json: bool) -> int:
    """Read the whole log and say what it holds and what of it is damaged. Nothing is changed.

    Exit code: 0 if the log is sound, or if all that is damaged was set aside before; 1 if something is damaged; 2 if
    DIR holds no log; 3 if a broker uses it, or it can't be read on this machine.
    """
    with needs_extra("broker"):
        from penstock_cli.log.verify import verify_log
    return verify_log(folder, as_json=as_json)


@log.command("dump")
@FOLDER
@click.option(
    "--segment", metavar="NUMBER", type=click.IntRange(min=1), help="Only the records of this segment, by its number."
)
@click.option("--queue", help="Only records about this queue or subscription, by its name.")
@click.option("--messages", is_flag=True, help="Also print the bytes of each message that is not in parts.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per record, one per line.")
def dump(folder: Path, *, segment: int | None, queue: str | None, messages: bool, as_json: bool) -> int:
    """Print the records of the log, one per line. Nothing is changed."""
    with needs_extra("broker"):
        from penstock_cli.log.dump import dump_log
    return dump_log(folder, segment=segment, queue=queue, messages=messages, as_json=as_json)


@log.command("repair")
@FOLDER
@click.option("--yes", is_flag=True, help="Do it. Without this option it is only said what would be done.")
def repair(folder: Path, *, yes: bool) -> int:
    """Set aside what is damaged, so that a broker can start on the rest. Nothing is deleted without a copy.

    What can't be used goes into the folder `damaged` in DIR. Exit code: 0 if nothing is to be done or all was done; 1
    if something is to be done and --yes was not given, or could not be done; 2 if DIR holds no log; 3 if a broker uses
    it, or it can't be read on this machine.
    """
    with needs_extra("broker"):
        from penstock_cli.log.mend import mend_log
    return mend_log(folder, is_meant=yes)
