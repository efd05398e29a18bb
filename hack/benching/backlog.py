"""`hack/bench backlog`: what a deep backlog costs: memory, the rates at which messages come and go, kill -9, restarts.

Messages of 1 KiB, durable, numbered. The rates at depth 0 and at full depth are of the same subscription. Processor
time is that of the broker's main thread; memory is what is resident. Source: docs/reference/performance.md, "Deep
backlogs".
"""

from __future__ import annotations

import select
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benching.many import TESTS, cpu_seconds, resident_bytes

if TYPE_CHECKING:
    from crash.load_client import Peer
    from support.broker_process import BrokerProcess

BODY_BYTES = 1024
RATED = 20_000
"""Messages of a round in which the rates are measured: few enough to stay in memory where nothing else waits."""
ROUNDS = 5
CREDIT = 1000
SELECTED = b"\x00\x53\x74\xc1\x07\x02\xa1\x03hit\x41"
"""Application properties: hit = true."""
DIGESTS_AFTER_SECONDS = 11
"""Digests of segments begin so long after they were sealed."""
IDLE_SECONDS = 0.05
"""Processor time of a second in which the broker does nothing."""
START_SECONDS = 900
"""So long a start with many messages may take on a slow machine."""


class Rate(NamedTuple):
    """Of messages that came or went."""

    per_second: float
    broker_us: float
    """Processor time of the broker for each, microseconds."""

    def __str__(self) -> str:
        return f"{self.per_second:8,.0f}/s {self.broker_us:5.1f} us"


class Rates(NamedTuple):
    """At one depth."""

    came: Rate
    went: Rate


