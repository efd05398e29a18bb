"""A client of the whole-broker machine: proton's own engine on one end of a socket pair, and what it saw, in order."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from proton import Delivery, Event, Link, Message, Receiver, Sender, Terminus
from support.engine_client import EngineClient, arrived
from support.proton_client import put_symbols

__all__ = ["Accepted", "Answered", "Client", "Closed", "Consuming", "Delivered", "Opened", "Seen", "Source"]

EXPIRY = {
    "link-detach": Terminus.EXPIRE_WITH_LINK,
    "session-end": Terminus.EXPIRE_WITH_SESSION,
    "connection-close": Terminus.EXPIRE_WITH_CONNECTION,
    "never": Terminus.EXPIRE_NEVER,
}


@dataclass(frozen=True)
class Source:
    """The source of an attach, asked or answered."""

    address: str
    shared: bool
    global_: bool
    durable: bool
    expiry: str


@dataclass
class Consuming:
    """A receiver. `number` is the model's."""

    number: int
    link: Receiver
    is_answered: bool = False
    is_leaving: bool = False
    credit: int = 0
    held: dict[str, Delivery] = field(default_factory=dict[str, Delivery])


@dataclass(frozen=True)
class Opened:
    """The connection is open."""


@dataclass(frozen=True)
class Answered:
    """An attach was answered with a source."""

    number: int
    source: Source


@dataclass(frozen=True)
class Closed:
    """The broker detached or closed a link, of its own accord or in answer."""

    number: int
    closed: bool
    condition: str | None


@dataclass(frozen=True)
class Delivered:
    """A message came."""

    number: int
    body: str
    delivery_count: int


@dataclass(frozen=True)
class Accepted:
    """A message of ours was accepted."""

    body: str


Seen: TypeAlias = Opened | Answered | Closed | Delivered | Accepted


