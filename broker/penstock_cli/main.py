"""The `penstock` command: its verbs, and how a failure is shown to the person who typed the command.

The modules of the verbs define options only. Each imports the code of its process when the verb runs, so that
`penstock --help` is quick and a container image needs only the dependencies of the process it runs.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Final, cast

import click

from penstock_api.failure import Failure
from penstock_cli.help_option import WITH_HELP
from penstock_cli.standard_output import OutputLost, StandardOutput, forget_output
from penstock_cli.verbs.broker import broker
from penstock_cli.verbs.completion import completion
from penstock_cli.verbs.declare import declare
from penstock_cli.verbs.export import export
from penstock_cli.verbs.installation import installation
from penstock_cli.verbs.lag import lag
from penstock_cli.verbs.listings import connections, exchanges, queues, subscriptions
from penstock_cli.verbs.log import log
from penstock_cli.verbs.messages import move, peek, purge, redrive
from penstock_cli.verbs.observer import observer
from penstock_cli.verbs.operator import operator
from penstock_cli.verbs.ping import ping
from penstock_cli.verbs.status import status
from penstock_cli.verbs.transfer import receive, send
from penstock_cli.verbs.up import up

__all__ = ["main", "penstock", "run"]

EXIT_CODES: Final = (
    "Exit codes: 0 success; 1 failure; 2 wrong usage, setting or manifest; 3 this machine lacks something that the "
    "command needs; 4 Spark ran out of memory."
)


class Verbs(click.Group):
    """A group that lists its verbs in the order in which they were added, not in alphabetical order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the verbs in the order in which they were added."""
        return list(self.commands)


@click.group(cls=Verbs, epilog=EXIT_CODES, context_settings=WITH_HELP)
@click.version_option(package_name="penstock", message="%(prog)s %(version)s")
def penstock() -> None:
    """Penstock is an AMQP 1.0 message broker whose subscriptions are Kubernetes resources.

    Try it on this machine, without Kubernetes:  penstock up examples/local
    """


@penstock.command("version")
def show_version() -> None:
    """Print the version and exit."""
    from importlib.metadata import version  # a quarter of the time of `penstock --help`

    click.echo(version("penstock"))


ASKING = (status, queues, exchanges, subscriptions, connections)
HANDLING = (declare, export, ping, send, receive, peek, purge, move, redrive)
for verb in (up, *ASKING, *HANDLING, broker, log, observer, lag, operator, installation, completion):
    penstock.add_command(verb)
penstock.add_command(penstock.commands.pop("version"))  # last


def run(arguments: Sequence[str]) -> int:
    """Run one command line without leaving the interpreter; return its exit code."""
    try:
        code: object = penstock.main(args=list(arguments), prog_name="penstock", standalone_mode=False)
    except click.ClickException as error:  # wrong usage: click says what and shows where help is
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("penstock: interrupted", err=True)
        return 1
    except OutputLost as lost:
        forget_output()
        if not lost.is_unread:
            click.echo(f"penstock: {lost.cause}\n{lost.cure}", err=True)
        return lost.exit_code
    except Failure as failure:
        click.echo(f"penstock: {failure.cause}", err=True)
        if failure.cure:
            click.echo(failure.cure, err=True)
        return failure.exit_code
    return code if isinstance(code, int) else 0


def main() -> None:
    """Entry point of the `penstock` console command."""
    output: object = sys.stdout
    if isinstance(output, io.TextIOWrapper):  # None if it is closed
        sys.stdout = StandardOutput.over(cast("io.TextIOWrapper", output))
    error: object = sys.stderr
    if error is None:  # closed: nobody hears, and no file that is opened later may take its number
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the life of the process
    sys.exit(run(sys.argv[1:]))
