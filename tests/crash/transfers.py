"""Tokens that transactions carry between two queues while the broker is killed: none is lost, none doubled, and what
one transaction moved stays together. Clients keep their own record of what was committed.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from crash.kills import TALLIED, Victim
from support.raw_client import RawClient
from support.transaction_client import ReceivedDelivery, TransactionClient
from support.waiting import until

from penstock_amqp.frames.performatives import Accepted

QUEUES = ("left", "right")
RECEIPTS = "receipts"
TOKENS = 60
MOST = 5  # tokens of one transaction
BETWEEN = (20, 100)  # transactions committed before a kill

GONE = (EOFError, ConnectionError)


@dataclass
class Record:
    """What the clients know: per transaction the tokens it moved; which were committed, and which nobody heard of."""

    moved: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    committed: set[str] = field(default_factory=set[str])
    unheard: set[str] = field(default_factory=set[str])
    kills: int = 0
    unsynced: int = 0


@dataclass
class Found:
    """What the broker holds in the end: tokens with the transaction that moved each last, and receipts."""

    tokens: list[tuple[str, str]]
    receipts: list[str]


class Carrier(threading.Thread):
    """One client that moves tokens from one queue to the other until the broker goes."""

    def __init__(self, port: int, source: str, target: str, name: str, record: Record, seed: int) -> None:
        super().__init__(name=name)
        self._port, self._source, self._target = port, source, target
        self._record, self._chance = record, random.Random(seed)
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with RawClient(self._port, self.name) as raw:
                self._carry(TransactionClient(raw))
        except GONE:
            pass
        except Exception as error:
            self.error = error

    def _carry(self, client: TransactionClient) -> None:
        out, receipts = client.sender(self._target), client.sender(RECEIPTS)
        client.receiver(self._source, credit=1000)
        number = 0
        while True:
            got = client.get(self._chance.randint(1, MOST))
            number += 1
            self._transact(client, f"{self.name}.{number}", got, out, receipts)

    def _transact(
        self, client: TransactionClient, name: str, got: list[ReceivedDelivery], out: int, receipts: int
    ) -> None:
        tokens = [str(each.body).partition(" ")[0] for each in got]
        txn_id = client.declare()
        for each, token in zip(got, tokens, strict=True):
            client.settle(each, Accepted(), txn_id)
            client.post(out, f"{token} {name}", txn_id)
        client.post(receipts, name, txn_id)
        self._record.moved[name] = frozenset(tokens)
        self._record.unheard.add(name)
        if self._chance.random() < 0.1:
            assert client.discharge(txn_id, fail=True) == Accepted()
            del self._record.moved[name]
        else:
            assert client.discharge(txn_id) == Accepted()
            self._record.committed.add(name)
        self._record.unheard.discard(name)


def carry_often(folder: Path, files: str, *, kills: int, seconds: float, seed: int) -> tuple[Record, Found]:
    """At least `kills` kills and `seconds` of carrying; then what is left."""
    chance = random.Random(seed)
    victim, record = Victim(folder, files), Record()
    deadline = time.monotonic() + seconds
    try:
        _, port = victim.start()
        with RawClient(port, "maker") as raw:
            maker = TransactionClient(raw)
            left = maker.sender(QUEUES[0])
            for token in range(TOKENS):
                assert maker.state_of(maker.post(left, f"{token} -", None)) == Accepted()
        while record.kills < kills or time.monotonic() < deadline:
            carriers = [
                Carrier(port, source, target, f"{record.kills}-{source}", record, chance.getrandbits(32))
                for source, target in (QUEUES, QUEUES[::-1])
            ]
            for carrier in carriers:
                carrier.start()
            enough = len(record.committed) + chance.randint(*BETWEEN)
            _until_committed(record, enough, carriers)
            if files in TALLIED and record.kills % 2 == 0:
                victim.arm()
                record.unsynced += victim.ended()
            else:
                record.unsynced += victim.kill()
            record.kills += 1
            for carrier in carriers:
                carrier.join(30)
                if carrier.error is not None:
                    raise carrier.error
            _, port = victim.start()
        return record, _look(port)
    finally:
        victim.end()


def _until_committed(record: Record, enough: int, carriers: list[Carrier]) -> None:
    until(
        lambda: len(record.committed) >= enough or any(carrier.error for carrier in carriers),
        f"{enough} transactions committed",
    )


def _look(port: int) -> Found:
    tokens = [_token(got) for queue in QUEUES for got in _taken(port, queue)]
    receipts: list[str] = []
    while some := [str(got.body) for got in _taken(port, RECEIPTS)]:
        receipts += some
    return Found(tokens, receipts)


def _taken(port: int, queue: str) -> list[ReceivedDelivery]:
    """Up to 5000 messages of a queue (a raw client does not renew its session's window), accepted."""
    with RawClient(port, "looker") as raw:
        client = TransactionClient(raw)
        client.receiver(queue, credit=5000)
        found = _all(client)
        for got in found:
            client.settle(got, Accepted(), None)
        client.discharge(client.declare(), fail=True)  # the broker has read what came before
    return found


def _all(client: TransactionClient) -> list[ReceivedDelivery]:
    """Everything that comes until the broker has nothing more to say."""
    found: list[ReceivedDelivery] = []
    while not client.nothing_came():
        found += client.get(client.waiting)
    return found


def _token(got: ReceivedDelivery) -> tuple[str, str]:
    token, _, name = str(got.body).partition(" ")
    return token, name


def violations(record: Record, found: Found) -> list[str]:
    """Where what is there differs from what the clients were told; nothing if all is well."""
    wrong: list[str] = []
    count = Counter(token for token, _ in found.tokens)
    wrong += [f"token {token} is there {count[str(token)]} times" for token in range(TOKENS) if count[str(token)] != 1]
    receipts = Counter(found.receipts)
    wrong += [f"{name} has {times} receipts" for name, times in receipts.items() if times > 1]
    wrong += [f"{name} was committed and has no receipt" for name in record.committed if name not in receipts]
    wrong += [
        f"{name} has a receipt and was neither committed nor cut off"
        for name in receipts
        if name not in record.committed and name not in record.unheard
    ]
    wrong += [
        f"token {token} was moved by {name}, which has no receipt"
        for token, name in found.tokens
        if name != "-" and name not in receipts
    ]
    return wrong
