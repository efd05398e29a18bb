"""The paths of a message in one process and one thread, so that instructions and calls can be counted: client ->
broker -> client.

usage: counted_run.py calls SCENARIO...
       counted_run.py instructions LIBRARY SCENARIO...     LIBRARY is callgrind.c, compiled

Each scenario runs in a process that is forked once everything is imported: under callgrind the imports take three times
as long as a scenario. When it has ended, its name, process id and figures are printed as a line of JSON.

The clients are C engines driven in turn with the broker's own loop over loopback, in batches, with an fdatasync within
the turn; nothing depends on time. The figures of `calls` are the broker's calls into the C engine (the compiled
module, or proton's functions where there is none) and its fdatasyncs per message; with `instructions` nothing is
wrapped, and callgrind, under which it runs, is told to count the turns of the broker's loop while messages flow, and
nothing else: what the clients do between two turns is not the broker's.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import ssl
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cproton_ffi
from benching.counted_streams import OverTls, OverWebSocket
from benching.counted_transactions import Coordinator, MovingReceiver, TransactionalSender
from benching.counters import Callgrind, CountingFiles, CountingLibrary, SteppingTime
from benching.scenarios import PER_TRANSACTION, SCENARIOS, Driving, Scenario, Way
from crash.load_client import Peer, Sender
from support.certificates import Authority

import penstock_native


class Rig:
    """A broker and its clients. `counts` is called before and after each turn of the broker's loop."""

    def __init__(self, folder: Path, scenario: Scenario, counts: Callable[[], object]) -> None:
        # Imported here, so that the engine can be wrapped before.
        from penstock_broker.access import listeners
        from penstock_broker.assembly import assemble
        from penstock_broker.clock import Clock
        from penstock_broker.log import Log, LogOptions, SyncChoice
        from penstock_broker.settings import addresses
        from penstock_broker.settings.settings import BrokerSettings, MemorySettings

        self.scenario = scenario
        self._counts = counts
        self._authority = Authority(folder)
        memory = MemorySettings(max_bytes=scenario.memory_mib << 20) if scenario.memory_mib else MemorySettings()
        settings = BrokerSettings(listeners=(self._listener(),), memory=memory).for_dev()
        self.files = CountingFiles()
        sync = LogOptions(segment_bytes=(32 if scenario.mebibytes else 4) << 20, sync=SyncChoice.INLINE)
        self.clock = SteppingTime()
        self.log, recovered = Log.open(folder / "log", files=self.files, options=sync, timer=self.clock.idle_seconds)
        ports = listeners.listeners_of(settings)
        clock = Clock(self.clock.now_us, self.clock.now_ms, seconds=lambda: 0.0)
        self.loop = assemble(settings, self.log, recovered, ports, clock)
        ports[0].bind()
        self.loop.accept_connections()
        self.address = addresses.split(ports[0].bound)
        self.accepted = self.received = 0
        self.peers: list[Peer] = []
        consumer, producer = self._peer("consumer"), self._peer("producer")
        self._consumer = consumer
        moves = scenario.driving is Driving.MOVE_IN_TRANSACTIONS
        self._mover = Mover(self._peer("mover"), self) if moves else None
        receivers = self._receivers(consumer, f"{scenario.address}-moved" if moves else scenario.address)
        if self._mover is not None:
            receivers.append(self._mover.receiver)
        self._coordinator: Coordinator | None = None
        if scenario.driving is Driving.PUBLISH_IN_TRANSACTIONS:
            self._coordinator = Coordinator(producer)
            self.sender: Sender = TransactionalSender(producer, scenario.address, self._accepted)
        else:
            self.sender = producer.sender("count", scenario.address, self._accepted)
        others = [self._peer(f"producer {number}") for number in range(1, scenario.producers)]
        self._others = [each.sender("count", scenario.address, self._accepted) for each in others]
        times = -(-scenario.batch // len(scenario.messages))
        self.batch = (list(scenario.messages) * times)[: scenario.batch]
        senders = [self.sender, *self._others]
        while (
            not all(each.attached is not None for each in receivers)
            or self._prepares()
            or not all(each.credit for each in senders)
        ):
            self.turn()

    def _listener(self) -> Any:
        from penstock_broker.settings.security import Tls
        from penstock_broker.settings.settings import ListenerKind, ListenerSettings

        match self.scenario.way:
            case Way.TCP:
                return ListenerSettings(address="127.0.0.1:0")
            case Way.TLS:
                issued = self._authority.issue("broker")
                return ListenerSettings(address="127.0.0.1:0", tls=Tls(certificate=issued.certificate, key=issued.key))
            case Way.WEB_SOCKET:
                return ListenerSettings(address="127.0.0.1:0", kind=ListenerKind.WEB_SOCKET)

    def _peer(self, name: str) -> Peer:
        made: list[Peer] = []
        match self.scenario.way:
            case Way.TCP:
                connect = partial(Peer, *self.address, name)
            case Way.TLS:
                context = ssl.create_default_context(cafile=str(self._authority.ca))
                connect = partial(Peer, *self.address, name, lambda sock: OverTls(sock, context))
            case Way.WEB_SOCKET:
                connect = partial(Peer, *self.address, name, OverWebSocket)
        thread = threading.Thread(target=lambda: made.append(connect()))
        thread.start()
        while thread.is_alive():
            self.loop.turn()
        self.peers.append(made[0])
        return made[0]

    def _receivers(self, consumer: Peer, address: str) -> list[Any]:
        scenario = self.scenario
        capabilities = ("queue",) if scenario.is_queue else ("topic", "shared", "global")
        receivers = [
            consumer.receiver(
                "count|global",
                address,
                self._received,
                capabilities=capabilities,
                durable=scenario.durable,
                selector=scenario.selector,
                filters=scenario.filters,
            )
        ]
        for number in range(1, scenario.copies):
            peer = self._peer(f"consumer {number}") if scenario.has_connections else consumer
            receivers.append(
                peer.receiver(
                    f"copy-{number}|global",
                    address,
                    self._received,
                    capabilities=capabilities,
                    durable=scenario.durable,
                )
            )
        receivers += [
            consumer.receiver(f"other-{number}", address, self._received, selector=selector)
            for number, selector in enumerate(scenario.others)
        ]
        receivers += [
            consumer.receiver(f"bound-{number}", address, self._received, filters=filters)
            for number, filters in enumerate(scenario.other_filters)
        ]
        return receivers

    def _prepares(self) -> bool:
        """The log fills its spare segments, which is no cost of a message."""
        return self.log.wants_maintenance or self.log.is_filling_spare

    def _received(self, _: bytes) -> bool:
        self.received += 1
        return True

    def _accepted(self, numbers: list[int]) -> None:
        self.accepted += len(numbers)

    def turn(self) -> None:
        for peer in self.peers:
            peer.flush()
        self._counts()
        self.loop.turn()
        self._counts()
        for peer in self.peers:
            peer.read()

    def send(self, messages: int) -> None:
        """`messages` in batches, each accepted and received before the next."""
        target = self.accepted
        last = target + messages
        while target < last:
            target += len(self.batch)
            self.publish(len(self.batch))
            self.clock.us += self.scenario.delay_ms * 1000
            if self._mover is not None:
                self._mover.move(len(self.batch))
            while self.received < target * self.scenario.copies:
                self.turn()

    def publish(self, messages: int) -> None:
        """`messages` in batches, each accepted before the next; nobody takes them."""
        target = self.accepted
        last = target + messages
        while target < last:
            target += len(self.batch)
            self._send_batch()
            while self.accepted < target:
                self.turn()

    def leave(self) -> None:
        """The consumer goes."""
        self.peers.remove(self._consumer)
        self._consumer.free()

    def come_back(self) -> None:
        """The consumer comes again, and takes what waits."""
        self._consumer = self._peer("consumer")
        self._receivers(self._consumer, self.scenario.address)

    def take(self, messages: int) -> None:
        """Until so many more were received."""
        target = self.received + messages
        while self.received < target:
            self.turn()

    def settle(self) -> None:
        """Until the log has nothing left to do."""
        while self._prepares():
            self.turn()

    def _send_batch(self) -> None:
        if self._others:
            for sender, message in zip((self.sender, *self._others), self.batch, strict=True):
                sender.send([message])
            return
        if self._coordinator is None:
            self.sender.send(self.batch)
            return
        assert isinstance(self.sender, TransactionalSender)
        for at, txn_id in enumerate(begun(self._coordinator, self, len(self.batch))):
            self.sender.post(self.batch[at * PER_TRANSACTION : (at + 1) * PER_TRANSACTION], txn_id)
            self._coordinator.commit(txn_id)


class Mover:
    """A client that moves what is in one queue on to another, in transactions."""

    def __init__(self, peer: Peer, rig: Rig) -> None:
        self._rig = rig
        self._coordinator = Coordinator(peer)
        address = rig.scenario.address
        self.receiver = MovingReceiver(peer, "work", address)
        self._sender = TransactionalSender(peer, f"{address}-moved", lambda _: None)

    def move(self, count: int) -> None:
        """Take `count` messages on."""
        while len(self.receiver.held) < count:
            self._rig.turn()
        for txn_id in begun(self._coordinator, self._rig, count):
            self._sender.post(self.receiver.settle(PER_TRANSACTION, txn_id), txn_id)
            self._coordinator.commit(txn_id)


def begun(coordinator: Coordinator, rig: Rig, messages: int) -> list[bytes]:
    """New transactions for this number of messages; the earlier ones have ended."""
    number = messages // PER_TRANSACTION
    coordinator.declare(number)
    while len(coordinator.declared) < number:
        rig.turn()
    return coordinator.declared


def run(scenario: Scenario, counter: CountingLibrary | Callgrind) -> dict[str, float]:
    """Run one scenario; calls and fdatasyncs per message, nothing where callgrind counts."""
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder), scenario, counter.toggle)
        gc.collect()
        gc.freeze()
        gc.disable()
        rig.send(scenario.first)
        drive = rig.send
        if scenario.driving in (Driving.PUBLISH_BEHIND, Driving.CONSUME_BACKLOG):
            rig.leave()
            rig.publish(scenario.waiting)
            rig.settle()
            drive = rig.publish
        if scenario.driving is Driving.CONSUME_BACKLOG:
            rig.come_back()
            rig.take(scenario.waiting // 2)  # the first were still in memory
            drive = rig.take
        made: dict[str, int] = {}
        if isinstance(counter, CountingLibrary):
            calls, syncs = counter.calls, rig.files.syncs
            drive(scenario.counted)
            made = {"calls": counter.calls - calls, "fdatasyncs": rig.files.syncs - syncs}
        else:
            counter.start()
            drive(scenario.counted)
            counter.stop()
        rig.log.close()
    return {kind: count / scenario.units for kind, count in made.items()}


def run_forked(scenario: Scenario, counter: CountingLibrary | Callgrind) -> int:
    """Run one scenario in a process of its own, and print its line when that has ended; the exit code."""
    figures, theirs = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.write(theirs, json.dumps(run(scenario, counter)).encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)  # without what the parent would do at its own end
    os.close(theirs)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with os.fdopen(figures, "rb") as read:
        if not code:
            print(json.dumps({"scenario": scenario.name, "pid": child, **json.load(read)}), flush=True)
    return code


def main() -> int:
    what, *names = sys.argv[1:]
    counter: CountingLibrary | Callgrind
    if what == "calls":
        counter = CountingLibrary(penstock_native.proton or cproton_ffi.lib)
        if penstock_native.proton:
            penstock_native.proton = counter
        else:
            cproton_ffi.lib = counter
    else:
        counter = Callgrind(names.pop(0))
    importlib.import_module("penstock_broker.assembly")
    scenarios = [each for each in SCENARIOS if each.name in names]
    # The first that fails ends it: the others would fail alike.
    return next((code for each in scenarios if (code := run_forked(each, counter))), 0)


if __name__ == "__main__":
    sys.exit(main())