class Client:
    """One connection with one session at a time."""

    def __init__(self, container_id: str, number: int, sock: socket.socket) -> None:
        self.container_id, self.number = container_id, number
        self.session_number = 0
        self.is_open = False
        self._seen: list[Seen] = []
        """Where the meaning of what is read goes."""
        self._engine = EngineClient(sock, container_id, self._look)
        self._connection = self._engine.connection
        self.session = self._engine.session
        self.consuming: dict[str, Consuming] = {}
        """Receivers by link name."""
        self._senders: dict[str, Sender] = {}
        self.sent: dict[str, Delivery] = {}
        """Messages that are not accepted yet."""

    # -- what the machine has it do ---------------------------------------------------------------------------------

    def attach(self, number: int, name: str, source: Source | None) -> None:
        """Open a receiver, with a null source if there is none."""
        link = self.session.receiver(name)
        if source is None:
            link.source.type = Terminus.UNSPECIFIED
        else:
            words = [("topic", True), ("shared", source.shared), ("global", source.global_)]
            put_symbols(link.source.capabilities, [word for word, is_said in words if is_said])
            link.source.address = source.address
            link.source.durability = Terminus.DELIVERIES if source.durable else Terminus.NONDURABLE
            link.source.expiry_policy = EXPIRY[source.expiry]
        link.open()
        self.consuming[name] = Consuming(number, link)

    def leave(self, consuming: Consuming, *, closed: bool) -> None:
        """Detach or close a receiver."""
        consuming.is_leaving = True
        if closed:
            consuming.link.close()
        else:
            consuming.link.detach()

    def grant(self, consuming: Consuming, credit: int) -> None:
        """Let `credit` more messages come."""
        consuming.credit += credit
        consuming.link.flow(credit)

    def settle(self, consuming: Consuming, body: str, state: int, *, failed: bool, undeliverable: bool) -> None:
        """End one delivery."""
        delivery = consuming.held.pop(body)
        if state == Delivery.MODIFIED:
            delivery.local.failed = failed
            delivery.local.undeliverable = undeliverable
        delivery.update(state)
        delivery.settle()

    def produce(self, address: str) -> bool:
        """Open a sender unless there is one; True if it may send."""
        sender = self._senders.get(address)
        if sender is None:
            sender = self._senders[address] = self.session.sender(f"to {address} {self.session_number}")
            sender.target.address = address
            sender.open()
        return sender.credit > 0

    def send(self, address: str, body: str, *, durable: bool, padding: int = 0) -> None:
        """Send one message, `padding` bytes longer than it need be."""
        sender = self._senders[address]
        self.sent[body] = sender.delivery(body)
        properties = {"padding": "x" * padding} if padding else None
        sender.send(Message(body=body, durable=durable, properties=properties).encode())
        sender.advance()

    def renew_session(self) -> None:
        """End the session and all its links, and begin another one."""
        self.session.close()
        self.session = self._connection.session()
        self.session.open()
        self.session_number += 1
        self._forget_links()

    def close(self) -> None:
        """Say good-bye."""
        self._connection.close()
        self.is_open = False
        self._forget_links()

    def cut(self) -> None:
        """Leave without a word, and give everything back."""
        self.is_open = False
        self._forget_links()
        self._engine.cut()

    def _forget_links(self) -> None:
        self.consuming.clear()
        self._senders.clear()
        self.sent.clear()

    # -- bytes ------------------------------------------------------------------------------------------------------

    def flush(self) -> int:
        """Send what there is, unless the broker has gone; how many bytes."""
        return self._engine.flush(OSError)

    def receive(self, out: list[Seen]) -> int:
        """Read what there is, also before the broker has gone, and append what it means to `out`; how many bytes."""
        self._seen = out
        return self._engine.receive(OSError)

    def _look(self, events: Iterator[Event]) -> None:
        out = self._seen
        for event in events:
            self._told(event, out)
        for body, delivery in list(self.sent.items()):
            if delivery.remote_state:
                assert delivery.remote_state == Delivery.ACCEPTED
                delivery.settle()
                del self.sent[body]
                out.append(Accepted(body))

    def _told(self, event: Event, out: list[Seen]) -> None:
        if event.type is Event.CONNECTION_REMOTE_OPEN:
            self.is_open = True
            out.append(Opened())
            return
        link = event.link
        consuming = self.consuming.get(link.name) if isinstance(link, Receiver) else None
        if not isinstance(link, Receiver) or consuming is None or link != consuming.link:
            return
        if event.type is Event.LINK_REMOTE_OPEN and link.remote_source.type != Terminus.UNSPECIFIED:
            consuming.is_answered = True
            out.append(Answered(consuming.number, _source(link)))
        elif event.type is Event.DELIVERY:
            _take(consuming, out)
        elif event.type in (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH):
            closed = event.type is Event.LINK_REMOTE_CLOSE
            condition = link.remote_condition
            out.append(Closed(consuming.number, closed, condition.name if condition is not None else None))
            del self.consuming[link.name]
            if not consuming.is_leaving:
                link.close()
            link.free()


def _take(consuming: Consuming, out: list[Seen]) -> None:
    for message, delivery in arrived(consuming.link):
        consuming.credit -= 1
        assert isinstance(message.body, str)
        consuming.held[message.body] = delivery
        out.append(Delivered(consuming.number, message.body, message.delivery_count))


def _source(link: Link) -> Source:
    remote = link.remote_source
    data = remote.capabilities
    data.rewind()
    array = data.get_py_array() if data.next() is not None else None
    names = [str(name) for name in (array.elements if array is not None else ())]
    (expiry,) = [name for name, policy in EXPIRY.items() if policy == remote.expiry_policy]
    assert "topic" in names
    return Source(
        address=remote.address or "",
        shared="shared" in names,
        global_="global" in names,
        durable=remote.durability != Terminus.NONDURABLE,
        expiry=expiry,
    )
