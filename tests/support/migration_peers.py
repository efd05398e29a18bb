"""The brokers that docs/how-to/migrate.md leads away from, each with what a JMS application has there.

Every one has the subscriptions of `SUBSCRIPTIONS` and the queue `invoices`; RabbitMQ has queues that are bound instead.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benching import peer_brokers
from benching.brokers import Broker

__all__ = ["PEERS", "QUEUE", "SELECTED_FROM", "SUBSCRIPTIONS", "Peer", "Subscription"]

QUEUE: Final = "invoices"
SELECTED_FROM: Final = 601
"""The first number of a message that the selector lets through."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A durable subscription, as JMS makes it."""

    name: str
    client_id: str = ""
    is_shared: bool = True
    selector: str = ""

    def options(self, topic: str) -> list[str]:
        """How the Java program consumes from it; the same before and after the move."""
        found = ["--topic", topic, "--subscription", self.name, "--shared", str(int(self.is_shared))]
        found += ["--client-id", self.client_id] if self.client_id else []
        return [*found, "--selector", self.selector] if self.selector else found

    def declared(self) -> list[str]:
        """What `penstock declare subscription` says of it, beside the exchange, its keys and the selector."""
        found = [self.name, *(["--client-id", self.client_id] if self.client_id else [])]
        return found if self.is_shared else [*found, "--exclusive"]


BILLING: Final = Subscription("billing")
AUDIT: Final = Subscription("audit", client_id="audit-app", is_shared=False, selector="amount > 600")
MAILER: Final = Subscription("mailer", client_id="mail-app")
SUBSCRIPTIONS: Final = (BILLING, AUDIT, MAILER)


@dataclass(frozen=True, slots=True)
class Peer:
    """One of the brokers. `sources` are OLD_ADDRESS and the options of bridge.py, as the page says them."""

    name: str
    start: Callable[[Path], AbstractContextManager[Broker]]
    topic: str
    """To which JMS applications publish."""
    queue: str
    sources: Mapping[str, str]
    exchange: str = "orders"
    """What the topic becomes on Penstock."""
    key: str = ""
    """The binding key of the subscriptions there."""
    has_topics: bool = True
    """If not, consumers name queues, and their code changes."""

    @property
    def new_topic(self) -> str:
        """The topic that applications name on Penstock."""
        return self.topic if self.has_topics else "orders/eu.fr"

    @property
    def new_source(self) -> str:
        """The topic that consumers name on Penstock."""
        return self.topic if self.has_topics else "orders/eu.#"


@contextmanager
def _rabbitmq(folder: Path) -> Generator[Broker]:
    bound = dict.fromkeys((each.name for each in SUBSCRIPTIONS), "eu.#")
    with peer_brokers.rabbitmq(folder, bound, (QUEUE,)) as broker:
        yield broker


@contextmanager
def _broker_j(folder: Path) -> Generator[Broker]:
    with peer_brokers.broker_j(folder, (QUEUE,)) as broker:
        yield broker


PEERS: Final = {
    "artemis": Peer(
        "artemis",
        peer_brokers.artemis,
        topic="orders",
        queue=QUEUE,
        sources={
            "billing": "orders::billing:global",
            "audit": "orders::audit-app.audit",
            "mailer": "mailer --client-id mail-app",
        },
    ),
    "broker-j": Peer(
        "broker-j",
        _broker_j,
        topic="amq.topic/orders",
        queue=QUEUE,
        sources={
            "billing": "amq.topic/orders --shared billing",
            "audit": "audit --client-id audit-app",
            "mailer": "mailer --client-id mail-app",
        },
        exchange="amq.topic",
        key="orders",
    ),
    "rabbitmq": Peer(
        "rabbitmq",
        _rabbitmq,
        topic="/exchanges/orders/eu.fr",
        queue=f"/queues/{QUEUE}",
        sources={each.name: f"/queues/{each.name}" for each in SUBSCRIPTIONS},
        key="eu.#",
        has_topics=False,
    ),
}
