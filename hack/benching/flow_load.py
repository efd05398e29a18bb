"""One sender connection to one receiver connection, as fast as the broker allows; the load of `hack/bench flow`.

Runs as a process of its own: `python flow_load.py HOST PORT ADDRESS RECEIVE_FROM MESSAGES BODY_BYTES
durable|volatile`. It prints the seconds between the first message sent and the last one both accepted and received.
"""

import select
import sys
import time

from crash.load_client import Peer, encoded

CREDIT = 1000
# {"k1": "value-one", "k2": 12345678} as application properties
PROPERTIES = (
    bytes.fromhex("005374c1") + bytes([25, 4]) + b"\xa1\x02k1\xa1\x09value-one" + b"\xa1\x02k2\x71\x00\xbc\x61\x4e"
)


def run(host: str, port: int, address: str, source: str, messages: int, size: int, *, durable: bool) -> float:
    """Seconds for `messages` through the broker."""
    counts = {"accepted": 0, "received": 0}
    payload = encoded(bytes(size), durable=durable, properties=PROPERTIES)
    batch = [payload] * 64

    def on_received(_: bytes) -> bool:
        counts["received"] += 1
        return True

    def on_accepted(numbers: list[int]) -> None:
        counts["accepted"] += len(numbers)

    consumer = Peer(host, port, "bench-receiver")
    capabilities = ("topic", "shared", "global") if source != address or durable else ()
    receiver = consumer.receiver(
        "bench|global", source, on_received, credit=CREDIT, capabilities=capabilities, durable=durable
    )
    producer = Peer(host, port, "bench-sender")
    sender = producer.sender("bench", address, on_accepted)
    poll = select.poll()
    peers = {peer.sock.fileno(): peer for peer in (consumer, producer)}
    for peer in peers.values():
        peer.flush()
        poll.register(peer.sock, select.POLLIN)
    while receiver.attached is None or not sender.credit:
        for fd, _ in poll.poll(20_000):
            peers[fd].read()
            peers[fd].flush()
    start = time.perf_counter()
    sent = 0
    while counts["accepted"] < messages or counts["received"] < messages:
        while sent < messages and sender.credit > 0:
            part = batch[: min(64, messages - sent, sender.credit)]
            sender.send(part)
            sent += len(part)
        for peer in peers.values():
            poll.modify(peer.sock, select.POLLIN if peer.flush() else select.POLLIN | select.POLLOUT)
        for fd, mask in poll.poll(20_000):
            if mask & select.POLLIN:
                peers[fd].read()
    seconds = time.perf_counter() - start
    for peer in peers.values():
        peer.free()
    return seconds


if __name__ == "__main__":
    host, port, address, source, messages, size, kind = sys.argv[1:]
    print(run(host, int(port), address, source, int(messages), int(size), durable=kind == "durable"))
