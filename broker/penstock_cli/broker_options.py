"""The options of every verb that connects to a broker: the address of its `$management`, or of a listener for clients,
and the login.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

__all__ = ["BrokerAccess", "on_broker", "on_clients"]

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


class _Asked(click.types.StringParamType):
    """The text of an address; whoever leaves it out reads what it is and where it is found."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """The sentences behind "Missing option"."""
        return (
            "It is the broker's management listener, unix:PATH or HOST:PORT: `penstock up` prints it, and the option "
            "--management of `penstock broker` sets it."
        )


ASKED: Final = _Asked()


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """Address and login of one broker, as given on the command line."""

    broker: str
    user: str | None
    password_file: Path | None
    ca_file: Path | None
    token_file: Path | None = None


def on_broker(verb: Callable[..., int]) -> Callable[..., int]:
    """Add these options to a verb that asks `$management`, which gets them as its first argument, a `BrokerAccess`."""
    told = "Address of the broker's management listener."
    without = "Not needed on a Unix socket."
    return _with_access(verb, "PENSTOCK_BROKER", "unix:PATH|HOST:PORT", told, without, required=True)


def on_clients(verb: Callable[..., int]) -> Callable[..., int]:
    """The same for a verb that is a client, which sends or receives messages."""
    told = "Address of a listener for clients. amqps:// connects with TLS. Default: amqp://localhost."

    @click.option(
        "--token-file",
        type=FILE,
        envvar="PENSTOCK_TOKEN_FILE",
        show_envvar=True,
        help="File with a signed token to log in with, such as that of a ServiceAccount, instead of --user. Needs TLS.",
    )
    @wraps(verb)
    def with_token(site: BrokerAccess, *, token_file: Path | None, **arguments: Any) -> int:
        return verb(replace(site, token_file=token_file), **arguments)

    without = "Default: log in without a name."
    return _with_access(with_token, "PENSTOCK_URL", "[amqp[s]://]HOST[:PORT]", told, without, required=False)


def _with_access(
    verb: Callable[..., int], variable: str, metavar: str, told: str, without: str, *, required: bool
) -> Callable[..., int]:
    """``told`` says what the address is, ``without`` what becomes of a login without ``--user``."""
    # An option that has a default counts as given, also if the default is None.
    presence: dict[str, Any] = {"required": True, "type": ASKED} if required else {"default": "amqp://localhost"}

    @click.option(
        "--broker",
        **presence,
        envvar=variable,
        show_envvar=True,
        metavar=metavar,
        help=told,
    )
    @click.option("--user", envvar="PENSTOCK_USER", show_envvar=True, help=f"User to log in as. {without}")
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
