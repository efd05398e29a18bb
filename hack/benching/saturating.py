"""One end of a flow at full speed; for `hack/bench balance`.

Runs as a process of its own: `python saturating.py HOST PORT ADDRESS produce|consume REPORT`. It appends a line to
REPORT about ten times a second, JSON: the monotonic time, the messages that were accepted or received by then, and, of
a consumer, the delays in milliseconds since the line before (one message in 64: the messages of a batch have one stamp,
that of their sending). A producer stamps when it hands messages to its engine, so what waits for the broker to read it
counts. It ends with its standard input.
"""

import json
import select
import struct
import sys
import time
from collections.abc import Callable

from crash.load_client import Peer, encoded

CREDIT = 1000
BATCH = 64
STAMP = struct.Struct(">d")
LINE_SECONDS = 0.1

MESSAGE = encoded(bytes(100), durable=False)
AT = MESSAGE.index(bytes(100))
HEAD, TAIL = MESSAGE[:AT], MESSAGE[AT + STAMP.size :]


def produce(peer: Peer, address: str) -> tuple[Callable[[], None], Callable[[], int], list[float]]:
    """What to do between two reads, how much was accepted, and no delays."""
    accepted = [0]

    def on_accepted(numbers: list[int]) -> None:
        accepted[0] += len(numbers)

    sender = peer.sender("balance", address, on_accepted)

    def send() -> None:
        while (credit := sender.credit) > 0:
            sender.send([HEAD + STAMP.pack(time.monotonic()) + TAIL] * min(credit, BATCH))
            if not peer.flush():
                return

    return send, lambda: accepted[0], []


def consume(peer: Peer, address: str) -> tuple[Callable[[], None], Callable[[], int], list[float]]:
    """What to do between two reads, how much was received, and the delays."""
    received = [0]
    delays: list[float] = []

    def on_received(data: bytes) -> bool:
        received[0] += 1
        if not received[0] % BATCH:
            delays.append((time.monotonic() - STAMP.unpack_from(data, AT)[0]) * 1000)
        return True

    peer.receiver("balance", address, on_received, credit=CREDIT, capabilities=("topic",))
    return lambda: None, lambda: received[0], delays


def run(host: str, port: int, address: str, role: str, report: str) -> None:
    """Until standard input ends."""
    peer = Peer(host, port, f"balance-{role}")
    step, counted, delays = (produce if role == "produce" else consume)(peer, address)
    poll = select.poll()
    poll.register(sys.stdin, select.POLLIN | select.POLLHUP)
    fd = peer.sock.fileno()
    told = time.monotonic()
    with open(report, "w", buffering=1) as lines:
        while True:
            step()
            poll.register(fd, select.POLLIN if peer.flush() else select.POLLIN | select.POLLOUT)
            for ready, mask in poll.poll(100):
                if ready != fd:
                    return
                if mask & select.POLLIN:
                    peer.read()
            now = time.monotonic()
            if now - told >= LINE_SECONDS:
                told = now
                lines.write(json.dumps({"at": now, "count": counted(), "delays": [round(d, 2) for d in delays]}) + "\n")
                delays.clear()


if __name__ == "__main__":
    host, port, address, role, report = sys.argv[1:]
    run(host, int(port), address, role, report)
