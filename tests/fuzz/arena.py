"""A whole broker within this process, a witness that must notice nothing, and connections that say anything.

The broker is the real one: loop, endpoint, rules, log; its files are in memory and its clock moves only when
nothing else does.
"""

from __future__ import annotations

import gc
import logging
import socket
import struct

from broker.machine.client import Accepted, Client, Delivered, Seen, Source
from support.broker_site import BrokerSite

__all__ = ["Arena"]

LIFE: int = 400
"""Conversations with one broker; what they left behind on purpose (durable subscriptions) would only grow."""
TURNS: int = 4000
"""More turns without quiet mean that the broker does not come to rest."""


class _Errors(logging.Handler):
    """Keeps what the broker logs as an error: an exception that somebody's bytes reached."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(self.format(record))


class Arena:
    """Serves one conversation after the other."""

    def __init__(self) -> None:
        self._errors = _Errors()
        logging.getLogger("penstock_broker").addHandler(self._errors)
        logging.getLogger("penstock_amqp").addHandler(self._errors)
        self._served = 0
        self._begin()

    def _begin(self) -> None:
        self._site = BrokerSite()
        self._witness = Client("witness", 0, self._site.connect())
        self._pump(None)
        source = Source(address="amq.topic/w", shared=False, global_=False, durable=False, expiry="link-detach")
        self._witness.attach(1, "seen", source)
        self._pump(None)
        self._witness.grant(self._witness.consuming["seen"], LIFE + 1)
        self._witness.produce("amq.topic/w")
        self._pump(None)
        self._check_witness()

    def serve(self, data: bytes) -> None:
        """One connection says `data`, in pieces, and leaves; then nothing of it may be left."""
        if self._served and self._served % LIFE == 0:
            self._witness.cut()
            self._site.close()
            self._begin()
        self._served += 1
        self._site.broker.clients.next_connection = (
            1  # the witness: names of transactions hold the number, and seeds know it
        )
        peer = self._site.connect()
        step = 64 + (data[-1] if data else 0) * 32
        for at in range(0, len(data), step):
            try:
                peer.sendall(data[at : at + step])
            except OSError:  # the broker has closed it, or does not read from it any more
                break
            self._pump(peer)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        self._pump(None)
        self._check()
        self._check_witness()

    def _check(self) -> None:
        assert not self._errors.seen, "\n".join(self._errors.seen)
        broker = self._site.broker
        assert len(broker.clients.connections) == 1, "a connection that has left is still there"
        assert all(key.container_id == "witness" for key in broker.clients.live_links), (
            "a link that has left is still there"
        )
        if self._served % 100 == 0:
            gc.collect()
            left = sum(1 for each in gc.get_objects() if type(each).__name__ == "Connection" and hasattr(each, "peer"))
            assert left <= 1, f"{left} connections are in memory"

    def _check_witness(self) -> None:
        body = f"m{self._served}"
        self._witness.send("amq.topic/w", body, durable=False)
        seen = self._pump(None)
        assert Accepted(body) in seen, "the witness' message was not accepted"
        assert [each.body for each in seen if isinstance(each, Delivered)] == [body], "the witness did not get it"
        consuming = self._witness.consuming["seen"]
        self._witness.settle(consuming, body, 0x24, failed=False, undeliverable=False)
        self._pump(None)

    def _pump(self, peer: socket.socket | None) -> list[Seen]:
        """Turn until nobody has anything to say; what the witness saw."""
        seen: list[Seen] = []
        quiet = 0
        for _ in range(TURNS):
            moved = self._witness.flush() + self._site.has_work
            self._site.loop.turn(may_wait=False)
            self._site.syncer.complete()
            moved += self._witness.receive(seen)
            if peer is not None:
                moved += _drained(peer)
            if not moved and not self._site.is_synced:
                self._site.now_ms += 10  # acks alone are synced a little later
                moved = 1
            quiet = 0 if moved else quiet + 1
            if quiet == 2:
                return seen
        raise AssertionError("the broker does not come to rest")


def _drained(peer: socket.socket) -> int:
    try:
        return len(peer.recv(1 << 20))
    except OSError:
        return 0
