"""`hack/bench restart`: how long a start takes, and how much memory, with so many live messages in one subscription.

The messages are durable, of 1 KiB, and written by the log itself, which writes digests of the sealed segments, too; a
second start is without these. Time goes from the start of the process to the
first delivery to a consumer. Processor time is that of the broker's main thread. Source:
docs/reference/performance.md, "Starts with many messages".
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from select import select
from typing import TYPE_CHECKING, NamedTuple

from benching.backlog import BODY_BYTES, START_SECONDS, peer_of, turn
from benching.log_chart import Line, LogChart
from benching.many import TESTS, cpu_seconds

if TYPE_CHECKING:
    from support.broker_process import BrokerProcess

KEPT = Path(__file__).resolve().parent.parent.parent / "build" / "restart-bench"
SIZES = (100_000, 1_000_000, 3_000_000)
PER_BLOCK = 100
SYNC_EVERY = 50_000
ADDRESS, NAME = "amq.topic/deep", "deep|global"
PEAK = "VmHWM:"


class Restart(NamedTuple):
    """One start."""

    messages: int
    digests: bool
    """Whether the start found digests of the sealed segments."""
    seconds: float
    """To the first delivery."""
    cpu_seconds: float
    peak_mib: int
    """Of resident memory."""


def restarts(sizes: Sequence[int]) -> int:
    """Print the costs of a start for each number of messages; figures and a chart are kept. 1 if a message is lost."""
    sys.path.insert(0, str(TESTS))
    from support.broker_process import BrokerProcess

    found: list[Restart] = []
    print(f"{'live messages':>14} {'digests':>8} {'first delivery':>15} {'processor':>10} {'peak memory':>12}")
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="penstock-restart-") as folder:
            broker = BrokerProcess(Path(folder) / "data", settings={"log": {"segmentBytes": 64 << 20}})
            broker.start()
            _consume(broker, 0)
            broker.stop()
            _fill(broker.data / "log", size)
            for digests in (True, False):
                if not digests:
                    for path in (broker.data / "log").glob("digest-*"):
                        path.unlink()
                one = _measured(broker, size, digests=digests)
                print(
                    f"{one.messages:14,} {'yes' if digests else 'no':>8} {one.seconds:13.2f} s "
                    f"{one.cpu_seconds:8.2f} s {one.peak_mib:8} MiB",
                    flush=True,
                )
                found.append(one)
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / "restarts.json").write_text(json.dumps([each._asdict() for each in found], indent=2) + "\n")
    (KEPT / "restarts.svg").write_text(chart(found))
    return 0


def chart(found: Sequence[Restart]) -> str:
    """Time to the first delivery and processor time against live messages."""
    usual = [each for each in found if each.digests]
    bare = [each for each in found if not each.digests]
    lines = [
        Line("first delivery", "#c44601", [(each.messages, each.seconds) for each in usual]),
        Line("processor", "#054fb9", [(each.messages, each.cpu_seconds) for each in usual]),
        Line("no digests", "#5c5c5c", [(each.messages, each.cpu_seconds) for each in bare]),
    ]
    return LogChart("Time of a start against live messages", "live messages", (4, 7), (-1, 3)).drawn(lines)


def _fill(folder: Path, count: int) -> None:
    from crash.load_client import encoded

    from penstock_broker.log import Log, LogOptions
    from penstock_broker.messages.pageable import PageableMessages

    log, recovered = Log.open(folder, options=LogOptions(digest_after_ms=0), pageable=PageableMessages())
    (incarnation,) = recovered.messages
    route_set = log.route_set((incarnation,))
    padding = bytes(BODY_BYTES - 8)
    for number in range(count):
        log.put(route_set, encoded(number.to_bytes(8, "big") + padding, durable=True), time.time_ns() // 1000)
        if number % PER_BLOCK == PER_BLOCK - 1:
            log.write()
        if number % SYNC_EVERY == SYNC_EVERY - 1:
            log.sync()
    log.sync()
    while log.wants_maintenance or log.is_filling_spare:
        if log.is_filling_spare:
            select([log.descriptor], [], [])
        log.maintain(1000)
        log.collect()
    log.close()


def _measured(broker: BrokerProcess, messages: int, *, digests: bool) -> Restart:
    began = time.monotonic()
    broker.start(START_SECONDS)
    first = _consume(broker, 1)
    seconds = time.monotonic() - began
    if first[-BODY_BYTES : 8 - BODY_BYTES] != bytes(8):
        raise SystemExit(f"the first message is not message 0: {first[:80]!r}")
    status = Path(f"/proc/{broker.pid}/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith(PEAK))
    one = Restart(messages, digests, seconds, cpu_seconds(broker.pid), peak >> 10)
    broker.kill()
    return one


def _consume(broker: BrokerProcess, credit: int) -> bytes:
    """Attach a consumer, with credit for one message or none; the message."""
    peer = peer_of(broker, "consumer")
    found: list[bytes] = []

    def on_received(message: bytes) -> bool:
        found.append(message)
        return False

    capabilities = ("topic", "shared", "global")
    link = peer.receiver(NAME, ADDRESS, on_received, credit=credit, capabilities=capabilities, durable=True)
    while link.attached is None or len(found) < credit:
        turn(peer)
    peer.free()
    return found[0] if found else b""
