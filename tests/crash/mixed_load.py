"""Everything at once while the broker is killed: tokens of any size that wander between queues by transactions, time to
live, delays, dead letters, limits and management, beside noise that makes the log turn over.

Each way in which a token moves is atomic, so every token has to be somewhere exactly once in the end, with the body
that it began with, unless a purge that was asked for took it. What a transaction did is told by its receipt.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from crash.mixed_broker import MixedBroker
from crash.mixed_client import Got, MixedClient
from support.raw_client import RawClient
from support.waiting import wait_until

from penstock_amqp.client.errors import TransportError
from penstock_amqp.client.management import ManagementClient
from penstock_amqp.frames.performatives import Accepted, Error, Modified, Rejected, Released
from penstock_amqp.messages.message_codec import Message, Properties
from penstock_amqp.messages.message_head import Header
from penstock_amqp.types.values import Symbol, Value
from penstock_api.management import DeliveryPolicy, EntityType, Operation, QueueDeclaration, QueueLimits
from penstock_api.message_operations import HandledMessages, MessageSelection

__all__ = ["Books", "mix", "violations"]

TOKENS = 60
LARGE = 6
"""So many of them are larger than memory should hold."""
PURGED = 5
"""So many of them may be purged."""
POLICY = DeliveryPolicy(dead_letter="dead", max_deliveries=3, expiry="late")
QUEUES = {
    "plain": QueueDeclaration(delivery=POLICY),
    "mortal": QueueDeclaration(delivery=POLICY),
    "narrow": QueueDeclaration(delivery=POLICY, limits=QueueLimits(max_messages=8, overflow="Reject")),
    "alone": QueueDeclaration(delivery=POLICY.model_copy(update={"exclusive_consumer": True})),
    "dead": QueueDeclaration(delivery=DeliveryPolicy(dead_letter="late", expiry="late")),
    "late": QueueDeclaration(delivery=DeliveryPolicy(dead_letter="dead", expiry="dead")),
}
NAMES = tuple(QUEUES)
RECEIPTS, NOISE = "receipts", "noise"
GONE = (EOFError, ConnectionError, TransportError)


@dataclass
class Books:
    """What the clients know."""

    committed: set[str] = field(default_factory=set[str])
    unheard: set[str] = field(default_factory=set[str])
    """Transactions whose commit was not answered."""
    purging: set[int] = field(default_factory=set[int])
    """Tokens that a purge may have taken."""
    purged: set[int] = field(default_factory=set[int])
    kills: int = 0
    did: Counter[str] = field(default_factory=Counter[str])
    tokens: Counter[int] = field(default_factory=Counter[int])
    """What was found in the end."""
    receipts: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])


def size_of(token: int) -> int:
    """Bytes of a token's body."""
    return 1_200_000 + 300_000 * token if token < LARGE else 50 + 997 * token


def body_of(token: int) -> bytes:
    """What a token carries."""
    return random.Random(token).randbytes(size_of(token))


def token_of(got: Got) -> int:
    """The token that came. Raises `AssertionError` if it is not what it was."""
    token = got.message.application_properties["token"]
    assert isinstance(token, int)
    assert got.message.body == body_of(token), f"token {token} has another body"
    return token


