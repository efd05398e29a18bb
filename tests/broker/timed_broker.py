"""A broker within this process whose clock stands still until a test moves it, with clients on socket pairs.

Its log is a real one on simulated files: `restart` is a kill -9 of a machine that has written everything.
"""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

from broker.engine_bytes import receive_all, send_all
from broker.log.simulated_files import SimulatedFiles
from proton import Collector, Connection, Delivery, Message, Receiver, Sender, Transport
from proton import Event as EngineEvent

from penstock_api.management import Delivery as DeliveryPolicy
from penstock_api.management import Limits
from penstock_broker.access import listeners
from penstock_broker.access.listeners import Listener
from penstock_broker.assembly import assemble
from penstock_broker.clock import Clock
from penstock_broker.log import Log, SyncChoice
from penstock_broker.log import Settings as LogSettings
from penstock_broker.log.files import FileLayer
from penstock_broker.log.syncing import Syncer
from penstock_broker.queue.queue import Queue
from penstock_broker.settings.settings import Authentication, ListenerSettings, Settings
from penstock_broker.topology.records import PointToPointQueue

__all__ = ["Peer", "TimedBroker"]

ANYBODY = {"listeners": (ListenerSettings(address="127.0.0.1:0"),), "authentication": Authentication(anonymous=True)}


class Peer:
    """One client connection: senders and receivers by address, and what came."""

    def __init__(self, sock: socket.socket, turn: Callable[[], None]) -> None:
        self._sock, self._turn = sock, turn
        self._collector = Collector()
        self.connection = Connection()
        self.connection.collect(self._collector)
        self.connection.container = "peer"
        self._transport = Transport()
        self._transport.bind(self.connection)
        self.connection.open()
        self.session = self.connection.session()
        self.session.open()
        self._senders: dict[str, Sender] = {}
        self._tags = 0
        self.got: list[tuple[Message, Delivery]] = []
        """What came and is not settled, in order."""
        self.pump()

    def send(self, address: str, *messages: Message) -> list[str]:
        """Send, and return the outcome of each: "accepted", "released", or the condition of a rejection."""
        sender = self._senders.get(address)
        if sender is None:
            sender = self._senders[address] = self.session.sender(f"to {address}")
            sender.target.address = address
            sender.open()
            self.pump()
        deliveries: list[Delivery] = []
        for message in messages:
            assert sender.credit > 0, sender.remote_condition
            self._tags += 1
            deliveries.append(sender.delivery(str(self._tags)))
            sender.send(message.encode())
            sender.advance()
        self.pump()
        return [self._outcome(each) for each in deliveries]

    def _outcome(self, delivery: Delivery) -> str:
        state = delivery.remote_state
        condition = delivery.remote.condition
        delivery.settle()
        if state == Delivery.REJECTED and condition is not None:
            return str(condition.name)
        if state == Delivery.ACCEPTED:
            return "accepted"
        return "released" if state == Delivery.RELEASED else str(state)

    def receive(self, address: str, credit: int = 100, *, name: str | None = None) -> Receiver:
        """Attach a receiver with credit."""
        link = self.session.receiver(name or f"from {address}")
        link.source.address = address
        link.open()
        link.flow(credit)
        self.pump()
        return link

    def bodies(self) -> list[object]:
        """Of what came and is not settled."""
        self.pump()
        return [message.body for message, _ in self.got]

    def take(self, state: int = Delivery.ACCEPTED, *, failed: bool = False, undeliverable: bool = False) -> Message:
        """Settle the oldest delivery, and return its message."""
        self.pump()
        message, delivery = self.got.pop(0)
        if state == Delivery.MODIFIED:
            delivery.local.failed = failed
            delivery.local.undeliverable = undeliverable
        delivery.update(state)
        delivery.settle()
        self.pump()
        return message

    def drop(self) -> None:
        """Leave without a word."""
        self.close()
        self._turn()

    def close(self) -> None:
        """Give everything back."""
        self._sock.close()
        self.got.clear()

    def pump(self) -> None:
        """Let both ends talk until they have nothing to say."""
        quiet = 0
        while quiet < 3:
            moved = self._flush()
            self._turn()
            moved += self._read()
            quiet = 0 if moved else quiet + 1

    def _flush(self) -> int:
        return send_all(self._transport, self._sock)

    def _read(self) -> int:
        return receive_all(self._transport, self._sock, self._look, BlockingIOError)

    def _look(self) -> None:
        while (event := self._collector.peek()) is not None:
            if event.type is EngineEvent.TRANSPORT_ERROR:
                raise AssertionError(self._transport.condition)
            if event.type is EngineEvent.DELIVERY and isinstance(event.link, Receiver):
                self._take_in(event.link)
            self._collector.pop()

    def _take_in(self, link: Receiver) -> None:
        while (delivery := link.current) is not None and delivery.readable and not delivery.partial:
            message = Message()
            message.decode(link.recv(delivery.pending) or b"")
            link.advance()
            self.got.append((message, delivery))


