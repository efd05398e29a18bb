"""The topic path in one process and one thread, so that instructions and calls can be counted: client -> broker -> client.

usage: counted_run.py volatile|durable MESSAGES BODY_BYTES [calls]

Producer and consumer are C engines driven in turn with the broker's own loop over loopback, in batches of 64, with an fdatasync
within the turn; nothing depends on time. With `calls` it prints, as JSON, the broker's calls into the C engine and its
fdatasyncs; without, nothing is wrapped, and callgrind counts.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tests"))

import cproton_ffi
from crash.load_client import Peer, encoded

BATCH = 64
PROPERTIES = bytes.fromhex("005374c1") + bytes([27, 4]) + b"\xa1\x02k1\xa1\x09value-one\xa1\x02k2\x71\x00\xbc\x61\x4e"


class CountingLibrary:
    """Stands for the C engine: functions count their calls, constants pass."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._library, name)
        if not callable(found):
            return found

        def counted(*arguments: Any) -> Any:
            self.calls += 1
            return found(*arguments)

        setattr(self, name, counted)
        return counted


class Rig:
    """A broker and its two clients."""

    def __init__(self, folder: Path, *, durable: bool, size: int) -> None:
        # Imported here, so that the engine can be wrapped before.
        from penstock_broker import listening
        from penstock_broker.assembling import assemble
        from penstock_broker.log import Log, SyncChoice
        from penstock_broker.log import Settings as LogSettings
        from penstock_broker.settings import Listener, Settings

        settings = Settings(listeners=(Listener(address="127.0.0.1:0"),)).for_dev()
        self.log, recovered = Log.open(folder, settings=LogSettings(sync=SyncChoice.INLINE, spare=0, reserve=1))
        ports = listening.ports_of(settings)
        self.loop = assemble(settings, self.log, recovered, ports, 1 << 30)
        ports[0].bind()
        self.loop.open_ports()
        self.address = listening.split_address(ports[0].bound)
        self.accepted = self.received = 0
        self.consumer, self.producer = self._peer("consumer"), self._peer("producer")
        receiver = self.consumer.receiver(
            "count|global", "amq.topic/count", self._received, capabilities=("topic", "shared", "global"), durable=durable
        )
        self.sender = self.producer.sender("count", "amq.topic/count", self._accepted)
        self.batch = [encoded(bytes(size), durable=durable, properties=PROPERTIES)] * BATCH
        while receiver.attached is None or not self.sender.credit or self.log.wants_maintenance:
            self.turn()

    def _peer(self, name: str) -> Peer:
        made: list[Peer] = []
        thread = threading.Thread(target=lambda: made.append(Peer(*self.address, name)))
        thread.start()
        while thread.is_alive():
            self.loop.turn()
        return made[0]

    def _received(self, _: bytes) -> bool:
        self.received += 1
        return True

    def _accepted(self, numbers: list[int]) -> None:
        self.accepted += len(numbers)

    def turn(self) -> None:
        self.producer.flush()
        self.consumer.flush()
        self.loop.turn()
        self.producer.read()
        self.consumer.read()

    def send(self, messages: int) -> None:
        """`messages` in batches, each accepted and received before the next."""
        target = self.accepted
        while target < messages:
            self.sender.send(self.batch)
            target += BATCH
            while self.accepted < target or self.received < target:
                self.turn()


def run() -> None:
    kind, messages, size, *rest = sys.argv[1:]
    library = CountingLibrary(cproton_ffi.lib)
    if rest:
        cproton_ffi.lib = library
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder), durable=kind == "durable", size=int(size))
        gc.collect()
        gc.freeze()
        gc.disable()
        calls, syncs = library.calls, rig.loop.broker.journal.syncs
        rig.send(int(messages))
        if rest:
            sent = rig.accepted
            counts = {"calls": (library.calls - calls) / sent, "fdatasyncs": (rig.loop.broker.journal.syncs - syncs) / sent}
            print(json.dumps(counts))
        rig.log.close()


if __name__ == "__main__":
    run()
