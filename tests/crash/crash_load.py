"""Clients of a broker that is killed: two producers, three subscriptions of two consumers, one that comes and goes, and
a deep one.

Of the deep subscription nobody takes anything in every other life of the broker, so its messages are paged; in the
lives between they are read back, and all but a few taken, so that segments with little alive are compacted.
"""

import random
import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from crash.churn import Churn
from crash.ledger_of_load import BODY, Ledger
from crash.load_client import Closed, Gone, Peer, Sender, encoded

SUBSCRIPTIONS = ("first", "second", "third")
DEEP = "deep"
LEFT_ONE_IN = 64
"""Of the deep subscription's messages, one in so many is held unsettled until the end."""
SHARED = ("topic", "shared", "global")
ADDRESS = "amq.topic/load"
PRODUCERS = 2
BATCH = 64
HEAD = encoded(bytes(100), durable=True)[: -BODY.size]


STUCK_SECONDS = 120.0
"""So long nothing may be accepted and nothing received, while something is waited for."""


class Silence(Exception):
    """No socket had anything for too long, or none had what matters."""


class Refused(Exception):
    """The broker takes no messages, though it has not gone."""


class Load:
    """Connect with `start`, then `step` until enough has happened; after the broker is gone, `stop` and start again."""

    def __init__(self, seed: int) -> None:
        self.ledger = Ledger(PRODUCERS, (*SUBSCRIPTIONS, DEEP))
        self.churn = Churn(random.Random(seed), self.ledger)
        self.publishing = True
        self._peers: dict[int, Peer] = {}
        self._senders: list[tuple[int, Sender, list[int]]] = []
        self._churning: Iterator[None] = iter(())
        self._poll = select.poll()
        self._lives = 0
        self._is_last = self._is_ebb = False

    def start(self, host: str, port: int, *, is_last: bool = False) -> None:
        """Attach all consumers, check what the churn knows, then begin. Raises Gone or OSError.

        `is_last`: nothing is left any more.
        """
        self._poll = select.poll()
        self._lives, self._is_last = self._lives + 1, is_last
        self._is_ebb = is_last or self._lives % 2 == 0
        receivers = [
            self._peer(host, port, f"{name}-{each}").receiver(
                f"{name}|global{each}", ADDRESS, self._taker(name), capabilities=SHARED, durable=True
            )
            for name in SUBSCRIPTIONS
            for each in (1, 2)
        ]
        deep = self._peer(host, port, DEEP).receiver(
            f"{DEEP}|global", ADDRESS, self._take_deep, capabilities=SHARED, durable=True, credit=0
        )
        receivers.append(deep)
        self._step_until(lambda: all(receiver.attached is not None for receiver in receivers))
        for receiver in receivers:
            if receiver.detached is not None:
                self.ledger.violate(f"an attach was refused: {receiver.detached}")
        if self._is_ebb:
            deep.begin(1000)
        self._churning = self.churn.run(self._peer(host, port, "churn"))
        for number in range(PRODUCERS):
            numbers: list[int] = []
            sender = self._peer(host, port, f"producer-{number}").sender(
                "load", ADDRESS, self._accepter(number, numbers)
            )
            self._senders.append((number, sender, numbers))

    def _peer(self, host: str, port: int, container: str) -> Peer:
        peer = Peer(host, port, container)
        self._peers[peer.sock.fileno()] = peer
        self._poll.register(peer.sock, select.POLLIN)
        return peer

    def _taker(self, subscription: str) -> Callable[[bytes], bool]:
        def take(message: bytes) -> bool:
            return self.ledger.received(subscription, message)

        return take

    def _take_deep(self, message: bytes) -> bool:
        return self.ledger.received(DEEP, message, one_in=0 if self._is_last else LEFT_ONE_IN)

    def _accepter(self, number: int, sequences: list[int]) -> Callable[[list[int]], None]:
        """Numbers on a link begin anew with each connection; `sequences[n - 1]` is the producer's own."""
        return lambda numbers: self.ledger.producers[number].accept([sequences[each - 1] for each in numbers])

    def step(self, timeout_ms: int = 20_000) -> None:
        """Send what credit allows, wait for sockets, read. Raises Gone, Refused, or Silence if nothing comes."""
        if self.publishing:
            self._publish()
        next(self._churning, None)
        for fd, peer in self._peers.items():
            peer.tick()
            self._poll.modify(fd, select.POLLIN if peer.flush() else select.POLLIN | select.POLLOUT)
        ready = self._poll.poll(timeout_ms)
        if not ready:
            raise Silence(f"nothing came for {timeout_ms} ms")
        for fd, mask in ready:
            if mask & ~select.POLLOUT:
                self._peers[fd].read()

    def _publish(self) -> None:
        for number, sender, sequences in self._senders:
            if sender.refused:
                raise Refused(f"the broker refused {len(sender.refused)} messages of producer {number}")
            count = min(BATCH, sender.credit)
            if count > 0:
                added = self.ledger.producers[number].send(count)
                sequences += added
                sender.send([HEAD + BODY.pack(number, sequence) for sequence in added])

    def _step_until(self, reached: Callable[[], bool], timeout_ms: int = 20_000) -> None:
        ledger, moved, since = self.ledger, -1, time.monotonic()
        while not reached():
            if moved != ledger.accepts + ledger.receipts:
                moved, since = ledger.accepts + ledger.receipts, time.monotonic()
            elif time.monotonic() > since + STUCK_SECONDS:
                raise Silence(f"nothing was accepted and nothing received for {STUCK_SECONDS:.0f} s")
            self.step(timeout_ms)

    def run(self, accepts: int) -> None:
        """Until so many more messages were accepted. Raises Gone if the broker goes before, or Silence."""
        target = self.ledger.accepts + accepts
        self._step_until(lambda: self.ledger.accepts >= target)

    def ebb(self, share: float) -> None:
        """In a life in which the deep subscription is read: publish nothing until this share of what has not come yet
        has come. Raises Gone.
        """
        if not self._is_ebb:
            return
        self.publishing = False
        rest = self.ledger.outstanding * (1 - share)
        try:
            self._step_until(lambda: self.ledger.outstanding <= rest)
        finally:
            self.publishing = True

    def run_until_gone(self) -> None:
        """Until the broker, which somebody else ends, is gone. Raises Closed."""
        try:
            self._step_until(lambda: False)
        except Closed:
            raise
        except (Gone, ConnectionError):
            return

    def drain(self) -> None:
        """Publish nothing more, and take what is there: until nothing is lacking, or comes for long, and two seconds
        more, for what comes twice. Raises Gone.
        """
        self.publishing = False
        self._churning = iter(())
        with suppress(Silence):
            self._step_until(lambda: not any(self.ledger.lacking().values()))
        with suppress(Silence):
            self._step_until(lambda: False, 2000)

    def stop(self) -> None:
        """Let go of all connections."""
        self._churning = iter(())
        self._senders.clear()
        for peer in self._peers.values():
            peer.free()
        self._peers.clear()
