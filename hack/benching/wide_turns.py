"""`hack/bench turns`, second part: the longest turn that very many subscriptions or unsettled deliveries bring about,
in milliseconds.

A whole broker runs in this process, on simulated files and a clock that stands still but for what bounds turns; clients
are proton's engine on socket pairs. Only the broker's turns are timed, by the thread's processor time.
"""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, cast

from benching.long_turns import LIMIT_MS, timed_broker
from benching.scenarios import TWO_PROPERTIES
from proton import Endpoint, Event, Receiver

from penstock_amqp.messages.message_codec import decode_message
from penstock_amqp.types.values import Value
from penstock_broker.settings.settings import Role

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tests"))

if TYPE_CHECKING:
    from support.stepped_broker import SteppedBroker

    from penstock_broker.queue.queue import Queue


class Turns:
    """How long the turns of one kind of work took."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._took: list[float] = []

    def time(self, work: Callable[[], object]) -> None:
        """Do what is one turn's work."""
        begun = time.thread_time()
        work()
        self._took.append((time.thread_time() - begun) * 1000)

    def show(self) -> None:
        longest, following, *_ = sorted([*self._took, 0.0, 0.0], reverse=True)
        late = "" if longest <= LIMIT_MS else "  <- too long"
        took = f"the longest {longest:7.1f} ms, the next {following:5.1f}{late}"
        print(f"{self._what:58} {len(self._took):6,} turns, {took}", flush=True)


class Client:
    """A client that takes what comes and settles nothing."""

    def __init__(self, timed: SteppedBroker, container_id: str) -> None:
        from support.engine_client import EngineClient

        self._timed = timed
        self._engine = EngineClient(timed.connect_socket(), container_id, self._look)
        self.connection, self.session = self._engine.connection, self._engine.session
        self.answers: list[bytes] = []
        self.turns: Turns | None = None
        self.pump()

    def _look(self, events: Iterator[Event]) -> None:
        for event in events:
            link, delivery = event.link, event.delivery
            if event.type is not Event.DELIVERY or not isinstance(link, Receiver) or delivery is None:
                continue
            if delivery.partial or link.state & (Endpoint.REMOTE_CLOSED | Endpoint.LOCAL_CLOSED):
                continue
            if link.name == "answers":
                self.answers.append(link.recv(delivery.pending) or b"")
                delivery.settle()
            link.advance()

    def turn(self) -> None:
        if self.turns is not None:
            self.turns.time(self._timed.turn)
        else:
            self._timed.turn()

    def pump(self, quiet_turns: int = 3) -> None:
        quiet = 0
        while quiet < quiet_turns:
            moved = self._engine.flush()
            self.turn()
            moved += self._engine.receive(BlockingIOError)
            quiet = 0 if moved else quiet + 1

    def receiver(self, address: str, credit: int, name: str = "") -> Receiver:
        link = self.session.receiver(name or f"from {address}")
        link.source.address = address
        link.open()
        self.pump()
        link.flow(credit)
        self.pump()
        return link

    def ask(self, what: str, asked: bytes) -> None:
        """Send a management request, and show the turns until its answer has come."""
        self.turns = Turns(what)
        delivery = self._requests.delivery(str(time.monotonic_ns()))
        self._requests.stream(asked)
        self._requests.advance()
        self.answers.clear()
        while not self.answers:
            self.pump(1)
        delivery.settle()
        status = decode_message(self.answers[0]).application_properties["statusCode"]
        assert status in (200, 201), self.answers[0][:1000]
        self.turns.show()
        self.turns = None

    def manage(self) -> None:
        """Attach what requests and their answers need; the broker takes the client for one that may manage."""
        served = next(reversed(self._timed.broker.clients.connections.values()))
        served.listener = copy(served.listener)
        served.listener.role = Role.MANAGEMENT
        answers = self.session.receiver("answers")
        answers.source.address = "$management"
        answers.target.address = "answers"
        answers.open()
        self._requests = self.session.sender("requests")
        self._requests.target.address = "$management"
        self._requests.open()
        self.pump()
        answers.flow(1000)
        self.pump()

    def leave(self) -> None:
        """Close the socket. Only `cut` frees what the client holds: that would count as the broker's time."""
        self._engine.close_socket()

    def cut(self) -> None:
        self._engine.cut()


