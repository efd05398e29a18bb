"""Load during faults: a producer that counts the accepted messages, and a consumer of a shared durable subscription
that must receive all of them. Each runs on a thread and connects again whenever its connection is lost.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from proton import Delivery, Message, ProtonException
from proton.utils import BlockingConnection
from support.proton_client import Subscribed
from support.waiting import until

__all__ = ["Load", "flowing"]

PAUSE_SECONDS = 0.005
AGAIN_SECONDS = 0.2
ANSWER_SECONDS = 20


@dataclass
class Load:
    """A producer and a consumer, and what they have sent and received."""

    url: Callable[[], str]
    """Where the broker is, asked before each connection."""
    accepted: set[int] = field(default_factory=set[int])
    received: set[int] = field(default_factory=set[int])
    refused: int = 0
    reconnects: int = 0
    last_problem: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)
    _next: int = 0

    def publish(self) -> None:
        """Send one message after the other, each until it is accepted."""
        self._again(self._publish_on)

    def consume(self) -> None:
        """Receive messages."""
        self._again(self._consume_on)

    def flows(self, count: int = 20, seconds: float = 60) -> None:
        """Wait until this number of further messages was accepted and received. Raises `TimeoutError`."""
        accepted, received = len(self.accepted) + count, len(self.received) + count
        try:
            until(
                lambda: len(self.accepted) >= accepted and len(self.received) >= received, "messages to flow", seconds
            )
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the last problem: {self.last_problem}") from error

    def stop(self) -> None:
        """Stop both."""
        self._stop.set()

    def lacking(self) -> set[int]:
        """The messages that were accepted, but not received so far."""
        return self.accepted - self.received

    def _again(self, work: Callable[[BlockingConnection], None]) -> None:
        while not self._stop.is_set():
            try:
                connection = BlockingConnection(self.url(), timeout=ANSWER_SECONDS)
                try:
                    work(connection)
                finally:
                    connection.close()
            except (ProtonException, OSError) as error:
                self.last_problem = str(error)
                self.reconnects += 1
                self._stop.wait(AGAIN_SECONDS)

    def _publish_on(self, connection: BlockingConnection) -> None:
        sender = connection.create_sender("orders/eu.chaos")
        while not self._stop.wait(PAUSE_SECONDS):
            delivery = sender.send(Message(body=self._next, durable=True, properties={"amount": 1}))
            if delivery.remote_state == Delivery.ACCEPTED:
                self.accepted.add(self._next)
                self._next += 1
            else:
                self.refused += 1

    def _consume_on(self, connection: BlockingConnection) -> None:
        receiver = connection.create_receiver("orders", name="billing", options=Subscribed(), credit=50)
        while not self._stop.is_set() or self.lacking():
            self.received.add(int(str(receiver.receive(timeout=ANSWER_SECONDS).body)))
            receiver.accept()


@contextmanager
def flowing(url: Callable[[], str]) -> Generator[Load]:
    """Runs a load during the block; at its end every accepted message must have been received."""
    load = Load(url)
    threads = [threading.Thread(target=work, daemon=True) for work in (load.publish, load.consume)]
    for thread in threads:
        thread.start()
    try:
        load.flows(1)
        yield load
        load.flows()
    finally:
        load.stop()
        for thread in threads:
            thread.join(ANSWER_SECONDS * 3)
    assert not load.lacking(), f"{len(load.lacking())} messages were accepted and never came"
