"""The topic path in one process and one thread, so that instructions and calls can be counted: client -> broker ->
client.

usage: counted_run.py SCENARIO MESSAGES [calls]

Producer and consumer are C engines driven in turn with the broker's own loop over loopback, in batches of 64, with an
fdatasync within the turn; nothing depends on time. With `calls` it prints, as JSON, the broker's calls into the C
engine and its fdatasyncs; without, nothing is wrapped, and callgrind counts.
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
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cproton_ffi
from benching.scenarios import SCENARIOS, Scenario
from crash.load_client import Peer

from penstock_broker.log import RealFiles

BATCH = 64


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


class CountingFiles(RealFiles):
    """The real file system; counts fdatasyncs."""

    def __init__(self) -> None:
        self.syncs = 0

    def fdatasync(self, handle: int) -> None:
        self.syncs += 1
        super().fdatasync(handle)


class SteppingTime:
    """A clock that a loaded machine does not move: 100 us per look, and turns that never run out of time."""

    def __init__(self) -> None:
        self.us = 1_700_000_000_000_000

    def now_us(self) -> int:
        self.us += 100
        return self.us

    def now_ms(self) -> int:
        return self.us // 1000


class Rig:
    """A broker and its two clients."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        # Imported here, so that the engine can be wrapped before.
        from penstock_broker.assembling import assemble
        from penstock_broker.connections import listening
        from penstock_broker.log import Log, SyncChoice
        from penstock_broker.log import Settings as LogSettings
        from penstock_broker.settings.settings import Listener, Settings
        from penstock_broker.state.timing import Clock

        settings = Settings(listeners=(Listener(address="127.0.0.1:0"),), max_message_bytes=1 << 20).for_dev()
        self.files = CountingFiles()
        sync = LogSettings(segment_bytes=4 << 20, sync=SyncChoice.INLINE)
        self.log, recovered = Log.open(folder, files=self.files, settings=sync)
        ports = listening.ports_of(settings)
        clock = SteppingTime()
        self.loop = assemble(
            settings, self.log, recovered, ports, 1 << 30, Clock(clock.now_us, clock.now_ms, seconds=lambda: 0.0)
        )
        ports[0].bind()
        self.loop.open_ports()
        self.address = listening.split_address(ports[0].bound)
        self.accepted = self.received = 0
        self.consumer, self.producer = self._peer("consumer"), self._peer("producer")
        capabilities = ("queue",) if scenario.is_queue else ("topic", "shared", "global")
        receivers = [
            self.consumer.receiver(
                "count|global",
                scenario.address,
                self._received,
                capabilities=capabilities,
                durable=scenario.durable,
                selector=scenario.selector,
                filters=scenario.filters,
            )
        ]
        receivers += [
            self.consumer.receiver(f"other-{number}", scenario.address, self._received, selector=selector)
            for number, selector in enumerate(scenario.others)
        ]
        receivers += [
            self.consumer.receiver(f"bound-{number}", scenario.address, self._received, filters=filters)
            for number, filters in enumerate(scenario.other_filters)
        ]
        self.sender = self.producer.sender("count", scenario.address, self._accepted)
        times = -(-BATCH // len(scenario.messages))
        self.batch = (list(scenario.messages) * times)[:BATCH]
        while any(each.attached is None for each in receivers) or not self.sender.credit or self._prepares():
            self.turn()

    def _peer(self, name: str) -> Peer:
        made: list[Peer] = []
        thread = threading.Thread(target=lambda: made.append(Peer(*self.address, name)))
        thread.start()
        while thread.is_alive():
            self.loop.turn()
        return made[0]

    def _prepares(self) -> bool:
        """The log fills its spare segments, which is no cost of a message."""
        return self.log.wants_maintenance or self.log._space.filling

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
    name, messages, *rest = sys.argv[1:]
    (scenario,) = (each for each in SCENARIOS if each.name == name)
    library = CountingLibrary(cproton_ffi.lib)
    if rest:
        cproton_ffi.lib = library
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder), scenario)
        gc.collect()
        gc.freeze()
        gc.disable()
        calls, syncs = library.calls, rig.files.syncs
        rig.send(int(messages))
        if rest:
            sent = rig.accepted
            counts = {"calls": (library.calls - calls) / sent, "fdatasyncs": (rig.files.syncs - syncs) / sent}
            print(json.dumps(counts))
        rig.log.close()


if __name__ == "__main__":
    run()
