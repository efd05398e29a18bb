"""Blocking clients for the tests, on proton's own Python API."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from proton import Data, Delivery, Endpoint, Link, Message, ProtonException, Terminus, Timeout, symbol
from proton.reactor import Container, LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

__all__ = [
    "Browsing",
    "NoLocalFilter",
    "NullSource",
    "SelectedBy",
    "Subscribed",
    "arrived",
    "close",
    "connected",
    "is_empty",
    "publish",
    "take",
]

SECONDS = 300
"""Only a test that fails waits so long."""


@contextmanager
def connected(url: str, container: str | None = None, **arguments: Any) -> Generator[BlockingConnection]:
    """A connection that is closed at the end, unless the test did it."""
    owner = Container()
    if container is not None:
        owner.container_id = container
    connection = BlockingConnection(url, timeout=SECONDS, container=owner, **arguments)
    try:
        yield connection
    finally:
        with suppress(ProtonException):  # the test may have killed the broker: notice that before a close waits for it
            owner.timeout = 0
            for _ in range(8):
                owner.process()
        with suppress(ProtonException):
            connection.close()


class Subscribed(LinkOption):
    """A durable (or volatile) subscription, shared and global or not."""

    def __init__(self, *, shared: bool = True, global_: bool = True, durable: bool = True) -> None:
        self._names = ["topic", *(["shared"] if shared else []), *(["global"] if global_ else [])]
        self._durable = durable

    def apply(self, link: Link) -> None:
        source = link.source
        put_symbols(source.capabilities, self._names)
        source.durability = Terminus.DELIVERIES if self._durable else Terminus.NONDURABLE
        source.expiry_policy = Terminus.EXPIRE_NEVER if self._durable else Terminus.EXPIRE_WITH_LINK


class NullSource(LinkOption):
    """What unsubscribes: no source at all."""

    def apply(self, link: Link) -> None:
        link.source.type = Terminus.UNSPECIFIED


class Browsing(LinkOption):
    """distribution-mode copy."""

    def apply(self, link: Link) -> None:
        link.source.distribution_mode = Terminus.DIST_MODE_COPY


class SelectedBy(LinkOption):
    """A JMS selector, as the Qpid JMS client sends it."""

    def __init__(self, selector: str) -> None:
        self._selector = selector

    def apply(self, link: Link) -> None:
        _put_filter(link.source.filter, "jms-selector", 0x0000_468C_0000_0004, self._selector)


class NoLocalFilter(LinkOption):
    """no-local, as the Qpid JMS client sends it."""

    def apply(self, link: Link) -> None:
        _put_filter(link.source.filter, "no-local", 0x0000_468C_0000_0003, "NoLocalFilter{}")


def _put_filter(data: Data, name: str, descriptor: int, value: str) -> None:
    data.put_map()
    data.enter()
    data.put_symbol(symbol(name))
    data.put_described()
    data.enter()
    data.put_ulong(descriptor)
    data.put_string(value)
    data.exit()
    data.exit()


def put_symbols(data: Data, names: Sequence[str]) -> None:
    """An array of symbols."""
    data.put_array(False, Data.SYMBOL)
    data.enter()
    for name in names:
        data.put_symbol(symbol(name))
    data.exit()


def publish(sender: BlockingSender, bodies: Sequence[str | int], *, durable: bool = True, **fields: Any) -> None:
    """Send messages and wait until each is accepted."""
    for body in bodies:
        delivery = sender.send(Message(body=body, durable=durable, **fields))
        assert delivery.remote_state == Delivery.ACCEPTED


def take(receiver: BlockingReceiver, count: int) -> list[tuple[object, int]]:
    """Receive and accept `count` messages: body and delivery-count of each."""
    taken: list[tuple[object, int]] = []
    for _ in range(count):
        message = receiver.receive(timeout=SECONDS)
        receiver.accept()
        taken.append((message.body, message.delivery_count))
    return taken


def arrived(receiver: BlockingReceiver, count: int) -> list[object]:
    """The bodies of the next `count` messages, left unsettled.

    Nothing here grants credit, unlike `receive`; a receiver that was made with credit keeps it topped up, though.
    """
    fetcher = receiver.fetcher
    assert fetcher is not None
    receiver.connection.wait(lambda: len(fetcher.incoming) >= count, timeout=SECONDS)
    return [fetcher.pop().body for _ in range(count)]


def close(link: BlockingReceiver) -> tuple[str, object] | None:
    """Close a link and wait for the answer: the condition and `penstock:reason` of its error, None without one."""
    link.link.close()
    link.connection.wait(lambda: link.link.state & Endpoint.REMOTE_CLOSED, timeout=SECONDS)
    condition = link.link.remote_condition
    if condition is None:
        return None
    info = condition.info
    return condition.name, info["penstock:reason"] if isinstance(info, dict) else None


def is_empty(receiver: BlockingReceiver) -> bool:
    """True if nothing comes: asked by draining, which the broker answers once it has nothing left."""
    fetcher = receiver.fetcher
    assert fetcher is not None
    receiver.link.drain(1)
    try:
        receiver.connection.wait(lambda: receiver.link.credit == 0 or bool(fetcher.has_message), timeout=SECONDS)
    except Timeout:
        raise AssertionError("the drain was not answered") from None
    return not fetcher.has_message
