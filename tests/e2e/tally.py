"""Counting what clients saw: accepted, received, settled. Pure, so that the demo's verdict is itself under test.

An attempt's id is unique (`NAME-NUMBER.ATTEMPT`): a producer that got no answer sends the number again under another
id. So a second receipt of one id is the broker's second delivery, never the producer's second attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

__all__ = ["Receipt", "Tally"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """One message as one consumer got it."""

    consumer: str
    id: str
    delivery_count: int
    """AMQP's: 0 the first time."""


@dataclass(slots=True)
class Tally:
    """What the clients of one subscription say, added up."""

    accepted: set[str] = field(default_factory=set[str])
    doubtful: set[str] = field(default_factory=set[str])
    """Attempts whose answer a broken connection swallowed: they may be there or not."""
    receipts: list[Receipt] = field(default_factory=list[Receipt])
    settled: set[str] = field(default_factory=set[str])

    @property
    def received(self) -> set[str]:
        """Ids that some consumer got."""
        return {receipt.id for receipt in self.receipts}

    @property
    def lost(self) -> set[str]:
        """Accepted, and nobody got it."""
        return self.accepted - self.received

    @property
    def lag(self) -> int:
        """Messages that are known to be on the broker and that nobody has settled: what the lag job has to find."""
        return len((self.accepted | self.received) - self.settled)

    @property
    def repeated(self) -> int:
        """Receipts beyond the first of their id."""
        return len(self.receipts) - len(self.received)

    def share(self, ids: Set[str] | None = None) -> Counter[str]:
        """Receipts by consumer; `ids`: of these messages alone."""
        return Counter(receipt.consumer for receipt in self.receipts if ids is None or receipt.id in ids)

    def unmarked_repeats(self) -> set[str]:
        """Ids that came more than once and claimed more than once to be new."""
        new = Counter(receipt.id for receipt in self.receipts if receipt.delivery_count == 0)
        return {id_ for id_, count in new.items() if count > 1}

    def foreign(self) -> set[str]:
        """Received although nobody sent it."""
        return self.received - self.accepted - self.doubtful

    def findings(self, consumers: Iterable[str], at_least: float = 0.25, shared: Set[str] | None = None) -> list[str]:
        """What is wrong, in sentences; empty if nothing is. `at_least`: each consumer's share of the messages that were
        accepted, or of `shared`: those that came while all consumers had their links.
        """
        share = self.share(shared)
        wanted = int(len(self.accepted if shared is None else shared) * at_least)
        found = [
            (self.lost, "accepted messages were never received"),
            (self.unmarked_repeats(), "messages came twice without a delivery-count that says so"),
            (self.foreign(), "messages were received that nobody sent"),
        ]
        return [f"{len(ids)} {what}, such as {min(ids)}" for ids, what in found if ids] + [
            f"consumer {name} got {share[name]} messages; {wanted} were to be expected at least"
            for name in consumers
            if share[name] < wanted
        ]