class TimedBroker:
    """One data folder, and the broker that serves it now. `now_ms` is the time, until a test changes it."""

    def __init__(
        self,
        settings: dict[str, object] | None = None,
        syncer: Callable[[FileLayer], Syncer] | None = None,
        segment_bytes: int = 64 * 1024,
    ) -> None:
        """`syncer`: who syncs the log, instead of whoever writes it, and at once."""
        self._folder = Path(mkdtemp())  # holds the lock only
        self._settings = Settings.model_validate({**ANYBODY, **(settings or {})})
        self.files = SimulatedFiles()
        self._syncer, self._segment_bytes = syncer, segment_bytes
        self.port: Listener
        """Where clients come in; it is not bound."""
        self._peers: list[Peer] = []
        self.now_ms = 1_000_000
        self.skew_ms = 0
        """How far the time of day has jumped from the timers' clock."""
        self.step_seconds = 0.0
        """What each look at the clock that cuts turns takes, by that clock: what a turn does costs nothing else."""
        self._seconds = 0.0
        self._start()

    def _start(self) -> None:
        self.log, self.recovered = Log.open(
            self._folder,
            files=self.files,
            settings=LogSettings(segment_bytes=self._segment_bytes, sync=SyncChoice.INLINE),
            clock=lambda: self.now_ms,
            entropy=lambda size: b"\7" * size,
            syncer=self._syncer,
        )
        clock = Clock(lambda: (self.now_ms + self.skew_ms) * 1000, lambda: self.now_ms, self._look)
        ports = listeners.listeners_of(self._settings)
        self.port = ports[0]
        self.loop = assemble(self._settings, self.log, self.recovered, ports, queue_max_bytes=1 << 30, clock=clock)
        self.broker = self.loop.broker
        self.turn()

    def _look(self) -> float:
        self._seconds += self.step_seconds
        return self._seconds

    def turn(self) -> None:
        """One turn, without waiting."""
        self.loop.turn(may_wait=False)

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass, and the broker notice it."""
        self.now_ms += milliseconds
        for _ in range(4):
            self.turn()

    def restart(self) -> None:
        """kill -9, and start again."""
        self._end()
        self._start()

    def close(self) -> None:
        """Give everything back."""
        self._end()
        shutil.rmtree(self._folder)

    def _end(self) -> None:
        for peer in self._peers:
            peer.close()
        self._peers.clear()
        for connection in self.broker.clients.connections.values():
            connection.free()
        self.broker.clients.connections.clear()
        os.close(self.log._lock)  # pyright: ignore[reportPrivateUsage]
        self.log._syncer.close()  # pyright: ignore[reportPrivateUsage]
        self.loop.close()

    def connect(self) -> Peer:
        """A new client."""
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        self.loop.add(self.port, ours, "client")
        peer = Peer(theirs, self.turn)
        self._peers.append(peer)
        return peer

    def make_queue(
        self, name: str, delivery: DeliveryPolicy | None = None, limits: Limits | None = None, *, durable: bool = True
    ) -> Queue:
        """Declare a queue."""
        topology = self.broker.topology
        queue = Queue(name, topology.next_incarnation(), is_logged=durable, now_us=self.now_ms * 1000)
        topology.put_queue(
            PointToPointQueue(name=name, durable=durable, queue=queue, delivery=delivery, limits=limits or Limits())
        )
        self.turn()
        return queue

    def queue(self, name: str) -> Queue:
        """A queue that is there."""
        return self.broker.topology.queues[name].queue
