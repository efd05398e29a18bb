"""What the broker keeps of transactions: the links that declare them, and what was done in each.

Plain records; whoever ends a transaction clears its references, because reference cycles are not collected in the
broker process. Source: AMQP 1.0 part 4; docs/decisions/035-transactions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.events import Event, Held, Settled
from penstock_amqp.endpoint.links import Acquisition, InLink, OutLink
from penstock_broker.access.connection import Connection
from penstock_broker.queue.disposal import Disposal
from penstock_broker.queue.queue import Queue
from penstock_broker.state.links import Consumer
from penstock_broker.state.routes import ExchangeTarget, QueueTarget
from penstock_core.reason import Refuse
from penstock_core.transaction_rules import TransactionLimits, TransactionState, Usage

__all__ = [
    "ConnectionTransactions",
    "Coordinator",
    "Outcomes",
    "Posting",
    "Settlement",
    "Transaction",
    "Transactions",
    "transactions_of",
]


FREED_AT_ONCE: Final = 500
"""Messages of a transaction whose memory is given back in the turn in which it ends."""


class Outcomes:
    """The outcomes of a connection's discharges that are not sent yet, and what has to wait for them: the answer to the
    end of the link, session or connection by which they are sent.
    """

    __slots__ = ("_behind", "unsent")

    def __init__(self) -> None:
        self.unsent = 0
        self._behind: list[Callable[[], None]] = []

    def when_sent(self, action: Callable[[], None]) -> None:
        """Do something behind them: at once if there are none."""
        if self.unsent:
            self._behind.append(action)
        else:
            action()

    def sent(self) -> list[Callable[[], None]]:
        """One is sent, or won't be. What is to be done now, behind the last of them."""
        self.unsent -= 1
        if self.unsent:
            return []
        behind, self._behind = self._behind, []
        return behind


class Coordinator:
    """A link on which a client declares and discharges transactions."""

    __slots__ = ("can_reject", "connection", "is_closing", "link", "outcomes", "owed_credit", "transactions")

    def __init__(self, connection: Connection, link: InLink, outcomes: Outcomes, *, can_reject: bool) -> None:
        self.connection = connection
        self.link = link
        self.outcomes = outcomes
        """Those of its connection."""
        self.is_closing = False
        """The broker closes it once they are sent; nothing more is taken from it."""
        self.can_reject = can_reject
        """The link's source knows the outcome rejected; otherwise a refusal closes the link (part 4, 4.2 and 4.3)."""
        self.owed_credit = 0
        """Requests answered since the last top-up."""
        self.transactions: dict[bytes, Transaction] = {}
        """Declared here and not discharged, by txn-id."""


Posting: TypeAlias = tuple[ExchangeTarget | QueueTarget, list[bytes]]
"""Messages sent in a transaction, one after the other: where they go, and their encoded forms."""


@dataclass(slots=True, eq=False)
class Settlement:
    """A delivery that is to end as `end` says if its transaction commits."""

    consumer: Consumer
    """The link may be gone by the time of the commit."""
    held: Held
    end: Settled | None
    """None: it is accepted."""
    unsettled: Ptr | None
    """The client has not settled it: it is still among the endpoint's unsettled ones, under this."""


class Transaction:
    """One local transaction. `state` is changed by `ConnectionTransactions.move` only."""

    __slots__ = (
        "acquiring",
        "acquisition",
        "coordinator",
        "first_acquired",
        "id",
        "postings",
        "queues",
        "settlements",
        "since_us",
        "state",
        "undecided",
    )

    def __init__(self, coordinator: Coordinator, txn_id: bytes) -> None:
        self.coordinator = coordinator
        self.id = txn_id
        self.state = TransactionState()
        self.since_us = 0
        """When its first work came, microseconds since the epoch; 0: it has done nothing."""
        self.postings: list[Posting] = []
        """In sending order, over all links."""
        self.settlements: list[Settlement] = []
        """In the order in which they came."""
        self.queues: dict[Queue, None] = {}
        """From which it has settled or acquired something."""
        self.undecided: dict[Consumer, None] = {}
        """Those that gave a delivery an outcome in it without settling it: `Settlement.unsettled`."""
        self.acquisition: Acquisition | None = None
        """What it acquires; None until a link is to."""
        self.acquiring: dict[OutLink, None] = {}
        """Links that acquire in it. Some may be gone, or acquire in another by now."""
        self.first_acquired: Callable[[], None] | None = None
        """To be called once, when something is acquired in it."""

    def post(self, destination: ExchangeTarget | QueueTarget, messages: list[bytes]) -> None:
        """Keep messages for the commit. The list is the transaction's from now on."""
        if self.postings and self.postings[-1][0] is destination:
            self.postings[-1][1].extend(messages)
        else:
            self.postings.append((destination, messages))

    def release_links(self) -> list[OutLink]:
        """Its links acquire in it no more (4.4.3); those that did."""
        released = [link for link in self.acquiring if link.acquisition is self.acquisition]
        for link in released:
            link.acquisition = None
        self.acquiring.clear()
        self.first_acquired = None
        if self.acquisition is not None:
            self.acquisition.is_over = True
        return released


