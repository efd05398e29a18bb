"""A consumer that moves each message on to two queues in one transaction, while its broker is killed; and its books.

Because consuming and sending are one transaction, every message has to end in both queues exactly once, or be where it
was; and in both if the broker said that the transaction was committed.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from amqp.raw_client import RawClient
from broker.transacting import Got, Transacting
from crash.kills import Victim

from penstock_amqp.frames.performatives import Accepted
from penstock_amqp.messages.transactions import Discharge

__all__ = ["Books", "move_under_kills"]

WORK, FIRST, SECOND = "work", "first", "second"


@dataclass
class Books:
    """What the client knows, and what was found at the end."""

    messages: int
    committed: set[str] = field(default_factory=set[str])
    """The broker said so."""
    in_doubt: set[str] = field(default_factory=set[str])
    """A commit was asked for and never answered."""
    kills: int = 0
    unsynced: int = 0
    left: Counter[str] = field(default_factory=Counter[str])
    first: Counter[str] = field(default_factory=Counter[str])
    second: Counter[str] = field(default_factory=Counter[str])

    def faults(self) -> list[str]:
        """Everything that must not be."""
        found: list[str] = []
        for number in map(str, range(self.messages)):
            places = (self.left[number], self.first[number], self.second[number])
            if places not in ((1, 0, 0), (0, 1, 1)):
                found.append(f"{number} stands {places} times in work, first, second")
            if number in self.committed and places != (0, 1, 1):
                found.append(f"{number} was committed and stands {places} times")
        return found


def move_under_kills(folder: Path, files: str, *, messages: int, kills: int, seed: int) -> Books:
    """Move `messages` while the broker is killed `kills` times; the books, with what was found behind the last one."""
    chance = random.Random(seed)
    victim = Victim(folder, files)
    books = Books(messages)
    _, port = victim.start()
    try:
        with RawClient(port, "feeder") as raw:
            _feed(Transacting(raw), messages)
        while books.kills < kills:
            _move_until_killed(port, books, chance, lambda: _kill(victim, books), within_commit=books.kills % 2 == 1)
            _, port = victim.start()
        for address, found in ((WORK, books.left), (FIRST, books.first), (SECOND, books.second)):
            with RawClient(port, "reader") as raw:
                found.update(_drained(Transacting(raw), address))
    finally:
        victim.end()
    return books


def _kill(victim: Victim, books: Books) -> None:
    books.kills += 1
    books.unsynced += victim.kill()


def _feed(client: Transacting, messages: int) -> None:
    sender = client.sender(WORK)
    sent = [client.post(sender, str(number), None) for number in range(messages)]
    assert all(client.state_of(delivery) == Accepted() for delivery in sent)


def _move_until_killed(
    port: int, books: Books, chance: random.Random, kill: Callable[[], None], *, within_commit: bool
) -> None:
    """Every other kill comes at any time, the others right after a commit was asked for."""
    pending: dict[int, list[str]] = {}
    rest = chance.randint(5, 60)
    timer = threading.Timer(chance.uniform(0.05, 0.3), kill)
    try:
        with RawClient(port, "mover") as raw:
            client = Transacting(raw)
            out = client.sender(FIRST), client.sender(SECOND)
            client.receiver(WORK, credit=5_000)
            if not within_commit:
                timer.start()
            while True:
                batch = client.get(chance.randint(1, 8))
                discharge = _move(client, batch, out)
                pending[discharge] = [str(got.body) for got in batch]
                books.in_doubt.update(pending[discharge])
                rest -= 1
                if within_commit and rest == 0:
                    kill()
                assert client.state_of(discharge) == Accepted()
                books.committed.update(pending[discharge])
                books.in_doubt.difference_update(pending.pop(discharge))
    except (EOFError, ConnectionError):
        if not within_commit:
            timer.join()


def _move(client: Transacting, batch: list[Got], out: tuple[int, int]) -> int:
    txn_id = client.declare()
    for got in batch:
        client.settle(got, Accepted(), txn_id)
        for sender in out:
            client.post(sender, str(got.body), txn_id)
    return client.request(Discharge(txn_id=txn_id))


def _drained(client: Transacting, address: str) -> list[str]:
    """Everything that waits, by accepting it: the end is where a message sent now comes."""
    sender = client.sender(address)
    client.receiver(address, credit=10_000)
    assert client.state_of(client.post(sender, "end", None)) == Accepted()
    bodies: list[str] = []
    while True:
        (got,) = client.get()
        client.settle(got, Accepted(), None)
        if got.body == "end":
            return bodies
        bodies.append(str(got.body))