def backlog(messages: int, queues: int) -> None:
    """Print the costs of so many messages in one subscription, and of a tenth in each of `queues`. Raises SystemExit if
    a message does not come, or comes out of order.
    """
    sys.path.insert(0, str(TESTS))
    from support.broker_process import BrokerProcess

    with tempfile.TemporaryDirectory(prefix="penstock-backlog-") as folder:
        with BrokerProcess(Path(folder) / "one") as broker:
            _deep(broker, messages)
        with BrokerProcess(Path(folder) / "several") as broker:
            _several(broker, messages // 10, queues)
        with BrokerProcess(Path(folder) / "selected") as broker:
            _selected(broker, messages // 10)


def _deep(broker: BrokerProcess, messages: int) -> None:
    _subscribe(broker, "deep", "deep")
    at_zero, first = _rates(broker, 0, 0)
    print(f"depth 0: published {at_zero.came}, consumed {at_zero.went}")
    print(f"{'messages':>12} {'resident':>10} {'after kill -9':>14} {'resident':>10}")
    depth = 0
    for target in (messages // 100, messages // 10):
        _publish(broker, "amq.topic/deep", first + depth, target - depth)
        depth = target
        _report(broker, depth)
    filled = _publish(broker, "amq.topic/deep", first + depth, messages - depth)
    depth = messages
    print(f"filled up: {filled}", flush=True)
    _rest(broker)
    deep, first = _rates(broker, first, depth)
    print(f"depth {depth:,}: published {deep.came}, consumed {deep.went}")
    for what, before, now in (("came", at_zero.came, deep.came), ("went", at_zero.went, deep.went)):
        print(
            f"a message that {what}: {now.per_second / before.per_second:.0%} of the rate at depth 0, "
            f"{now.broker_us / before.broker_us:.0%} of the broker's work"
        )
    _report(broker, depth)
    half = depth // 2
    _consume(broker, "deep", first, half)
    print(f"resident in the midst of it: {resident_bytes(broker.pid) >> 20} MiB", flush=True)
    broker.kill()
    broker.start(START_SECONDS)
    rest = depth - half
    print(f"killed in the middle; the rest: consumed {_consume(broker, 'deep', first + half, rest)}", flush=True)


def _rates(broker: BrokerProcess, first: int, depth: int) -> tuple[Rates, int]:
    """The medians of several rounds, in which the depth stays what it is; and the first message that is left then."""
    came: list[Rate] = []
    went: list[Rate] = []
    for _ in range(ROUNDS):
        came.append(_publish(broker, "amq.topic/deep", first + depth, RATED))
        went.append(_consume(broker, "deep", first, RATED))
        first += RATED
    return Rates(_median(came), _median(went)), first


def _median(rates: list[Rate]) -> Rate:
    return Rate(median(each.per_second for each in rates), median(each.broker_us for each in rates))


def _rest(broker: BrokerProcess) -> None:
    """Wait until the broker has done what it puts off, such as digests of what was just published."""
    time.sleep(DIGESTS_AFTER_SECONDS)
    before, now = -1.0, cpu_seconds(broker.pid)
    while now - before > IDLE_SECONDS:
        time.sleep(1)
        before, now = now, cpu_seconds(broker.pid)


def _several(broker: BrokerProcess, each: int, queues: int) -> None:
    for number in range(queues):
        _subscribe(broker, f"q{number}", "shared")
    _publish(broker, "amq.topic/shared", 0, each)
    print(f"{each:,} messages in each of {queues} subscriptions, one body for all")
    _report(broker, each)
    for number in range(queues):
        _consume(broker, f"q{number}", 0, each)
    print("all came, in order, from each of them", flush=True)


def _selected(broker: BrokerProcess, messages: int) -> None:
    """One message in 100,000 is selected, and comes last."""
    owner = peer_of(broker, "owner")
    link = owner.receiver("owner", "selected", lambda _: False, credit=0, capabilities=("queue",))
    while link.attached is None:
        turn(owner)
    _publish(broker, "selected", 0, messages)
    _publish(broker, "selected", messages, 1, SELECTED)
    before, spent, began = resident_bytes(broker.pid), cpu_seconds(broker.pid), time.monotonic()
    found: list[bytes] = []

    def on_received(message: bytes) -> bool:
        found.append(message)
        return True

    peer = peer_of(broker, "selecting")
    peer.receiver("selecting", "selected", on_received, credit=CREDIT, capabilities=("queue",), selector="hit = TRUE")
    while not found:
        turn(peer)
    took, work = time.monotonic() - began, cpu_seconds(broker.pid) - spent
    grown = (resident_bytes(broker.pid) - before) >> 20
    print(
        f"one selected behind {messages:,}: found after {took:.1f} s ({work / messages * 1e6:.1f} us for each message "
        f"that was passed by), resident {grown:+} MiB",
        flush=True,
    )
    peer.free()
    owner.free()


def _report(broker: BrokerProcess, depth: int) -> None:
    before = resident_bytes(broker.pid) >> 20
    broker.kill()
    began = time.monotonic()
    broker.start(START_SECONDS)
    took = time.monotonic() - began
    print(f"{depth:12,} {before:6} MiB {took:12.2f} s {resident_bytes(broker.pid) >> 20:6} MiB", flush=True)


def peer_of(broker: BrokerProcess, container_id: str) -> Peer:
    """A client of the broker."""
    from crash.load_client import Peer

    host, _, port = broker.url.rpartition("/")[2].rpartition(":")
    return Peer(host, int(port), container_id)


def _subscribe(broker: BrokerProcess, name: str, key: str) -> None:
    _drive(broker, name, key, 0, 0)


def _publish(broker: BrokerProcess, address: str, first: int, count: int, properties: bytes = b"") -> Rate:
    from crash.load_client import encoded

    peer = peer_of(broker, "producer")
    accepted = 0

    def on_accepted(numbers: list[int]) -> None:
        nonlocal accepted
        accepted += len(numbers)

    sender = peer.sender("backlog", address, on_accepted)
    sent, spent, began = 0, cpu_seconds(broker.pid), time.monotonic()
    padding = bytes(BODY_BYTES - 8)
    while accepted < count:
        while sent < count and sender.credit > 0:
            part = range(sent, sent + min(64, count - sent, sender.credit))
            sender.send(
                [encoded((first + at).to_bytes(8, "big") + padding, durable=True, properties=properties) for at in part]
            )
            sent += len(part)
        turn(peer)
    rate = Rate(count / (time.monotonic() - began), (cpu_seconds(broker.pid) - spent) / max(count, 1) * 1e6)
    peer.free()
    return rate


def _consume(broker: BrokerProcess, name: str, first: int, count: int) -> Rate:
    return _drive(broker, name, "deep" if name == "deep" else "shared", first, count)


def _drive(broker: BrokerProcess, name: str, key: str, first: int, count: int) -> Rate:
    """Attach a consumer, which takes `count` messages; each must be the one that follows. Count 0: it only attaches."""
    peer = peer_of(broker, "consumer")
    expected = first

    def on_received(message: bytes) -> bool:
        nonlocal expected
        if expected >= first + count:
            return False
        number = int.from_bytes(message[-BODY_BYTES : 8 - BODY_BYTES], "big")
        if number < expected:
            return True  # its ack was lost with the kill: it comes once more, as announced
        if number != expected:
            raise SystemExit(f"{name}: message {number} came where {expected} was expected")
        expected += 1
        return True

    spent, began = cpu_seconds(broker.pid), time.monotonic()
    link = peer.receiver(
        f"{name}|global",
        f"amq.topic/{key}",
        on_received,
        credit=CREDIT if count else 0,
        capabilities=("topic", "shared", "global"),
        durable=True,
    )
    while link.attached is None or expected < first + count:
        turn(peer)
    rate = Rate(count / (time.monotonic() - began), (cpu_seconds(broker.pid) - spent) / max(count, 1) * 1e6)
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:  # the last acks go out
        peer.flush()
        time.sleep(0.05)
    peer.free()
    return rate


def turn(peer: Peer) -> None:
    """Send what is to be sent, and take in what comes."""
    poll = select.poll()
    poll.register(peer.sock.fileno(), select.POLLIN if peer.flush() else select.POLLIN | select.POLLOUT)
    for _, mask in poll.poll(120_000):
        if mask & select.POLLIN:
            peer.read()
