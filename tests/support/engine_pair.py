"""A client's end of a connection in memory: proton's own Python API, wired to an `Endpoint` without sockets."""

from __future__ import annotations

from proton import Collector, Connection, Receiver, Sender, Session, Transport

from penstock_amqp.endpoint import buffers
from penstock_amqp.endpoint.endpoint import Endpoint
from penstock_amqp.endpoint.events import Attached, Event, EventKind, Flowed, Other
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_amqp.frames.performatives import Source, Target

__all__ = ["EnginePair"]


class EnginePair:
    """An endpoint and a proton client, whose bytes are carried by `exchange`."""

    def __init__(self, *, max_message_bytes: int = 1_000_000, client_max_frame: int = 0) -> None:
        self.endpoint = Endpoint(max_message_bytes=max_message_bytes)
        self.transport = Transport()
        if client_max_frame:
            self.transport.max_frame_size = client_max_frame
        self.connection = Connection()
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.connection.container = "client-1"
        self.transport.bind(self.connection)
        self.events: list[Event] = []
        """What the endpoint told in the last `exchange`."""
        self._unread = b""

    def close(self) -> None:
        self.endpoint.free()
        self.transport.unbind()
        self.connection.free()
        self.collector.release()

    def exchange(self, *, chunk: int = 1 << 30) -> list[Event]:
        """Carry bytes both ways until both are silent; the endpoint gets them in pieces of at most `chunk`."""
        self.events = []
        while True:
            sent = self._to_endpoint(chunk) + self._to_client()
            if sent == 0:
                return self.events

    def _to_endpoint(self, chunk: int) -> int:
        total = 0
        while (pending := self.transport.pending()) > 0:
            data = bytes(self.transport.peek(pending) or b"")
            self.transport.pop(len(data))
            for start in range(0, len(data), chunk):
                self._give(data[start : start + chunk])
            total += len(data)
        if self._unread and not total:
            total = self._give(b"")
        return total

    def _give(self, data: bytes) -> int:
        """Give the endpoint more; how many bytes it took of what it has not taken so far."""
        unread = self._unread + data
        taken = self.endpoint.receive_bytes(unread, self.events)
        self._unread = unread[taken:]
        return taken

    def _to_client(self) -> int:
        total = 0
        if self.endpoint.changes.are_pending:
            data = self.endpoint.rewritten_output()
            self.push(data)
            total += len(data)
        while size := self.endpoint.output():
            self.push(buffers.OUTPUT_VIEW[:size].tobytes())
            total += size
        return total

    def push(self, data: bytes) -> None:
        while data:
            piece = data[: self.transport.capacity()]
            self.transport.push(piece)
            data = data[len(piece) :]

    # -- short cuts -------------------------------------------------------------------------------------------------

    def others(self) -> list[Other]:
        """The records among the last events, but for flows, which the client's engine sends when it likes."""
        return [event for event in self.records() if not isinstance(event, Flowed)]

    def records(self) -> list[Other]:
        """The records among the last events."""
        return [event[2] for event in self.events if event[0] is EventKind.OTHER]

    def open(self) -> Session:
        """Open connection and session from both sides."""
        self.connection.open()
        session = self.connection.session()
        session.open()
        self.exchange()
        self.endpoint.open("broker", ("SHARED-SUBS",), {"product": "Penstock"})
        self.exchange()
        return session

    def attach_sender(self, session: Session, name: str = "s", *, credit: int = 100) -> tuple[Sender, InLink]:
        """A client's sender with credit."""
        sender = session.sender(name)
        sender.target.address = "t"
        sender.open()
        self.exchange()
        link = self.attached().link
        assert isinstance(link, InLink)
        self.endpoint.attach_reply(link, source=None, target=Target(address="t"))
        self.endpoint.credit(link, credit)
        self.exchange()
        return sender, link

    def attach_receiver(self, session: Session, name: str = "r", *, credit: int = 100) -> tuple[Receiver, OutLink]:
        """A client's receiver that granted credit."""
        receiver = session.receiver(name)
        receiver.source.address = "q"
        receiver.open()
        self.exchange()
        link = self.attached().link
        assert isinstance(link, OutLink)
        self.endpoint.attach_reply(link, source=Source(address="q"), target=Target())
        receiver.flow(credit)
        self.exchange()
        return receiver, link

    def attached(self) -> Attached:
        """The one attach among the last events."""
        (event,) = [event for event in self.others() if isinstance(event, Attached)]
        return event
