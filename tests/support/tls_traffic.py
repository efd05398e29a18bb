"""JMS traffic over TLS while the broker's certificate is replaced: what is connected goes on, and who may connect then.

Each client trusts what a PEM file of its own says, as a pod does that has mounted a ConfigMap, and verifies the name of
the broker in its certificate.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from e2e import jms_tool
from e2e.jms_tool import Board, Client

__all__ = ["Door", "Flow", "flowing"]

SECONDS = 300
"""Only a test that fails waits so long."""
TOPIC, SUBSCRIPTION = "orders", "billing"
NO_END = 10_000_000
PAUSE_MILLIS = 5
REFUSAL = "PKIX path"
"""How Java begins to say that it does not trust a certificate."""


@dataclass(frozen=True, slots=True)
class Door:
    """A TLS listener, and a folder for what its clients trust and log."""

    address: str
    """HOST:PORT, the host as the certificate names it."""
    work: Path
    options: str = ""
    """Further ones of the URL, each behind `&`."""

    def access(self, name: str, trusted: str) -> list[str]:
        """Options of a Java client that trusts these certificates (PEM). It does not connect again by itself."""
        authorities = self.work / f"{name}.pem"
        authorities.write_text(trusted)
        options = f"transport.connectTimeout=60000&jms.prefetchPolicy.all=20{self.options}"
        return ["--uri", f"amqps://{self.address}?{options}", "--ca", str(authorities)]


@dataclass(slots=True)
class Flow:
    """A producer and a consumer for each set of certificates; they share one subscription."""

    door: Door
    board: Board = field(default_factory=Board)
    newcomers: int = 0

    def goes_on(self, count: int = 50) -> None:
        """Wait until this number of further messages was accepted and received."""
        with self.board.lock:
            accepted = len(self.board.tally.accepted) + count
            received = len(self.board.tally.received) + count
        self.board.wait_for(
            f"{count} further messages",
            lambda tally: len(tally.accepted) >= accepted and len(tally.received) >= received,
            SECONDS,
        )

    def admits(self, trusted: str) -> bool:
        """Whether a new client that trusts these connects and gets messages; False: it does not trust the broker.

        Raises:
            RuntimeError: it failed for another reason.
        """
        self.newcomers += 1
        name = f"newcomer-{self.newcomers}"
        log = self.door.work / f"{name}.log"
        access = self.door.access(name, trusted)
        with jms_tool.consume(self.board, name, access, TOPIC, SUBSCRIPTION, log, max=5) as client:
            try:
                client.finish(SECONDS)
            except RuntimeError:
                if any(REFUSAL in each for each in client.failures):
                    return False
                raise
        return True


@contextmanager
def flowing(door: Door, trusts: Mapping[str, str]) -> Generator[Flow]:
    """Clients connect, one producer and one consumer for each of `trusts`, and none of these connections may end.

    At the end every accepted message has come, each once.
    """
    flow = Flow(door)
    with ExitStack() as ends:
        consumers = [ends.enter_context(_consumer(flow, name, trusted)) for name, trusted in trusts.items()]
        for consumer in consumers:
            consumer.wait_ready(SECONDS)
        producers = [ends.enter_context(_producer(flow, name, trusted)) for name, trusted in trusts.items()]
        flow.board.wait_for("every producer to send", lambda tally: _senders(tally.accepted) == set(trusts), SECONDS)
        flow.goes_on()
        yield flow
        flow.goes_on()
        for producer in producers:
            producer.stop(SECONDS)
        flow.board.wait_for("every accepted message", lambda tally: not tally.lost, SECONDS)
        for consumer in consumers:
            consumer.stop(SECONDS)
    tally = flow.board.tally
    assert [each.failures for each in (*producers, *consumers)] == [[]] * 2 * len(trusts), "a connection ended"
    assert tally.doubtful == set(), "a producer lost its connection"
    assert tally.findings((), 0) == []
    assert tally.repeated == 0


def _consumer(flow: Flow, name: str, trusted: str) -> Client:
    access = flow.door.access(f"consumer-{name}", trusted)
    log = flow.door.work / f"consumer-{name}.log"
    return jms_tool.consume(flow.board, name, access, TOPIC, SUBSCRIPTION, log)


def _producer(flow: Flow, name: str, trusted: str) -> Client:
    access = flow.door.access(f"producer-{name}", trusted)
    more = {"connections": 1, "pause_millis": PAUSE_MILLIS, "until_input_ends": 1}
    log = flow.door.work / f"producer-{name}.log"
    return jms_tool.publish(flow.board, name, access, TOPIC, NO_END, log, **more)


def _senders(accepted: set[str]) -> set[str]:
    return {each.rpartition("-")[0] for each in accepted}
