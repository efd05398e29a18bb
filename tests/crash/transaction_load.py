"""A consumer that moves each message on to two queues in one transaction, while its broker is killed; and its books.

Because consuming and sending are one transaction, every message has to end in both queues exactly once, or be where it
was; and in both if the broker said that the transaction was committed.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from crash.kills import TALLIED, Victim
from support.raw_client import RawClient
from support.transaction_client import ReceivedDelivery, TransactionClient

from penstock_amqp.frames.performatives import Accepted

__all__ = ["Books", "move_under_kills"]

WORK, FIRST, SECOND = "work", "first", "second"
FED_TOGETHER = 100
"""Messages that are sent before their outcomes are read: fewer than the broker gives credit for at once."""


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
            _feed(TransactionClient(raw), messages)
        while books.kills < kills:
            if books.kills % 2:
                _move_until(port, books, chance, _kill_within_commit(victim, chance))
                books.unsynced += victim.ended()
            else:
                books.unsynced += _move_until_some_time(port, books, chance, victim)
            books.kills += 1
            _, port = victim.start()
        for address, found in ((WORK, books.left), (FIRST, books.first), (SECOND, books.second)):
            with RawClient(port, "reader") as raw:
                found.update(_drained(TransactionClient(raw), address))
    finally:
        victim.end()
    return books


def _feed(client: TransactionClient, messages: int) -> None:
    sender = client.sender(WORK)
    for first in range(0, messages, FED_TOGETHER):
        numbers = range(first, min(first + FED_TOGETHER, messages))
        sent = [client.post(sender, str(number), None) for number in numbers]
        assert all(client.state_of(delivery) == Accepted() for delivery in sent)


def _kill_within_commit(victim: Victim, chance: random.Random) -> Callable[[], None]:
    """To be called before each commit: one of the first sixty ends the broker."""
    rest = iter(range(chance.randint(5, 60)))
    timers: list[threading.Timer] = []

    def strike() -> None:
        if next(rest, None) is not None:
            return
        if victim.files in TALLIED:
            victim.arm()  # the block with the commit is written, and never synced
        elif not timers:  # a second one could meet the broker that is started next
            timers.append(threading.Timer(chance.uniform(0, 0.003), victim.kill))  # about when the commit is written
            timers[0].start()

    return strike


def _move_until_some_time(port: int, books: Books, chance: random.Random, victim: Victim) -> bool:
    """A kill that comes at any time; True if it met unsynced blocks."""
    unsynced: list[bool] = []
    timer = threading.Timer(chance.uniform(0.05, 0.3), lambda: unsynced.append(victim.kill()))
    timer.start()
    _move_until(port, books, chance, lambda: None)
    timer.join()
    return unsynced[0]


def _move_until(port: int, books: Books, chance: random.Random, before_commit: Callable[[], None]) -> None:
    """Move messages on until the broker is gone."""
    with suppress(EOFError, ConnectionError), RawClient(port, "mover") as raw:
        client = TransactionClient(raw)
        out = client.sender(FIRST), client.sender(SECOND)
        client.receiver(WORK, credit=5_000)
        while True:
            batch = client.get(chance.randint(1, 12))  # some are stored together
            txn_id = _move(client, batch, out)
            bodies = {str(got.body) for got in batch}
            before_commit()
            books.in_doubt |= bodies
            assert client.discharge(txn_id) == Accepted()
            books.committed |= bodies
            books.in_doubt -= bodies


def _move(client: TransactionClient, batch: list[ReceivedDelivery], out: tuple[int, int]) -> bytes:
    txn_id = client.declare()
    for got in batch:
        client.settle(got, Accepted(), txn_id)
        for sender in out:
            client.post(sender, str(got.body), txn_id)
    return txn_id


def _drained(client: TransactionClient, address: str) -> list[str]:
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
