"""The options of every verb that sends a request to a broker: the address of its `$management`, and the login."""

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
    """Address and login of one broker, as given on the command line."""

    broker: str
    user: str | None
    password_file: Path | None
    ca_file: Path | None


def on_broker(verb: Callable[..., int]) -> Callable[..., int]:
    """Add these options to a verb, which gets them as its first argument, a `BrokerAccess`."""

    @click.option(
        "--broker",
        required=True,
        envvar="PENSTOCK_BROKER",
        show_envvar=True,
        metavar="unix:PATH|HOST:PORT",
        help="Address of the broker's management listener.",
    )
    @click.option(
        "--user", envvar="PENSTOCK_USER", show_envvar=True, help="User to log in as. Not needed on a Unix socket."
    )
    @click.option(
        "--password-file",
        type=FILE,
        envvar="PENSTOCK_PASSWORD_FILE",
        show_envvar=True,
        help="File with the password of --user.",
    )
    @click.option(
        "--ca-file",
        type=FILE,
        envvar="PENSTOCK_CA_FILE",
        show_envvar=True,
        help="Connect with TLS and trust the CA certificates in this PEM file.",
    )
    @wraps(verb)
    def with_site(
        *, broker: str, user: str | None, password_file: Path | None, ca_file: Path | None, **arguments: Any
    ) -> int:
        return verb(BrokerAccess(broker, user, password_file, ca_file), **arguments)

    return with_site