def wide_turns(messages: int, subscriptions: int, unsettled: int) -> None:
    """Print, for each kind of work, how many turns it took and how long the longest was."""
    _declarations_and_queries(subscriptions, unsettled)
    _fan_out(subscriptions)
    for held in (unsettled, messages):
        _leaving(held)
        _closed_group(held)
    _read(messages)
    _collections(messages)


def steady() -> None:
    gc.collect()
    gc.freeze()
    gc.disable()


def request(operation: str, kind: str, name: str | None = None, body: object = None, **properties: object) -> bytes:
    from penstock_amqp.messages.message_codec import Message, Properties, encode_message

    asked = {"operation": operation, "type": str(kind), **properties}
    if operation == "QUERY":
        asked["entityType"] = str(kind)
    if name is not None:
        asked["name"] = name
    return encode_message(
        Message(properties=Properties(reply_to="answers", message_id="1"), application_properties=asked, body=body)  # type: ignore[arg-type]
    )


def _declaration(number: int, exchange: str) -> Value:
    from penstock_api.management import SubscriptionDeclaration

    return cast(Value, SubscriptionDeclaration(subscription_name=f"s{number}", exchange=exchange).to_wire())


def _declare(timed: SteppedBroker, count: int, exchange: str) -> None:
    from penstock_api.management import EntityType
    from penstock_broker.management import declare

    kind: Value = {"exchangeType": "Fanout"}
    declare.declare(timed.broker, EntityType.EXCHANGE, exchange, kind, update=False)
    for number in range(count):
        answer = declare.declare(
            timed.broker, EntityType.SUBSCRIPTION, None, _declaration(number, exchange), update=False
        )
        assert answer.status == 201, answer
        if number % 100 == 0:
            timed.turn()
    timed.turn()


def _fill(timed: SteppedBroker, queue: Queue, messages: int, group: str | None = None) -> None:
    from crash.load_client import encoded

    from penstock_amqp.messages.message_codec import Message, Properties, encode_message
    from penstock_broker.queue.flags import GROUPED

    data = encoded(bytes(100), durable=False, properties=TWO_PROPERTIES)
    flags = 0
    if group is not None:
        data, flags = encode_message(Message(properties=Properties(group_id=group), body=bytes(100))), GROUPED
    first = timed.broker.log.next_messages(messages)
    now = timed.broker.clock.now_us
    queue.put([(first + each, data, now, 0, flags) for each in range(messages)])
    queue.depth_bytes += messages * len(data)


def _declarations_and_queries(subscriptions: int, unsettled: int) -> None:
    from penstock_api.management import EntityType

    timed = timed_broker(segment_bytes=8 * 1024 * 1024)
    _declare(timed, subscriptions, "orders")
    _fill(timed, timed.make_queue("jobs"), unsettled)
    consumer = Client(timed, "consumer")
    consumer.receiver("jobs", unsettled)
    assert timed.queue("jobs").in_flight == unsettled
    client = Client(timed, "manager")
    client.manage()
    steady()
    one = _declaration(7, "orders")
    client.ask("an unchanged subscription is declared again", request("CREATE", EntityType.SUBSCRIPTION, body=one))
    many = [
        {"type": EntityType.SUBSCRIPTION.value, "body": _declaration(number, "orders")}
        for number in range(min(1000, subscriptions))
    ]
    client.ask("1,000 are declared again by one request", request("CREATE", EntityType.SUBSCRIPTION, body=many))
    client.ask("READ of a subscription", request("READ", EntityType.SUBSCRIPTION, "psub:durable:global:s7"))
    client.ask("READ of the queue", request("READ", EntityType.QUEUE, "jobs"))
    client.ask("READ of the broker", request("READ", EntityType.BROKER, "broker"))
    client.ask("READ of an exchange", request("READ", EntityType.EXCHANGE, "orders"))
    for kind in (EntityType.SUBSCRIPTION, EntityType.QUEUE, EntityType.LINK):
        client.ask(f"QUERY of 1,000 {kind.value}", request("QUERY", kind))
    client.ask("QUERY of the first states", request("QUERY", EntityType.SUBSCRIPTION, statesSince=""))
    timed.close()


