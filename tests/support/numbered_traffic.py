"""Durable messages, each with a number of its own, and what became of each: for runs that may lose none.

A client is one connection for its whole life. If it ends, that is a failure of the run.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from proton import Message, Timeout
from proton.utils import BlockingConnection, SendException
from support.proton_client import Subscribed

__all__ = ["Traffic"]

ANSWER_SECONDS: Final = 600
"""A producer whose broker has no room waits for its answer."""
LOOK_SECONDS: Final = 1


@dataclass(slots=True)
class Traffic:
    """Producers and consumers of one broker. Names of messages are PRODUCER-NUMBER."""

    url: str
    accepted: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])
    received: Counter[str] = field(default_factory=Counter[str])
    failures: list[str] = field(default_factory=list[str])
    _stops: dict[str, threading.Event] = field(default_factory=dict[str, threading.Event])
    _threads: dict[str, threading.Thread] = field(default_factory=dict[str, threading.Thread])

    def produce(self, name: str, address: str, *, size: int, pause: float) -> None:
        """Send to an address until `stop`, each message when the one before was answered."""
        self._begin(name, partial(self._produce, name, address, size, pause))

    def consume(self, name: str, address: str, *, subscription: str | None = None) -> None:
        """Take and accept all messages of a queue, or of a subscription of this name to an exchange, until `stop`."""
        self._begin(name, partial(self._consume, address, subscription, self._stop_of(name)))

    def stop(self, *names: str) -> None:
        """End these clients; all if none is named. Raises TimeoutError if one does not end."""
        for name in names or tuple(self._threads):
            self._stop_of(name).set()
            self._threads[name].join(ANSWER_SECONDS)
            if self._threads[name].is_alive():
                raise TimeoutError(f"{name} does not end")

    def count(self, producer: str) -> int:
        """How many messages of this producer were accepted."""
        return sum(each.startswith(f"{producer}-") for each in tuple(self.accepted))

    def goes_on(self) -> bool:
        """True; raises AssertionError if a client has failed."""
        assert not self.failures, self.failures
        return True

    def missing(self, among: list[str]) -> set[str]:
        """Those messages of a list that nobody has received."""
        return set(among) - set(self.received)

    def repeated(self) -> list[str]:
        """Messages that came more than once."""
        return [name for name, times in self.received.items() if times > 1]

    def _stop_of(self, name: str) -> threading.Event:
        return self._stops.setdefault(name, threading.Event())

    def _begin(self, name: str, work: Callable[[], None]) -> None:
        def do() -> None:
            try:
                work()
            except Exception as error:  # whatever it is: the run tells it
                self.failures.append(f"{name}: {error!r}")

        self._threads[name] = threading.Thread(target=do, daemon=True)
        self._threads[name].start()

    def _produce(self, name: str, address: str, size: int, pause: float) -> None:
        connection = BlockingConnection(self.url, timeout=ANSWER_SECONDS)
        sender: Any = connection.create_sender(address)
        stop, number = self._stop_of(name), 0
        while not stop.wait(pause):
            number += 1
            message = Message(id=f"{name}-{number}", body=os.urandom(size), durable=True)
            try:
                sender.send(message)
                self.accepted.append(f"{name}-{number}")
            except SendException:
                self.refused.append(f"{name}-{number}")
                stop.wait(LOOK_SECONDS)
        connection.close()

    def _consume(self, address: str, subscription: str | None, stop: threading.Event) -> None:
        connection = BlockingConnection(self.url, timeout=ANSWER_SECONDS)
        options = None if subscription is None else Subscribed()
        receiver = connection.create_receiver(address, credit=20, name=subscription, options=options)
        while not stop.is_set():
            with suppress(Timeout):
                message = receiver.receive(timeout=LOOK_SECONDS)
                self.received[str(message.id)] += 1
                receiver.accept()
        connection.close()
