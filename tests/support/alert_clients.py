"""Clients that bring subscriptions into the states which alerts are about, and fill what a broker has."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from proton import Delivery, Message, ProtonException, symbol
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached, SendException
from support.proton_client import Subscribed

__all__ = ["consume", "fill_memory", "fill_volume", "produce"]

PAUSE_SECONDS: Final = 0.5
ANSWER_SECONDS: Final = 20
LINKS: Final = 20
HOUR_MILLIS: Final = 3_600_000


def _fail(receiver: BlockingReceiver) -> None:
    """The delivery has failed, as a JMS client says after a rollback."""
    assert receiver.fetcher is not None
    receiver.fetcher.unsettled[0].local.failed = True
    receiver.settle(Delivery.MODIFIED)


_SETTLE: Final[dict[str, Callable[[BlockingReceiver], object]]] = {
    "accept": lambda receiver: receiver.accept(),
    "reject": lambda receiver: receiver.reject(),
    "fail": _fail,
}
"""What a consumer says of each message that it gets."""


def produce(url: str, keys: Sequence[str], stop: threading.Event) -> None:
    """Two messages a second with each routing key, each accepted before the next."""
    connection = BlockingConnection(url, timeout=ANSWER_SECONDS)
    senders = {key: connection.create_sender(f"orders/{key}") for key in keys}
    number = 0
    while not stop.wait(PAUSE_SECONDS):
        for key, sender in senders.items():
            number += 1
            with suppress(SendException):  # a full destination refuses
                sender.send(Message(id=f"{key}-{number}", body=number, durable=True))
    connection.close()


def consume(url: str, subscription: str, stop: threading.Event, *, says: str | None, pause: float) -> None:
    """Take messages of a shared durable subscription, whose name is its binding key, and say the same of each; None:
    take ten and say nothing.
    """
    connection = BlockingConnection(url, timeout=ANSWER_SECONDS)
    receiver = connection.create_receiver(
        f"orders/{subscription}", credit=10 if says is None else 1, name=subscription, options=Subscribed()
    )
    while not stop.wait(pause):
        with suppress(ProtonException):
            if says is None:
                connection.wait(stop.is_set, timeout=1)
                continue
            receiver.receive(timeout=1)
            _SETTLE[says](receiver)
    connection.close()


def fill_volume(url: str, queue: str, volume: int, share: float, stop: threading.Event) -> None:
    """Send durable messages until files take this share of the volume. `volume`: a descriptor of its folder."""
    connection = BlockingConnection(url, timeout=ANSWER_SECONDS)
    sender: Any = connection.create_sender(queue)
    while not stop.is_set() and _used(volume) < share:
        try:
            sender.send(Message(body=os.urandom(64 * 1024), durable=True), timeout=ANSWER_SECONDS)
        except (SendException, LinkDetached, ProtonException):  # refused, or slowed down
            stop.wait(PAUSE_SECONDS)
            if not _is_open(sender):
                connection = BlockingConnection(url, timeout=ANSWER_SECONDS)
                sender = connection.create_sender(queue)
    connection.close()


def fill_memory(url: str, queue: str, stop: threading.Event) -> None:
    """Messages that are delayed by an hour, which wait in memory, sent on many links at once: each has credit from
    before the memory was short.
    """
    connection = BlockingConnection(url, timeout=ANSWER_SECONDS)
    senders: list[Any] = [connection.create_sender(queue, name=f"link {number}") for number in range(LINKS)]
    message = Message(body=b"x" * 64 * 1024, durable=True, annotations={symbol("x-opt-delivery-delay"): HOUR_MILLIS})
    while not stop.wait(PAUSE_SECONDS):
        sent: list[Delivery] = []
        for sender in senders:
            for _ in range(min(sender.link.credit, 10)):
                sent.append(sender.link.send(message))
        with suppress(ProtonException):
            connection.wait(partial(_are_answered, sent), timeout=ANSWER_SECONDS)
        for each in sent:
            each.settle()
    connection.close()


def _are_answered(sent: Sequence[Delivery]) -> bool:
    return all(each.remote_state for each in sent)


def _used(volume: int) -> float:
    found = os.statvfs(volume)
    return 1 - found.f_bavail / found.f_blocks


def _is_open(sender: Any) -> bool:
    return bool(sender.link.state & sender.link.REMOTE_ACTIVE)
