"""Messages too large for memory, sent and received as bare frames: a part at a time, never as a whole in the test."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from support.raw_client import RawClient

from penstock_amqp.frames.performatives import Accepted, Attach, Detach, Disposition, Flow, Source, Target, Transfer
from penstock_amqp.types.values import Symbol

PART = 60_000
MIB = 1024 * 1024

DURABLE = bytes.fromhex("005370 c0020141")
VOLATILE = bytes.fromhex("005370 45")


def pattern(size: int, seed: int = 0) -> Iterator[bytes]:
    """`size` bytes in parts, none like another."""
    at = 0
    while at < size:
        block = hashlib.sha256(f"{seed} {at}".encode()).digest() * (PART // 32)
        yield block[: min(size - at, len(block))]
        at += len(block)


def encoded(size: int, header: bytes = DURABLE, seed: int = 0) -> Iterator[bytes]:
    """A message with one data section of `size` bytes, in parts."""
    yield header + bytes.fromhex("005375 b0") + size.to_bytes(4, "big")
    yield from pattern(size, seed)


def digest(parts: Iterator[bytes]) -> str:
    """What tells messages apart."""
    summary = hashlib.sha256()
    for part in parts:
        summary.update(part)
    return summary.hexdigest()


@dataclass
class Uploading:
    """A link that sends large messages. `session` counts the deliveries of its session."""

    client: RawClient
    handle: int
    next_id: int = 0

    @classmethod
    def to(cls, client: RawClient, address: str) -> Uploading:
        client.attach_sender(f"to {address}", Target(address=address))
        return cls(client, client.last_handle)

    def part(self, data: bytes, *, first: bool = False, more: bool = True, aborted: bool = False) -> None:
        """One transfer of the present message."""
        self.client.send(
            Transfer(
                handle=self.handle,
                delivery_id=self.next_id if first else None,
                delivery_tag=self.next_id.to_bytes(4, "big") if first else None,
                message_format=0 if first else None,
                more=more,
                aborted=aborted or None,
            ),
            payload=data,
        )
        if not more or aborted:
            self.next_id += 1

    def send(self, parts: Iterator[bytes]) -> None:
        """One whole message."""
        held = next(parts)
        is_first = True
        for data in parts:
            self.part(held, first=is_first)
            held, is_first = data, False
        self.part(held, first=is_first, more=False)

    def begin(self, parts: Iterator[bytes], size: int) -> None:
        """The first `size` bytes or so of a message, more to come."""
        is_first = True
        for data in parts:
            self.part(data, first=is_first)
            is_first = False
            size -= len(data)
            if size <= 0:
                return

    def outcome(self) -> str:
        """What becomes of the message sent last: the name of its state."""
        while True:
            received = self.client.receive().performative
            if isinstance(received, Disposition):
                if received.state is None:
                    continue  # settled with its link, or as aborted
                return type(received.state).__name__
            if isinstance(received, Detach):
                return str(received.error.condition if received.error else None)
            assert isinstance(received, Flow), received


def next_transfer(client: RawClient) -> tuple[Transfer, bytes]:
    """The next transfer; flows, and outcomes of what was sent, are passed over."""
    while True:
        received = client.receive()
        if isinstance(received.performative, Transfer):
            return received.performative, received.payload
        assert isinstance(received.performative, Flow | Disposition), received.performative


@dataclass
class Download:
    """A message that came, or as much of it as came."""

    delivery_id: int
    size: int
    digest: str
    header: bytes
    is_aborted: bool


class Downloading:
    """A link that receives. Its deliveries are told apart by handle, so that several can come at a time."""

    def __init__(
        self, client: RawClient, address: str, *, credit: int, name: str = "from", source: Source | None = None
    ):
        self.client = client
        self._frames = 0
        reply: Attach = client.attach_receiver(name, source or Source(address=address))
        self.handle = client.last_handle
        self.theirs = reply.handle
        client.flow(self.handle, credit=credit)

    def receive(self, look: Callable[[], None] = lambda: None) -> Download:
        """The next message. Nothing else may come meanwhile but flows; `look` is called for each transfer."""
        summary, size, header, first_id = hashlib.sha256(), 0, b"", -1
        while True:
            transfer, payload = next_transfer(self.client)
            assert transfer.handle == self.theirs
            if transfer.delivery_id is not None and first_id < 0:
                first_id, header = transfer.delivery_id, payload[:16]
            look()
            self._renew_window()
            summary.update(payload)
            size += len(payload)
            if transfer.aborted or not transfer.more:
                return Download(first_id, size, summary.hexdigest(), header, bool(transfer.aborted))

    def _renew_window(self) -> None:
        """A session's window holds 10,000 frames."""
        self._frames += 1
        if self._frames % 5000 == 0:
            flow = Flow(
                next_incoming_id=self._frames, incoming_window=10_000, next_outgoing_id=0, outgoing_window=10_000
            )
            self.client.send(flow)

    def accept(self, delivery_id: int) -> None:
        self.client.send(Disposition(role=True, first=delivery_id, settled=True, state=Accepted()))


SHARED = (Symbol("shared"), Symbol("global"))
