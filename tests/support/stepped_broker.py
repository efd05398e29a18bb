"""A broker within this process whose clock stands still until a test moves it, with clients on socket pairs.

Its log is a real one on simulated files: `restart` is a kill -9 of a machine that has written everything.
"""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

from broker.log.simulated_files import SimulatedFiles
from proton import Delivery, Event, Message, Receiver, Sender
from support.broker_in_process import BrokerInProcess
from support.engine_client import EngineClient, arrived

from penstock_api.management import DeliveryPolicy as DeliveryPolicy
from penstock_api.management import QueueLimits
from penstock_broker.clock import Clock
from penstock_broker.log import FileLayer, LogOptions, Syncer
from penstock_broker.messages.memory_watch import Process
from penstock_broker.queue.queue import Queue
from penstock_broker.settings.settings import Authentication, BrokerSettings, ListenerSettings
from penstock_broker.state.storage import VolumeSpace
from penstock_broker.topology.records import PointToPointQueue

__all__ = ["Peer", "SteppedBroker", "SteppedStream"]

ANYBODY = {"listeners": (ListenerSettings(address="127.0.0.1:0"),), "authentication": Authentication(anonymous=True)}


class Peer:
    """One client connection: senders and receivers by address, and what came."""

    def __init__(self, sock: socket.socket, turn: Callable[[], None], container_id: str = "peer") -> None:
        self._turn = turn
        self._engine = EngineClient(sock, container_id, self._look)
        self.connection, self.session = self._engine.connection, self._engine.session
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
        self._engine.close_socket()
        self.got.clear()

    def pump(self) -> None:
        """Let both ends talk until they have nothing to say."""
        quiet = 0
        while quiet < 3:
            moved = self.flush()
            self._turn()
            moved += self.read()
            quiet = 0 if moved else quiet + 1

    def flush(self) -> int:
        """Send what there is; how many bytes."""
        return self._engine.flush()

    def read(self) -> int:
        """Read what there is; how many bytes."""
        return self._engine.receive(BlockingIOError)

    def _look(self, events: Iterator[Event]) -> None:
        for event in events:
            if event.type is Event.DELIVERY and isinstance(event.link, Receiver):
                self.got += arrived(event.link)


class SteppedBroker:
    """One data folder, and the broker that serves it now. `now_ms` is the time, until a test changes it."""

    def __init__(
        self,
        settings: dict[str, object] | None = None,
        syncer: Callable[[FileLayer], Syncer] | None = None,
        segment_bytes: int = 64 * 1024,
        space: VolumeSpace | None = None,
        process: Process | None = None,
        process_limit: int = 0,
    ) -> None:
        """`syncer`: who syncs the log, instead of whoever writes it, and at once. `space`: what the volume has.
        `process`: what the broker takes for its own, and `process_limit` what that may have.
        """
        self.space = space
        self.space_failure: OSError | None = None
        """What reading the space of the volume raises."""
        self._folder = Path(mkdtemp())  # holds the lock only
        self._settings = BrokerSettings.model_validate({**ANYBODY, **(settings or {})})
        self.files = SimulatedFiles()
        self._syncer, self._segment_bytes = syncer, segment_bytes
        self._process, self._process_limit = process, process_limit
        self._peers: list[Peer] = []
        self.now_ms = 1_000_000
        self.skew_ms = 0
        """How far the time of day has jumped from the timers' clock."""
        self.step_seconds = 0.0
        """What each look at the clock that cuts turns takes, by that clock: what a turn does costs nothing else."""
        self._seconds = 0.0
        self._start()

    def _start(self, kept_bytes: int = LogOptions().kept_bytes) -> None:
        clock = Clock(lambda: (self.now_ms + self.skew_ms) * 1000, lambda: self.now_ms, self._look)
        self._life = BrokerInProcess(
            self._settings,
            self.files,
            self._folder,
            clock,
            segment_bytes=self._segment_bytes,
            syncer=self._syncer,
            measure=self._measure if self.space is not None else None,
            process=self._process,
            process_limit=self._process_limit,
            kept_bytes=kept_bytes,
        )
        self.log, self.recovered, self.port = self._life.log, self._life.recovered, self._life.port
        self.loop, self.broker = self._life.loop, self._life.broker
        self.turn()

    def _measure(self) -> VolumeSpace:
        if self.space_failure is not None:
            raise self.space_failure
        assert self.space is not None
        return self.space

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

    def restart(self, *, kept_bytes: int = LogOptions().kept_bytes) -> None:
        """kill -9, and start again. `kept_bytes`: see `BrokerInProcess`."""
        self._end()
        self._start(kept_bytes)

    def close(self) -> None:
        """Give everything back."""
        self._end()
        shutil.rmtree(self._folder)

    def _end(self) -> None:
        for peer in self._peers:
            peer.close()
        self._peers.clear()
        self._life.end()

    def connect(self, container_id: str = "peer") -> Peer:
        """A new client."""
        peer = Peer(self._life.connect(), self.turn, container_id)
        self._peers.append(peer)
        return peer

    def connect_socket(self) -> socket.socket:
        """A new client's end of a connection, which does not block."""
        return self._life.connect()

    def make_queue(
        self,
        name: str,
        delivery: DeliveryPolicy | None = None,
        limits: QueueLimits | None = None,
        *,
        durable: bool = True,
    ) -> Queue:
        """Declare a queue."""
        topology = self.broker.topology
        queue = Queue(name, topology.next_incarnation(), is_logged=durable, now_us=self.now_ms * 1000)
        topology.put_queue(
            PointToPointQueue(
                name=name, durable=durable, queue=queue, delivery=delivery, limits=limits or QueueLimits()
            )
        )
        self.turn()
        return queue

    def queue(self, name: str) -> Queue:
        """A queue that is there."""
        return self.broker.topology.queues[name].queue


class SteppedStream:
    """One end of a socket pair, whose other end a broker of this process serves while we wait."""

    def __init__(self, timed: SteppedBroker, turn: Callable[[], None] | None = None) -> None:
        """`turn`: what serves the other end, if it is not the loop of the broker alone."""
        self._turn = turn or timed.loop.turn
        self._sock = timed.connect_socket()

    def sendall(self, data: bytes) -> None:
        deadline = time.monotonic() + 60
        while data:
            try:
                data = data[self._sock.send(data) :]
            except BlockingIOError:
                assert time.monotonic() < deadline
                self._turn()

    def recv(self, size: int) -> bytes:
        deadline = time.monotonic() + 60
        while True:
            try:
                return self._sock.recv(size)
            except BlockingIOError:
                assert time.monotonic() < deadline
            self._turn()  # waits for the thread that checks logins, too

    def take(self) -> bytes:
        """All that has come by now."""
        parts: list[bytes] = []
        try:
            while part := self._sock.recv(1 << 20):
                parts.append(part)
        except BlockingIOError:
            pass
        return b"".join(parts)

    def has_something(self) -> bool:
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False

    def close(self) -> None:
        self._sock.close()
