"""Where a broker's `$management` is, and who asks: the options of every verb that asks one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

__all__ = ["BrokerAccess", "on_broker"]

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """One broker, as it was named on the command line."""

    broker: str
    user: str | None
    password_file: Path | None
    ca_file: Path | None


def on_broker(verb: Callable[..., int]) -> Callable[..., int]:
    """Give a verb the options that say which broker; it gets them as its first argument, a `Site`."""

    @click.option(
        "--broker",
        required=True,
        envvar="PENSTOCK_BROKER",
        show_envvar=True,
        metavar="unix:PATH|HOST:PORT",
        help="Its management listener.",
    )
    @click.option("--user", envvar="PENSTOCK_USER", show_envvar=True, help="Who asks; a Unix socket needs nobody.")
    @click.option("--password-file", type=FILE, envvar="PENSTOCK_PASSWORD_FILE", show_envvar=True, help="Of the user.")
    @click.option("--ca-file", type=FILE, envvar="PENSTOCK_CA_FILE", show_envvar=True, help="Use TLS, trust this CA.")
    @wraps(verb)
    def with_site(
        *, broker: str, user: str | None, password_file: Path | None, ca_file: Path | None, **arguments: Any
    ) -> int:
        return verb(BrokerAccess(broker, user, password_file, ca_file), **arguments)

    return with_site