class ConnectionTransactions:
    """The open transactions of one connection; there once a coordinator link was attached."""

    __slots__ = (
        "_all",
        "_bytes",
        "_declared",
        "_prefix",
        "behind",
        "by_id",
        "last_closed",
        "outcomes",
    )

    def __init__(self, connection_number: int, everywhere: Transactions) -> None:
        self._all = everywhere
        self.by_id: dict[bytes, Transaction] = {}
        self.outcomes = Outcomes()
        self.behind: Sequence[Event] = ()
        """What came with the event that is being handled, and behind it."""
        self.last_closed: Refuse | None = None
        """Why the broker closed a producer's link on this connection last."""
        self._bytes = 0
        self._declared = 0
        self._prefix = connection_number.to_bytes(8, "big")

    @property
    def usage(self) -> Usage:
        """What they hold together."""
        return Usage(len(self.by_id), self._bytes, self._all.memory)

    @property
    def oldest_work_us(self) -> int:
        """When the first work of the oldest came, microseconds since the epoch; 0: none has done anything."""
        return min((each.since_us for each in self.by_id.values() if each.since_us), default=0)

    def settlements(self) -> Iterator[Settlement]:
        """The deliveries that were settled in them. Those that only have an outcome in them are still the client's."""
        settlements = (each for transaction in self.by_id.values() for each in transaction.settlements)
        return (each for each in settlements if each.unsettled is None)

    def add(self, coordinator: Coordinator) -> Transaction:
        """Begin a transaction; its name never was, nor will be, that of another, on any connection."""
        self._declared += 1
        transaction = Transaction(coordinator, self._prefix + self._declared.to_bytes(8, "big"))
        self.by_id[transaction.id] = transaction
        coordinator.transactions[transaction.id] = transaction
        return transaction

    def move(self, transaction: Transaction, state: TransactionState) -> None:
        """Put a transaction into another state."""
        self._bytes += state.bytes - transaction.state.bytes
        self._all.memory += state.memory - transaction.state.memory
        transaction.state = state
        if not state.is_sound:
            self._all.free(transaction)

    def remove(self, transaction: Transaction) -> None:
        """Forget a transaction."""
        self._bytes -= transaction.state.bytes
        self._all.memory -= transaction.state.memory
        del self.by_id[transaction.id]
        del transaction.coordinator.transactions[transaction.id]
        self._all.free(transaction)
        transaction.settlements.clear()
        transaction.undecided.clear()
        transaction.queues.clear()
        transaction.release_links()


def transactions_of(connection: Connection) -> ConnectionTransactions | None:
    """The open transactions of a connection; None unless it has attached a coordinator link."""
    ledger = connection.transactions
    assert ledger is None or isinstance(ledger, ConnectionTransactions)
    return ledger


class Transactions:
    """What concerns the transactions of all connections."""

    __slots__ = ("_disposal", "committed", "is_watched", "limits", "memory", "rolled_back", "working")

    def __init__(self, limits: TransactionLimits, disposal: Disposal) -> None:
        self.limits = limits
        self._disposal = disposal
        self.working: dict[Transaction, None] = {}
        """Those whose age counts, oldest first."""
        self.is_watched = False
        """A timer runs for the oldest."""
        self.memory = 0
        """Bytes of messages that all of them hold in memory."""
        self.committed = 0
        self.rolled_back = 0

    def free(self, transaction: Transaction) -> None:
        """What it has posted is not needed any more. Very many messages are freed in slices."""
        postings, transaction.postings = transaction.postings, []
        if sum(len(messages) for _, messages in postings) > FREED_AT_ONCE:
            self._disposal.add(_emptied(postings))


def _emptied(postings: list[Posting]) -> Iterator[object]:
    while postings:
        _, messages = postings.pop()
        while messages:
            yield messages.pop()
