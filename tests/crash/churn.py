"""A client that attaches, leaves, rebinds and unsubscribes durable subscriptions, and knows what a crash may not
change.

Known after an answer: the subscription is there, or is gone. While a request is unanswered, nothing is known. What is
known is looked up by a null source after each restart; and no message that was accepted before a subscription's
present life was asked for may come.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from crash.ledger_of_load import Ledger, identity
from crash.load_client import Peer, Receiver

NAMES = ("ebb", "flow", "tide")
SHARED = ("topic", "shared", "global")
BINDINGS = ("load", "elsewhere")  # nothing is ever published to the second


class State(Enum):
    GONE = auto()
    THERE = auto()
    UNKNOWN = auto()


@dataclass(slots=True)
class Known:
    """`floor`: per producer, sequences below were accepted before this life of the subscription was asked for."""

    state: State = State.GONE
    binding: str = ""
    floor: list[int] = field(default_factory=list[int])


class Churn:
    """Lives on over restarts; `run` is one connection's worth of it.

    `counts` says how often each thing was seen through.
    """

    def __init__(self, chance: random.Random, ledger: Ledger) -> None:
        self._chance = chance
        self._ledger = ledger
        self._known = {name: Known() for name in NAMES}
        self.counts = {"attach": 0, "rebind": 0, "unsubscribe": 0, "leave": 0, "look up": 0}

    def run(self, peer: Peer) -> Iterator[None]:
        """One step per `next`; yields while it waits for an answer."""
        for name in NAMES:
            yield from self._look_up(peer, name)
        while True:
            name = self._chance.choice(NAMES)
            yield from self._visit(peer, name, self._chance.choice(BINDINGS))

    def _look_up(self, peer: Peer, name: str) -> Iterator[None]:
        known = self._known[name]
        link = peer.receiver(f"{name}|global", None, lambda _: False, credit=0)
        yield from _until(lambda: link.attached is not None)
        if link.attached:
            peer.detach_link(link)
        yield from _until(lambda: link.detached is not None)
        found = State.THERE if link.attached else State.GONE
        self.counts["look up"] += 1
        if known.state is not State.UNKNOWN and known.state is not found:
            self._ledger.violate(f"subscription {name} was {known.state.name} before the crash and is {found.name}")
        if found is State.GONE:
            self._known[name] = Known()

    def _visit(self, peer: Peer, name: str, binding: str) -> Iterator[None]:
        known = self._known[name]
        rebinds = known.state is State.THERE and known.binding != binding
        floor = [producer.accepted_up_to for producer in self._ledger.producers]
        if known.state is State.GONE:
            known.floor = floor
        known.state, known.binding = State.UNKNOWN, binding
        link = peer.receiver(
            f"{name}|global", f"amq.topic/{binding}", self._taker(name, known), capabilities=SHARED, durable=True
        )
        yield from _until(lambda: link.attached is not None)
        if not link.attached:
            yield from _until(lambda: link.detached is not None)
            self._ledger.violate(f"attach of {name} was refused: {link.detached}")
            return
        known.state = State.THERE
        if rebinds:
            known.floor = floor  # not before the answer: a crash may have left the former life
        self.counts["rebind" if rebinds else "attach"] += 1
        for _ in range(self._chance.randrange(20)):
            yield
        if self._chance.random() < 0.4:
            yield from self._unsubscribe(peer, link, known)
        else:
            peer.detach_link(link)
            yield from _until(lambda: link.detached is not None)
            self.counts["leave"] += 1

    def _unsubscribe(self, peer: Peer, link: Receiver, known: Known) -> Iterator[None]:
        known.state = State.UNKNOWN
        peer.close_link(link)
        yield from _until(lambda: link.detached is not None)
        if link.detached:
            self._ledger.violate(f"an unsubscribe was refused: {link.detached}")
            return
        known.state = State.GONE
        self.counts["unsubscribe"] += 1

    def _taker(self, name: str, known: Known) -> Callable[[bytes], bool]:
        def take(message: bytes) -> bool:
            producer, sequence = identity(message)
            if known.binding != BINDINGS[0]:
                self._ledger.violate(f"{name}: message {producer}/{sequence} came although it is bound elsewhere")
            elif sequence < known.floor[producer]:
                self._ledger.violate(f"{name}: message {producer}/{sequence} is older than the subscription's life")
            return self._chance.random() < 0.9  # the others are held until the link ends

        return take


def _until(reached: Callable[[], bool]) -> Iterator[None]:
    while not reached():
        yield