class Worker(threading.Thread):
    """Does something about the broker until it goes; `error` says if that went wrong."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self._work = work
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._work()
        except GONE:
            pass
        except Exception as error:
            self.error = error


class Wanderer:
    """One client that moves tokens."""

    def __init__(self, broker: MixedBroker, books: Books, name: str, seed: int) -> None:
        self._broker, self._books, self._name = broker, books, name
        self._chance = random.Random(seed)
        self._number = 0

    def work(self) -> None:
        while True:
            with RawClient(self._broker.port, self._name) as raw:
                sources = self._chance.sample(NAMES, self._chance.randint(2, len(NAMES)))
                client = MixedClient(raw, (*NAMES, RECEIPTS), sources)
                for _ in range(self._chance.randint(1, 30)):
                    self._step(client, sources)

    def _step(self, client: MixedClient, sources: list[str]) -> None:
        if self._chance.random() < 0.2:
            self._acquire(client, self._chance.choice(sources))
            client.grant_again()
            return
        got = client.get(self._chance.randint(1, 5))
        match self._chance.choices(("move", "mixed", "release", "fail", "reject", "leave"), (10, 3, 2, 2, 1, 1)):
            case ["move"]:
                self._move(client, got, mixed=False)
            case ["mixed"]:
                self._move(client, got, mixed=True)
            case ["release"]:
                self._settle(client, got, "released", Released())
            case ["fail"]:
                self._settle(client, got, "failed", Modified(delivery_failed=True))
            case ["reject"]:
                self._settle(client, got, "rejected", Rejected(error=Error(condition=Symbol("test:no"))))
            case _:
                client.leave(self._chance.choice(sources))
                self._books.did["left"] += 1
        client.grant_again()

    def _settle(self, client: MixedClient, got: list[Got], word: str, outcome: Released | Modified | Rejected) -> None:
        for each in got:
            client.settle(each, outcome)
        self._books.did[word] += len(got)

    def _acquire(self, client: MixedClient, queue: str) -> None:
        """One transaction that acquires some messages, and leaves some of them without an outcome."""
        txn_id = client.declare()
        got = client.acquire(queue, txn_id, self._chance.randint(1, 5))
        held = [each for each in got if self._chance.random() < 0.3]
        self._books.did["acquired"] += len(got)
        if self._conclude(client, txn_id, [each for each in got if each not in held], mixed=True):
            self._settle(client, held, "released", Released())

    def _move(self, client: MixedClient, got: list[Got], *, mixed: bool) -> None:
        """One transaction that moves these; a `mixed` one also ends some of them in other ways."""
        self._conclude(client, client.declare(), got, mixed=mixed)

    def _conclude(self, client: MixedClient, txn_id: bytes, got: list[Got], *, mixed: bool) -> bool:
        """Settle these in a transaction, send most of them elsewhere, and end it; whether it was committed."""
        self._number += 1
        name = f"{self._name}.{self._number}"
        sent: list[int] = []
        for each in got:
            if mixed and self._chance.random() < 0.4:
                outcome = self._chance.choice((Rejected(), Modified(delivery_failed=True), Released()))
                client.settle(each, outcome, txn_id)
                continue
            token = token_of(each)
            client.settle(each, Accepted(), txn_id, settled=self._chance.random() < 0.8)
            target = self._chance.choice(NAMES)
            sent.append(client.send(target, self._message(token, target), txn_id))
        client.send(RECEIPTS, Message(header=Header(durable=True), application_properties={"name": name}), txn_id)
        fail = self._chance.random() < 0.15
        if not fail:
            self._books.unheard.add(name)
        state = client.discharge(txn_id, fail=fail)
        for delivery in sent:
            client.state_of(delivery)
        self._books.unheard.discard(name)
        is_committed = isinstance(state, Accepted) and not fail
        if is_committed:
            self._books.committed.add(name)
        self._books.did["rolled back" if fail else type(state).__name__] += 1
        if isinstance(state, Rejected):
            assert state.error is not None and state.error.condition == "amqp:transaction:rollback", state.error
            assert (state.error.info or {})[Symbol("penstock:cause")] == "LimitExceeded", state.error  # of `narrow`
        return is_committed

    def _message(self, token: int, target: str) -> Message:
        ttl = self._chance.choice((None, self._chance.randint(1, 200))) if target == "mortal" else None
        annotations: dict[Value, Value] = {}
        if self._chance.random() < 0.2:
            annotations[Symbol("x-opt-delivery-delay")] = self._chance.randint(1, 300)
        group = self._chance.choice((None, None, "a", "b")) if target in ("plain", "alone") else None
        return Message(
            header=Header(durable=True, priority=self._chance.choice((None, 0, 4, 9)), ttl=ttl),
            annotations=annotations,
            properties=Properties(group_id=group),
            application_properties={"token": token},
            body=body_of(token),
        )


def make_noise(broker: MixedBroker, books: Books, seed: int) -> None:
    """Durable messages of all sizes into a queue that forgets the oldest."""
    chance = random.Random(seed)
    with RawClient(broker.port, "noise") as raw:
        client = MixedClient(raw, (NOISE,), [])
        while True:
            size = 1_500_000 if chance.random() < 0.02 else chance.choice((10, 1000, 50_000))
            durable = chance.random() < 0.8
            delivery = client.send(NOISE, Message(header=Header(durable=durable), body=bytes(size)))
            assert client.state_of(delivery) == Accepted()
            books.did["noise"] += 1


async def manage(broker: MixedBroker, books: Books, seed: int) -> None:
    """Move, redrive and purge from outside."""
    chance = random.Random(seed)
    node = await ManagementClient.connect(broker.management)
    try:
        while True:
            queue = chance.choice(NAMES)
            match chance.choices(("move", "redrive", "purge", "limit"), (4, 4, 1, 2)):
                case ["move"]:
                    elsewhere = chance.choice([name for name in NAMES if name != queue])
                    asked = MessageSelection(count=chance.randint(1, 5), destination=elsewhere)
                    books.did["moved"] += await _handled(node, Operation.MOVE, queue, asked)
                case ["redrive"]:
                    asked = MessageSelection(count=chance.randint(1, 5))
                    graves = chance.choice(("dead", "late"))
                    books.did["redriven"] += await _handled(node, Operation.REDRIVE, graves, asked)
                case ["purge"]:
                    await _purge(node, books, queue, TOKENS - 1 - chance.randrange(PURGED))
                case _:
                    limits = QueueLimits(max_messages=chance.randint(3, 12), overflow="Reject")
                    await node.update(QueueDeclaration(delivery=POLICY, limits=limits), "narrow")
            await asyncio.sleep(0.02)
    finally:
        await node.close()


async def _handled(node: ManagementClient, operation: Operation, queue: str, asked: MessageSelection) -> int:
    answer = await node.request(operation, EntityType.QUEUE, queue, asked)
    return HandledMessages.model_validate(answer.check().attributes).messages


async def _purge(node: ManagementClient, books: Books, queue: str, token: int) -> None:
    was_purging = token in books.purging
    books.purging.add(token)
    count = await _handled(node, Operation.PURGE, queue, MessageSelection(selector=f"token = {token}"))
    if count:
        books.purged.add(token)
        books.did["purged"] += 1
    elif not was_purging:
        books.purging.discard(token)


async def _declare(broker: MixedBroker) -> None:
    node = await ManagementClient.connect(broker.management)
    for name, declaration in QUEUES.items():
        await node.create(declaration, name)
    await node.create(QueueDeclaration(limits=QueueLimits(max_bytes=3_000_000)), NOISE)
    await node.create(QueueDeclaration(), RECEIPTS)
    await node.close()


def mix(folder: Path, files: str, *, kills: int, seconds: float, seed: int, wanderers: int = 4) -> Books:
    """At least `kills` kills and `seconds` of it; the books, with what was found behind the last kill."""
    chance = random.Random(seed)
    broker, books = MixedBroker(folder, files), Books()
    deadline = time.monotonic() + seconds
    try:
        broker.start()
        asyncio.run(_declare(broker))
        _feed(broker)
        while books.kills < kills or time.monotonic() < deadline:
            _until_killed(broker, books, chance, wanderers)
            broker.start()
        asyncio.run(_find(broker, books))
        books.wrong += [line for line in broker.said.splitlines() if "Traceback" in line or "ERROR" in line]
    finally:
        broker.end()
    return books


def _feed(broker: MixedBroker) -> None:
    with RawClient(broker.port, "feeder") as raw:
        client = MixedClient(raw, ("plain",), [])
        for token in range(TOKENS):
            message = Message(header=Header(durable=True), application_properties={"token": token}, body=body_of(token))
            assert client.state_of(client.send("plain", message)) == Accepted()


def _until_killed(broker: MixedBroker, books: Books, chance: random.Random, wanderers: int) -> None:
    seeds = [chance.getrandbits(32) for _ in range(wanderers + 2)]
    workers = [Worker(Wanderer(broker, books, f"w{books.kills}-{seed}", seed).work) for seed in seeds[:wanderers]]
    workers.append(Worker(lambda: make_noise(broker, books, seeds[-1])))
    workers.append(Worker(lambda: asyncio.run(manage(broker, books, seeds[-2]))))
    for worker in workers:
        worker.start()
    time.sleep(chance.uniform(0.3, 2.0))  # the kill comes at any moment: that is the test
    broker.kill()
    books.kills += 1
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive(), "a client did not notice the kill"
        if worker.error is not None:
            raise worker.error


async def _find(broker: MixedBroker, books: Books) -> None:
    """Take out everything there is, what is delayed or stranded included."""
    node = await ManagementClient.connect(broker.management)

    async def all_taken() -> bool:
        await asyncio.to_thread(_take_all, broker, books)
        return not any([(await node.read(EntityType.QUEUE, queue))["depth"] for queue in (*NAMES, RECEIPTS)])

    await wait_until(all_taken)
    await node.close()


def _take_all(broker: MixedBroker, books: Books) -> None:
    for queue in (*NAMES, RECEIPTS):
        with RawClient(broker.port, "finder") as raw:
            client = MixedClient(raw, (), [queue])
            while (got := client.take_all()) or client.is_receiving:
                for each in got:
                    if queue == RECEIPTS:
                        books.receipts[str(each.message.application_properties["name"])] += 1
                    else:
                        books.tokens[token_of(each)] += 1
                    client.settle(each, Accepted())
                client.grant_again()


def violations(books: Books) -> list[str]:
    """Where what was found differs from what the clients were told; nothing if all is well."""
    wrong = list(books.wrong)
    for token in range(TOKENS):
        count = books.tokens[token]
        least = 0 if token in books.purging else 1
        most = 0 if token in books.purged else 1
        if not least <= count <= most:
            wrong.append(f"token {token} of {size_of(token)} bytes is there {count} times")
    wrong += [f"{name} has {count} receipts" for name, count in books.receipts.items() if count > 1]
    wrong += [f"{name} was committed and has no receipt" for name in books.committed if name not in books.receipts]
    wrong += [
        f"{name} has a receipt and was neither committed nor cut off"
        for name in books.receipts
        if name not in books.committed and name not in books.unheard
    ]
    return wrong