def _read(unsettled: int) -> None:
    from penstock_api.management import EntityType

    timed = timed_broker()
    _fill(timed, timed.make_queue("jobs"), unsettled)
    consumer = Client(timed, "consumer")
    consumer.receiver("jobs", unsettled)
    client = Client(timed, "manager")
    client.manage()
    steady()
    client.ask(f"READ of a queue with {unsettled:,} unsettled", request("READ", EntityType.QUEUE, "jobs"))
    timed.close()
    consumer.cut()


def _fan_out(queues: int) -> None:
    from crash.load_client import encoded

    timed = timed_broker(segment_bytes=8 * 1024 * 1024)
    _declare(timed, queues, "orders")
    client = Client(timed, "producer")
    sender = client.session.sender("to orders")
    sender.target.address = "orders"
    sender.open()
    client.pump()
    steady()
    data = encoded(bytes(100), durable=True, properties=TWO_PROPERTIES)
    for what in ("the first message to all subscriptions", "another message to all subscriptions"):
        client.turns = Turns(what)
        delivery = sender.delivery(str(len(what)))
        sender.stream(data)
        sender.advance()
        while not delivery.remote_state:
            client.pump(1)
        delivery.settle()
        client.turns.show()
        client.turns = None
    timed.close()


def _leaving(unsettled: int) -> None:
    for group in (None, "a"):
        timed = timed_broker()
        queue = timed.make_queue("jobs")
        _fill(timed, queue, unsettled, group)
        leaving = Client(timed, "leaving")
        # The owner of a group has few in flight; the rest is reserved for it.
        link = leaving.receiver("jobs", unsettled if group is None else 10)
        other = Client(timed, "other")
        other.receiver("jobs", 0 if group is None else 10)
        for _ in range(unsettled // 200 + 10 if group is not None else 1):
            timed.turn()
        steady()
        what = f"a consumer with {unsettled:,} unsettled detaches"
        leaving.turns = Turns(what if group is None else f"the owner of a group of {unsettled:,} detaches")
        link.close()
        leaving.pump(20)
        while timed.broker.work.delivery_returns:
            leaving.turn()
        leaving.turns.show()
        leaving.turns = None
        if group is None:
            timed.close()
            timed = timed_broker()
            queue = timed.make_queue("jobs")
            _fill(timed, queue, unsettled)
            lost = Client(timed, "lost")
            lost.receiver("jobs", unsettled)
            turns = Turns(f"a connection with {unsettled:,} unsettled is lost")
            lost.leave()
            for _ in range(20):
                turns.time(timed.turn)
            while timed.broker.work.delivery_returns:
                turns.time(timed.turn)
            turns.show()
            lost.cut()
        timed.close()


def _closed_group(messages: int) -> None:
    from broker.queue.ordered_messages import message

    from penstock_broker.queue.flags import GROUPED

    timed = timed_broker()
    queue = timed.make_queue("jobs")
    first, now = timed.broker.log.next_messages(messages), timed.broker.clock.now_us
    closing, others = message(group="a", closing=True), message(group="a")
    queue.put([(first + each, closing if each == 1 else others, now, 0, GROUPED) for each in range(messages)])
    queue.depth_bytes += messages * len(others)
    owner, other = Client(timed, "owner"), Client(timed, "other")
    link = owner.receiver("jobs", 1)
    other.receiver("jobs", 10)
    for _ in range(messages // 200 + 10):
        timed.turn()
    assert queue.in_flight == 1
    steady()
    owner.turns = Turns(f"a group is closed of which {messages:,} are reserved")
    link.flow(1)
    while queue.in_flight < 12:
        owner.pump(1)
    owner.turns.show()
    timed.close()


def _collections(messages: int) -> None:
    timed = timed_broker()
    queue = timed.make_queue("jobs")
    steady()
    _fill(timed, queue, messages)
    turns = Turns(f"garbage collection with {messages:,} new messages")
    for _ in range(8):
        timed.now_ms += 10_000
        turns.time(timed.turn)
    turns.show()
    timed.close()
