"""Messages at a steady rate from one connection to another, and how long each took; for `hack/bench reconnects`.

Runs as a process of its own: `python paced_flow.py HOST PORT ADDRESS RATE REPORT`. It appends a line to REPORT every
second, JSON: messages received in that second, their 50th, 99th and highest delay in milliseconds, how many took over
50, and how late the sender itself was (its own process waiting for a processor). It ends with its standard input.
"""

import json
import select
import struct
import sys
import time

from crash.load_client import Peer, encoded

CREDIT = 1000
STAMP = struct.Struct(">d")


def run(host: str, port: int, address: str, rate: int, report: str) -> None:
    """Until standard input ends."""
    delays: list[float] = []
    marker = encoded(bytes(100), durable=False)
    at = marker.index(bytes(100))
    head, tail = marker[:at], marker[at + STAMP.size :]

    def on_received(data: bytes) -> bool:
        delays.append(time.monotonic() - STAMP.unpack_from(data, at)[0])
        return True

    consumer, producer = Peer(host, port, "paced-receiver"), Peer(host, port, "paced-sender")
    receiver = consumer.receiver("paced", address, on_received, credit=CREDIT, capabilities=("topic",), durable=False)
    sender = producer.sender("paced", address, lambda _: None)
    poll = select.poll()
    poll.register(sys.stdin, select.POLLIN | select.POLLHUP)
    peers = {peer.sock.fileno(): peer for peer in (consumer, producer)}
    for peer in peers.values():
        peer.flush()
        poll.register(peer.sock, select.POLLIN)
    while receiver.attached is None or not sender.credit:
        for fd, _ in poll.poll(20_000):
            if fd in peers:
                peers[fd].read()
                peers[fd].flush()
    start = tick = time.monotonic()
    sent, late = 0, 0.0
    with open(report, "w", buffering=1) as lines:
        while True:
            now = time.monotonic()
            due = int((now - start) * rate) - sent
            if due > 0 and sender.credit > 0:
                late = max(late, due / rate)
                part = min(due, sender.credit, 64)
                # A message that is sent late counts from when it was due: what a stall holds back is its delay too.
                stamps = (start + (sent + number) / rate for number in range(part))
                sender.send([head + STAMP.pack(stamp) + tail for stamp in stamps])
                sent += part
            for peer in peers.values():
                poll.modify(peer.sock, select.POLLIN if peer.flush() else select.POLLIN | select.POLLOUT)
            for fd, mask in poll.poll(1 if due <= 0 else 0):
                if fd not in peers:
                    return
                if mask & select.POLLIN:
                    peers[fd].read()
            if now - tick >= 1:
                lines.write(json.dumps(_line(delays, late)) + "\n")
                delays.clear()
                tick, late = now, 0.0


def _line(delays: list[float], late: float) -> dict[str, float]:
    ordered = sorted(delays) or [0.0]
    figures = {"p50": ordered[len(ordered) // 2], "p99": ordered[len(ordered) * 99 // 100], "max": ordered[-1]}
    milliseconds = {name: round(value * 1000, 2) for name, value in figures.items()}
    slow = sum(1 for delay in delays if delay > 0.05)
    return {"messages": len(delays), **milliseconds, "over_50": slow, "late": round(late * 1000, 2)}


if __name__ == "__main__":
    host, port, address, rate, report = sys.argv[1:]
    run(host, int(port), address, int(rate), report)
