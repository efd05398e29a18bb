"""Where `penstock send` and `penstock receive` connect, and how: as a client of the broker, not as its manager."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from penstock_amqp.client.address import Address
from penstock_amqp.client.message_client import MessageClient
from penstock_amqp.client.message_session import Sender, Subscriber
from penstock_amqp.sasl.password_login import PasswordLogin
from penstock_amqp.sasl.token_login import TokenLogin
from penstock_api.failure import Misuse
from penstock_cli.broker_client import login_of, tls_of, told_to_a_person
from penstock_cli.broker_options import BrokerAccess

__all__ = ["access_of", "as_client", "client_address"]

SCHEMES: Final = frozenset({"amqp", "amqps"})
PORT: Final = 5672
TLS_PORT: Final = 5671
CURE: Final = "Check that it is running, and that --broker is a listener for clients."

T = TypeVar("T")


def as_client(site: BrokerAccess, link: Sender | Subscriber, work: Callable[[MessageClient], Awaitable[T]]) -> T:
    """Connect with this link, call `work`, close the connection, and return the result.

    Raises:
        Misuse: the address, or a file that the options name, can't be used.
        Failure: the broker can't be reached, or refuses the login, the link or a message.
    """
    address, login = access_of(site)

    async def worked() -> T:
        client = await MessageClient.connect(address, link, login=login)
        try:
            return await work(client)
        finally:
            await client.close()

    with told_to_a_person(site, CURE):
        return asyncio.run(worked())


def access_of(site: BrokerAccess) -> tuple[Address, PasswordLogin | TokenLogin | None]:
    """Where to connect, and how to log in; None: without a name. Raises `Misuse`."""
    address = client_address(site.broker, tls_of(site.ca_file))
    return address, login_of(site) if site.token_file is None else _token_login(site, site.token_file, address)


def _token_login(site: BrokerAccess, file: Path, address: Address) -> TokenLogin:
    """The login by the token in a file. Raises `Misuse`."""
    if site.user is not None or site.password_file is not None:
        raise Misuse("there are two ways to log in.", "Give --user with --password-file, or --token-file, not both.")
    if address.tls is None and address.unix_path is None:
        raise Misuse(
            "a token is not sent without TLS: whoever reads it could log in with it.",
            "Write amqps:// before the host of --broker, or give --ca-file.",
        )
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"the token {file} can't be read: {error}.", "Give the file of the token.") from error
    if not token:
        raise Misuse(f"{file} is empty: there is no token.", "Write the token into it.")
    return TokenLogin(token)


def client_address(text: str, tls: ssl.SSLContext | None) -> Address:
    """Read amqp://HOST, amqps://HOST, HOST:PORT or unix:PATH. amqps without a CA of its own trusts the system's. The
    port that is left out is the one for TLS if there is a CA, whatever the scheme.

    Raises:
        Misuse: it is none of these.
    """
    scheme, slashes, rest = text.partition("://")
    if not slashes:
        scheme, rest = "amqp", text
    if scheme not in SCHEMES:
        raise Misuse(f"{text!r} is not an address of a broker.", "Write amqp://HOST:PORT or amqps://HOST:PORT.")
    if scheme == "amqps" and tls is None:
        tls = ssl.create_default_context()
    where = rest.rstrip("/")
    if not where.startswith("unix:") and ":" not in where.rpartition("]")[2]:
        where = f"{where}:{PORT if tls is None else TLS_PORT}"
    try:
        return Address.parse(where, tls)
    except ValueError as error:
        raise Misuse(f"{text!r} is not an address of a broker.", "Write amqp://HOST:PORT, or HOST:PORT.") from error
