"""Sends requests to a broker's `$management` on behalf of a verb, and turns errors into messages for a person.

This module must not know what the verbs ask for.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from penstock_amqp.client.address import Address
from penstock_amqp.client.errors import ManagementError, RequestRefused, TransportError
from penstock_amqp.client.management import ManagementClient
from penstock_amqp.errors import EncodeError, WireError
from penstock_amqp.sasl.client import NotAuthenticated
from penstock_amqp.sasl.password_login import PasswordLogin
from penstock_api.connection_failures import connection_failure
from penstock_api.failure import Failure, Misuse
from penstock_api.management import EntityType, Operation, StatusCode
from penstock_cli.broker_options import BrokerAccess

__all__ = ["ask", "ask_beside", "find", "login_of", "tls_of", "told_to_a_person"]

T = TypeVar("T")
_Connect: TypeAlias = Callable[[], Awaitable[ManagementClient]]


def ask(site: BrokerAccess, question: Callable[[ManagementClient], Awaitable[T]]) -> T:
    """Connect, call `question` with the client, close the connection, and return the answer.

    Raises:
        Misuse: the address, or a file that the options name, can't be used.
        Failure: the broker can't be reached, or refuses.
    """

    async def with_one(connect: _Connect) -> T:
        async with _connected(connect) as client:
            return await question(client)

    return _run(site, with_one)


def ask_beside(site: BrokerAccess, question: Callable[[ManagementClient, ManagementClient], Awaitable[T]]) -> T:
    """The same with two connections: answers come in order on each, so the second one asks while the first waits."""

    async def with_two(connect: _Connect) -> T:
        async with _connected(connect) as client, _connected(connect) as beside:
            return await question(client, beside)

    return _run(site, with_two)


def _run(site: BrokerAccess, work: Callable[[_Connect], Coroutine[Any, Any, T]]) -> T:
    login = login_of(site)
    try:
        address = Address.parse(site.broker, tls_of(site.ca_file))
    except ValueError as error:
        raise Misuse(f"the broker can't be asked: {error}.", _way_to_write(site.broker)) from error
    with told_to_a_person(site, "Check that it is running, and that --broker is its management listener."):
        return asyncio.run(work(lambda: ManagementClient.connect(address, login=login)))


@contextmanager
def told_to_a_person(site: BrokerAccess, cure: str) -> Generator[None]:
    """Turn the errors of a client into a `Failure`; `cure`: what to do if the broker can't be reached."""
    try:
        yield
    except ManagementError as error:
        raise Failure(
            f"the broker refuses: {error.description}", f"Reason: {error.reason}" if error.reason else ""
        ) from error
    except NotAuthenticated as error:
        raise Failure(
            f"the broker refused the login of {_who(site)}: {error}.",
            "Check --user and --password-file." if site.token_file is None else _TOKEN_CURE,
        ) from error
    except RequestRefused as error:
        raise Failure(
            f"the broker did not take the message: {error.description.rstrip('.')}.", f"Condition: {error.condition}"
        ) from error
    except EncodeError as error:
        raise Misuse(f"a value can't be sent: {error}.", "Write names and texts in UTF-8.") from error
    except (OSError, WireError) as error:  # a TimeoutError is an OSError
        if isinstance(error.__cause__, EncodeError):  # while the link was made
            raise Misuse(f"a value can't be sent: {error.__cause__}.", "Write names and texts in UTF-8.") from error
        if isinstance(error, TransportError) and error.condition is not None:
            raise Failure(f"the broker refuses: {error.reason}", f"Condition: {error.condition}") from error
        why = str(error) if not isinstance(error, OSError) or isinstance(error, TransportError) else None
        is_distrust = isinstance(error.__cause__, ssl.SSLCertVerificationError)
        raise Failure(
            f"the broker at {site.broker} can't be asked: {(why or connection_failure(error)).rstrip('.')}.",
            _TRUST_CURE if is_distrust else cure,
        ) from error


_TRUST_CURE: Final = "Give --ca-file with the CA that has signed it, and a host in --broker for which it is made."
_TOKEN_CURE: Final = "Check that the token is not older than it may be, and that the broker trusts who signed it."


def _who(site: BrokerAccess) -> str:
    return f"the token in {site.token_file}" if site.token_file is not None else site.user or "anonymous"


def _way_to_write(broker: str) -> str:
    scheme, slashes, rest = broker.partition("://")
    if slashes:
        return f"Leave out {scheme}://: --broker {rest.rstrip('/')}"
    return "Give --broker HOST:PORT, such as 127.0.0.1:5670, or --broker unix:PATH."


def login_of(site: BrokerAccess) -> PasswordLogin | None:
    """User and password of the options; None without a user. Raises `Misuse`."""
    if site.user is None:
        if site.password_file is not None:
            raise Misuse(
                f"there is a password in {site.password_file}, and nobody to log in with it.", "Say who with --user."
            )
        return None
    if not site.user:
        raise Misuse("--user is empty.", "Name the user, or leave --user out to log in without a name.")
    if site.password_file is None:
        raise Misuse(f"there is no password for {site.user}.", "Give the file that holds it with --password-file.")
    try:
        password = site.password_file.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise Misuse(f"{site.password_file} can't be read: {error.strerror}.", "See --password-file.") from error
    except UnicodeDecodeError as error:
        raise Misuse(f"{site.password_file} is not text in UTF-8.", "See --password-file.") from error
    if not password:
        raise Misuse(
            f"{site.password_file} is empty: there is no password for {site.user}.", "Write the password into the file."
        )
    return PasswordLogin(site.user, password)


def tls_of(ca_file: Path | None) -> ssl.SSLContext | None:
    """Trust in the CA certificates of a file; None without a file. Raises `Misuse`."""
    if ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:  # an SSLError is one
        why = "" if isinstance(error, ssl.SSLError) else f": {error.strerror}"
        raise Misuse(f"{ca_file} holds no certificates that can be read{why}.", "Give a PEM file.") from error


@asynccontextmanager
async def _connected(connect: _Connect) -> AsyncGenerator[ManagementClient]:
    client = await connect()
    try:
        yield client
    finally:
        await client.close()


async def find(
    client: ManagementClient, name: str, kinds: Sequence[EntityType] = (EntityType.QUEUE, EntityType.SUBSCRIPTION)
) -> tuple[EntityType, str]:
    """Type and name of what a person means by `name`: a queue, the queue of a subscription, or a subscription.

    `kinds`: what it may be; a queue has precedence over a subscription of its name.
    Raises `Failure` if the broker has nothing of this name, or several subscriptions: only the broker could tell.
    """
    # Asked by name first: that is two requests, and a list of all subscriptions may be many.
    for kind in kinds:
        reply = await client.request(Operation.READ, kind, name)
        if reply.status != StatusCode.NOT_FOUND:
            reply.check()
            return kind, name
    columns = ("queueName", "subscriptionName")
    there = await client.query_all(EntityType.SUBSCRIPTION, attributes=columns)
    found = [str(each["queueName"]) for each in there if name in (each["queueName"], each["subscriptionName"])]
    if len(found) == 1:
        return EntityType.SUBSCRIPTION, found[0]
    if found:
        raise Failure(f"several subscriptions are named {name!r}.", f"Say which: {', '.join(sorted(found))}")
    if EntityType.QUEUE not in kinds:
        raise Failure(f"there is no subscription {name!r}.", "See `penstock subscriptions list`.")
    raise Failure(
        f"there is neither a queue nor a subscription {name!r}.",
        "See `penstock queues list` and `penstock subscriptions list`.",
    )
