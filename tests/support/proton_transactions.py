"""A client of the transaction machine: proton's own engine on one end of a socket pair, with a coordinator link."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import Any

from proton import (
    Delivery,
    Described,
    Event,
    Link,
    Message,
    Receiver,
    Sender,
    Terminus,
    ulong,
)
from support.engine_client import EngineClient, arrived

__all__ = ["ProtonTransactionClient"]

DECLARE, DISCHARGE, TRANSACTIONAL = 0x31, 0x32, 0x34
ACCEPTED = Described(ulong(0x24), [])
REJECTED = Described(ulong(0x25), [])


class ProtonTransactionClient:
    """One connection with one session: a sender and a receiver per queue."""

    def __init__(self, sock: socket.socket, queues: Sequence[str]) -> None:
        self._engine = EngineClient(sock, "client", self._look)
        self._session = self._engine.session
        self._coordinator = self._session.sender("coordinator")
        self._coordinator.target.type = Terminus.COORDINATOR
        self._coordinator.open()
        self._senders = {queue: self._sender(queue) for queue in queues}
        self._receivers: dict[str, Receiver] = {}
        self._tags = 0
        self.held: dict[str, Delivery] = {}
        """What came and was not settled, by body."""
        self.came: list[tuple[str, str, int]] = []
        """Queue, body and delivery-count, since somebody looked."""

    def _sender(self, queue: str) -> Sender:
        link = self._session.sender(f"to {queue}")
        link.target.address = queue
        link.open()
        return link

    def may_send(self, queue: str) -> bool:
        """True if there is credit for a message."""
        return self._senders[queue].credit > 0

    def attach(self, queue: str, *, credit: int = 1000, settles_second: bool = False) -> None:
        """Open a receiver, with much credit if nothing else is said."""
        link = self._session.receiver(f"from {queue} {self._tags}")
        self._tags += 1
        link.source.address = queue
        link.rcv_settle_mode = Link.RCV_SECOND if settles_second else Link.RCV_FIRST
        link.open()
        link.flow(credit)
        self._receivers[queue] = link

    def consumes(self, queue: str) -> bool:
        """True if there is a receiver."""
        return queue in self._receivers

    def detach(self, queue: str) -> None:
        """Close the receiver."""
        self._receivers.pop(queue).close()

    def declare(self) -> Delivery:
        """Ask for a transaction; `name_in` tells its name once it is answered."""
        return self._send(self._coordinator, Message(body=Described(ulong(DECLARE), [None])), None)

    @staticmethod
    def name_in(answer: Delivery) -> bytes:
        """The name that an answered declaration tells."""
        data: Any = answer.remote.data
        return bytes(data[0])

    def discharge(self, txn_id: bytes, *, fail: bool) -> Delivery:
        """Ask for its end."""
        return self._send(self._coordinator, Message(body=Described(ulong(DISCHARGE), [txn_id, fail])), None)

    def post(self, queue: str, body: str, txn_id: bytes | None) -> Delivery:
        """Send a durable message, in a transaction if one is named."""
        return self._send(self._senders[queue], Message(body=body, durable=True), txn_id)

    def reject(self, body: str, txn_id: bytes) -> None:
        """Reject a delivery in a transaction, and settle it."""
        delivery = self.held.pop(body)
        disposition: Any = delivery.local
        disposition.data = [txn_id, REJECTED]
        delivery.update(TRANSACTIONAL)
        delivery.settle()

    def accept(self, body: str, txn_id: bytes | None, *, settled: bool) -> None:
        """Accept a delivery, in a transaction if one is named."""
        delivery = self.held[body]
        if txn_id is None:
            delivery.update(Delivery.ACCEPTED)
        else:
            disposition: Any = delivery.local  # its data are typed as those of proton's own states
            disposition.data = [txn_id, ACCEPTED]
            delivery.update(TRANSACTIONAL)
        if settled:
            delivery.settle()
            del self.held[body]

    def _send(self, link: Sender, message: Message, txn_id: bytes | None) -> Delivery:
        self._tags += 1
        delivery = link.delivery(str(self._tags))
        if txn_id is not None:
            disposition: Any = delivery.local
            disposition.data = [txn_id]
            delivery.update(TRANSACTIONAL)
        link.stream(message.encode())
        link.advance()
        return delivery

    # -- bytes ------------------------------------------------------------------------------------------------------

    def flush(self) -> int:
        """Send what there is; how many bytes."""
        return self._engine.flush()

    def receive(self) -> int:
        """Read what there is; how many bytes."""
        return self._engine.receive(OSError)

    def _look(self, events: Iterator[Event]) -> None:
        for event in events:
            link = event.link
            if event.type is Event.LINK_REMOTE_CLOSE and link is not None:
                assert link.remote_condition is None, link.remote_condition
            if isinstance(link, Receiver) and event.delivery is not None:
                self._take(link, event.delivery)

    def _take(self, link: Link, updated: Delivery) -> None:
        for message, delivery in arrived(link):
            assert isinstance(message.body, str)
            assert message.body not in self.held, "it came twice"
            self.held[message.body] = delivery
            self.came.append((link.source.address or "", message.body, message.delivery_count))
        if updated.settled:
            for body in [body for body, delivery in self.held.items() if delivery == updated]:
                del self.held[body]

    def cut(self) -> None:
        """Leave without a word, and give everything back."""
        self._engine.cut()
