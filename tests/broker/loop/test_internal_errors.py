"""A mistake in the code costs one connection: an exception is injected into each function of the broker that runs while
a client attaches, sends, receives, acquires, settles, commits and leaves, one function at a time.

Afterwards the other connections go on, nothing leads to the connection that failed, no message is lost or there twice,
and each queue counts what it holds.
"""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, FrameType

import pytest
from proton import Delivery, Message, Receiver
from support.proton_transactions import ProtonTransactionClient
from support.raw_client import RawClient
from support.stepped_broker import DeliveryPolicy, Peer, SteppedBroker, SteppedStream
from support.transaction_client import TransactionClient

from penstock_amqp.endpoint import transactional_states
from penstock_amqp.endpoint.events import DATA
from penstock_amqp.endpoint.freed_parts import EndpointFreed
from penstock_amqp.endpoint.proton import links
from penstock_amqp.frames.performatives import Accepted
from penstock_broker.messages import accepts, dispatch, settle
from penstock_broker.state.links import Consumer

ROOMS = (
    "penstock_broker/attach/",
    "penstock_broker/messages/",
    "penstock_broker/queue/",
    "penstock_broker/transactions/",
    "penstock_broker/topology/",
    "penstock_broker/state/",
    "penstock_broker/access/connection",
    "penstock_broker/loop/events",
    "penstock_broker/loop/link_events",
    "penstock_broker/loop/connections",
    "penstock_broker/loop/gone_connections",
    "penstock_broker/loop/time_outs",
    "penstock_amqp/endpoint/",
)
OF_THE_LOOP = {
    "Connections.serve",
    "ReadAhead.read_together",
    "ReadAhead.read",
    "ReadAhead._take_read",
    "ReadAhead.handle",
    "handle_messages",
    "_publish_shared",
    "Connections.flush",
    "Connections._flush",
    "Connections.catch_up",
    "Connections.release_held",
    "Connections.advance_streams",
    "TimeOuts.sweep",
    "SyncQueue.has_synced_waiting",
    "SyncQueue.release",
    "SyncQueue.write",
    "OutputLines.are_moving",
    "Disposal.__bool__",
    "Disposal.free_slice",
    "Route.__del__",
    "Route.__del__.<locals>.<genexpr>",
    "finish_drains",
}
"""What the loop calls for all connections: an exception there, before the first of them, is the loop's own. And what
the interpreter calls when an object is freed, whose exceptions it only reports.
"""


EVERY_STEP = "PENSTOCK_EVERY_STEP" in os.environ
"""Every function in every stage, some 900: half a minute. Else each in the first stage in which it runs, and some
of the others."""

COVERED: set[CodeType] = set()
CACHED = [each for each in vars(transactional_states).values() if hasattr(each, "cache_clear")]


class Injected(Exception):
    """The mistake."""


class Injector:
    """Notes which functions of the broker run, or raises an exception in one of them, once."""

    def __init__(self) -> None:
        self.seen: dict[CodeType, None] = {}
        self.target: CodeType | None = None
        self.has_struck = False

    def look(self, frame: FrameType, event: str, _: object) -> None:
        """A profile function of the interpreter."""
        if event != "call":
            return
        code = frame.f_code
        if code is self.target and not self.has_struck:
            self.has_struck = True
            raise Injected(code.co_qualname)
        if any(room in code.co_filename for room in ROOMS) and code.co_qualname not in OF_THE_LOOP:
            self.seen.setdefault(code)


class Scene:
    """One experiment: a queue of its own, a client to which the mistake happens, and what becomes of the messages."""

    def __init__(self, timed: SteppedBroker, injector: Injector, number: int) -> None:
        self._timed, self._injector = timed, injector
        self.dead_letters, self.queue = f"dead-{number}", f"queue-{number}"
        timed.make_queue(self.dead_letters)
        timed.make_queue(self.queue, DeliveryPolicy(dead_letter=self.dead_letters))
        self._sockets: list[Callable[[], None]] = []
        self.must: set[str] = set()
        """Messages that must be there at the end, in one of the two queues."""
        self.may: set[str] = set()
        """Those that may be there: their sender, or who accepted them, was told nothing."""
        self.is_armed = False

    def turn(self) -> None:
        """A turn of the broker, in which the mistake happens once the scene is armed."""
        if not self.is_armed:
            self._timed.turn()
            return
        sys.setprofile(self._injector.look)
        try:
            self._timed.turn()
        finally:
            sys.setprofile(None)

    def victim(self, *waiting: str) -> Peer:
        """The client; some messages wait."""
        if waiting:
            sender = self._timed.connect("sender")
            assert sender.send(self.queue, *durable(waiting)) == ["accepted"] * len(waiting)
            self.must.update(waiting)
            sender.drop()
        peer = Peer(self._timed.connect_socket(), self.turn, "victim")
        self._sockets.append(peer.close)
        return peer

    def consumer(self, *waiting: str) -> tuple[Peer, Receiver]:
        """A client that has got the messages."""
        peer = self.victim(*waiting)
        receiver = peer.receive(self.queue, 10)
        assert peer.bodies() == list(waiting)
        return peer, receiver

    def transactions(self) -> ProtonTransactionClient:
        """A client with a coordinator link."""
        client = ProtonTransactionClient(self._timed.connect_socket(), [self.queue])
        self._sockets.append(client.cut)
        return client

    def acquirer(self) -> TransactionClient:
        """A client of bare frames with a coordinator link: proton's engine can't name a transaction in a flow."""
        stream = SteppedStream(self._timed, self._turn_later)
        self._sockets.append(stream.close)
        return TransactionClient(RawClient(0, "acquirer", stream=stream))

    def _turn_later(self) -> None:
        """A queue that could not be served is tried again after a second."""
        self._timed.now_ms += 10
        self.turn()

    def pump(self, client: ProtonTransactionClient) -> None:
        """Let both ends talk for a while."""
        for _ in range(4):
            client.flush()
            self.turn()
            client.receive()

    def leave(self) -> None:
        """The client is gone, if it was not closed before."""
        for close in self._sockets:
            close()
        for _ in range(3):
            self._timed.turn()

    def check(self, step: str) -> None:
        """Nothing is lost, nothing is there twice, and the queue counts what it holds."""
        queue = self._timed.queue(self.queue)
        assert queue.links.consumers == [], step
        assert queue.in_flight == 0, step
        assert queue.depth_bytes == sum(len(entry[DATA]) for _, entry in queue.everything()), step
        rescuer = self._timed.connect("rescuer")
        rescuer.receive(self.queue)
        rescuer.receive(self.dead_letters)
        found = Counter(str(body) for body in rescuer.bodies())
        assert set(found) >= self.must, step
        assert set(found) <= self.must | self.may, step
        assert set(found.values()) <= {1}, step
        while rescuer.got:
            rescuer.take()
        assert (queue.depth, queue.depth_bytes, queue.in_flight) == (0, 0, 0), step
        rescuer.drop()


def durable(bodies: tuple[str, ...]) -> list[Message]:
    return [Message(body, durable=True) for body in bodies]


Act = Callable[[], None]


def attaching(scene: Scene) -> Act:
    peer = scene.victim("a", "b")
    return lambda: void(peer.receive(scene.queue, 10))


def subscribing(scene: Scene) -> Act:
    peer = scene.victim()
    return lambda: void(peer.receive("amq.topic/x", 10))


def publishing(scene: Scene) -> Act:
    peer = scene.victim()
    assert peer.send(scene.queue, *durable(("first",))) == ["accepted"]
    scene.must.add("first")
    bodies = ("a", "b", "c")

    def act() -> None:
        scene.may.update(bodies)
        told = peer.send(scene.queue, *durable(bodies))
        scene.must.update(body for body, outcome in zip(bodies, told, strict=True) if outcome == "accepted")

    return act


def dispatching(scene: Scene) -> Act:
    peer = scene.victim("a", "b", "c")
    receiver = peer.receive(scene.queue, 0)

    def act() -> None:
        receiver.flow(2)
        peer.pump()

    return act


def settling(scene: Scene, state: int) -> Act:
    peer, _ = scene.consumer("a", "b", "c")

    def act() -> None:
        if state == Delivery.ACCEPTED:
            scene.must.remove("a")
            scene.may.add("a")
        peer.take(state, failed=True)

    return act


def accepting(scene: Scene) -> Act:
    return settling(scene, Delivery.ACCEPTED)


def rejecting(scene: Scene) -> Act:
    return settling(scene, Delivery.REJECTED)


def failing(scene: Scene) -> Act:
    return settling(scene, Delivery.MODIFIED)


def closing_the_link(scene: Scene) -> Act:
    peer, receiver = scene.consumer("a", "b")

    def act() -> None:
        receiver.close()
        peer.pump()

    return act


def ending_the_session(scene: Scene) -> Act:
    peer, _ = scene.consumer("a", "b")

    def act() -> None:
        peer.session.close()
        peer.pump()

    return act


def closing_the_connection(scene: Scene) -> Act:
    peer, _ = scene.consumer("a", "b")

    def act() -> None:
        peer.connection.close()
        peer.pump()

    return act


def losing_the_connection(scene: Scene) -> Act:
    peer, _ = scene.consumer("a", "b")
    peer.send(scene.queue, *durable(("c",)))
    scene.must.add("c")

    def act() -> None:
        peer.close()
        scene.turn()

    return act


def discharging(scene: Scene, *, fail: bool) -> Act:
    scene.victim("consumed").close()
    client = scene.transactions()
    client.attach(scene.queue)
    scene.pump(client)
    answer = client.declare()
    scene.pump(client)
    txn_id = client.name_in(answer)
    client.accept("consumed", txn_id, settled=True)
    client.post(scene.queue, "posted-1", txn_id)
    client.post(scene.queue, "posted-2", txn_id)
    scene.pump(client)

    def act() -> None:
        if not fail:
            scene.must.clear()
            scene.may.update(("consumed", "posted-1", "posted-2"))
        end = client.discharge(txn_id, fail=fail)
        scene.pump(client)
        if not fail and end.remote_state == Delivery.ACCEPTED:
            scene.must.update(("posted-1", "posted-2"))
            scene.may.clear()

    return act


def committing(scene: Scene) -> Act:
    return discharging(scene, fail=False)


def rolling_back(scene: Scene) -> Act:
    return discharging(scene, fail=True)


def acquiring(scene: Scene, *, fail: bool, sent_settled: bool = False, window: int = 10_000) -> Act:
    scene.victim("a", "b", "c").close()
    client = scene.acquirer()
    txn_id = client.declare()
    link = client.settled_receiver(scene.queue) if sent_settled else client.receiver(scene.queue, credit=0)

    def act() -> None:
        client.acquire(link, txn_id, credit=3, window=window)
        got = client.get(min(window, 3))
        if fail and window == 1:
            scene.must.remove("b")  # the engine keeps it for the window, and a rollback does not bring it back
            scene.may.add("b")
        if not sent_settled:
            client.settle(got[0], Accepted(), txn_id)
            client.settle(got[1], Accepted(), txn_id, settled=False)
        if not fail:
            scene.must = set() if sent_settled else {"c"}
            scene.may = {"a", "b", "c"} - scene.must
        if client.discharge(txn_id, fail=fail) == Accepted():
            scene.may.clear()
        client.detach(link)

    return act


def acquiring_and_committing(scene: Scene) -> Act:
    return acquiring(scene, fail=False)


def acquiring_and_rolling_back(scene: Scene) -> Act:
    return acquiring(scene, fail=True)


def acquiring_settled_and_committing(scene: Scene) -> Act:
    return acquiring(scene, fail=False, sent_settled=True)


def acquiring_settled_and_rolling_back(scene: Scene) -> Act:
    return acquiring(scene, fail=True, sent_settled=True)


def acquiring_settled_behind_a_shut_window_and_rolling_back(scene: Scene) -> Act:
    return acquiring(scene, fail=True, sent_settled=True, window=1)


def acquiring_settled_behind_a_shut_window_and_leaving(scene: Scene) -> Act:
    scene.victim("a", "b", "c").close()
    client = scene.acquirer()
    txn_id = client.declare()
    link = client.settled_receiver(scene.queue)

    def act() -> None:
        client.acquire(link, txn_id, credit=3, window=1)
        client.get()
        client.detach(link)
        client.discharge(txn_id, fail=True)

    return act


def losing_what_was_acquired(scene: Scene) -> Act:
    scene.victim("a", "b").close()
    client = scene.acquirer()
    txn_id = client.declare()
    client.acquire(client.receiver(scene.queue, credit=0), txn_id, credit=2)
    one, _ = client.get(2)
    client.settle(one, Accepted(), txn_id, settled=False)

    def act() -> None:
        client.client.socket.close()
        scene.turn()

    return act


def void(_: object) -> None:
    """Whatever it is."""


class Bystander:
    """A client that the mistake must not concern: what it sends, it gets."""

    def __init__(self, timed: SteppedBroker) -> None:
        timed.make_queue("elsewhere")
        self._peer = timed.connect("bystander")
        self._receiver = self._peer.receive("elsewhere", 1)

    def check(self) -> None:
        assert self._peer.send("elsewhere", *durable(("ping",))) == ["accepted"]
        assert self._peer.take().body == "ping"
        self._receiver.flow(1)


@pytest.mark.parametrize(
    "stage",
    [
        attaching,
        subscribing,
        publishing,
        dispatching,
        accepting,
        rejecting,
        failing,
        closing_the_link,
        ending_the_session,
        closing_the_connection,
        losing_the_connection,
        committing,
        rolling_back,
        acquiring_and_committing,
        acquiring_and_rolling_back,
        acquiring_settled_and_committing,
        acquiring_settled_and_rolling_back,
        acquiring_settled_behind_a_shut_window_and_rolling_back,
        acquiring_settled_behind_a_shut_window_and_leaving,
        losing_what_was_acquired,
    ],
)
def test_a_mistake_anywhere_costs_one_connection(
    stage: Callable[[Scene], Act], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # thousands of tracebacks are not kept
    timed = SteppedBroker(segment_bytes=1 << 20)
    bystander, injector = Bystander(timed), Injector()

    def experiment(number: int, step: str) -> None:
        for cached in CACHED:  # a state that another test has had would not be read or encoded again
            cached.cache_clear()
        scene = Scene(timed, injector, number)
        act = stage(scene)
        scene.is_armed = True
        with suppress(OSError, EOFError, AssertionError):  # the connection may be gone
            act()
        scene.is_armed = False
        scene.leave()
        bystander.check()
        assert len(timed.broker.clients.connections) == 1, step
        assert [each.connection.number for each in timed.broker.clients.live_links.values()] == [1], step
        scene.check(step)

    experiment(0, "without a mistake")
    steps = [code for at, code in enumerate(injector.seen) if code not in COVERED or at % 8 == 0 or EVERY_STEP]
    COVERED.update(steps)
    for number, injector.target in enumerate(steps, start=1):
        injector.has_struck = False
        experiment(number, f"{injector.target.co_filename}:{injector.target.co_qualname}")
        assert injector.has_struck, f"{injector.target.co_filename}:{injector.target.co_qualname} did not run again"
    assert len(injector.seen) > 10
    timed.restart()
    assert {name: node.queue.depth for name, node in timed.broker.topology.queues.items() if node.queue.depth} == {}
    timed.close()


def test_a_consumer_that_stayed_registered_is_removed_and_calls_nothing_that_is_freed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timed = SteppedBroker()
    queue = timed.make_queue("q")
    peer, other = timed.connect("victim"), timed.connect("other")
    peer.receive("q")
    (consumer,) = queue.links.consumers
    assert isinstance(consumer, Consumer)
    link, endpoint = consumer.link, consumer.connection.endpoint
    peer.drop()
    queue.join(consumer)  # as if the tear-down had forgotten it
    consumer.is_active, link.credit = True, 10
    with pytest.raises(EndpointFreed):
        endpoint.send(link, [(1, b"x", 0, 0, 0)], 0)
    with pytest.raises(TypeError, match="_Freed"):
        links.outgoing_bytes(link.session.ptr)
    assert other.send("q", *durable(("a",))) == ["accepted"]
    assert queue.links.consumers == []
    assert "is closed after an internal error" in caplog.text
    other.receive("q")
    assert other.bodies() == ["a"]
    timed.close()


def test_an_action_that_waits_for_the_log_closes_its_connection_if_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = SteppedBroker()
    timed.make_queue("q")
    peer, other = timed.connect("victim"), timed.connect("other")

    def fail(*_: object) -> None:
        raise Injected

    with monkeypatch.context() as patched:
        patched.setattr(accepts, "_accept", fail)
        peer.send("q", *durable(("a",)))
    assert peer.connection.remote_condition is not None
    assert peer.connection.remote_condition.name == "amqp:internal-error"
    assert [each.client.container_id for each in timed.broker.clients.connections.values()] == ["other"]
    assert other.send("q", *durable(("b",))) == ["accepted"]
    timed.close()


def test_a_queue_that_could_not_be_served_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = SteppedBroker()
    timed.make_queue("q")
    peer = timed.connect()
    peer.receive("q")

    def fail(*_: object) -> bool:
        raise Injected

    with monkeypatch.context() as patched:
        patched.setattr(dispatch, "serve", fail)
        assert peer.send("q", *durable(("a",))) == ["accepted"]
        assert peer.bodies() == []
    timed.pass_ms(1000)
    assert peer.bodies() == ["a"]
    timed.close()


def test_a_mistake_with_the_first_of_two_browsers_costs_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are to get copies in the same turn."""
    timed = SteppedBroker()
    timed.make_queue("q")
    peer = timed.connect("browsing")
    for name in ("first", "second"):
        link = peer.session.receiver(name)
        link.source.address = "q"
        link.source.distribution_mode = link.source.DIST_MODE_COPY
        link.open()
        link.flow(1)

    def fail(*_: object) -> None:
        raise Injected

    with monkeypatch.context() as patched:
        patched.setattr("penstock_broker.loop.loop.serve_browser", fail)
        peer.pump()
    assert [each.client.container_id for each in timed.broker.clients.connections.values()] == []
    assert timed.connect().send("q", *durable(("a",))) == ["accepted"]
    timed.close()


def test_a_mistake_while_another_connection_is_closed_costs_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link is stolen: the mistake is in the end of the older one."""
    timed = SteppedBroker()
    timed.make_queue("q")
    older, newer = timed.connect("same"), timed.connect("same")
    older.receive("q", name="link")

    def fail(*_: object, **__: object) -> None:
        raise Injected

    with monkeypatch.context() as patched:
        patched.setattr(settle, "lost", fail)
        newer.receive("q", name="link")
    older.pump()
    assert older.connection.remote_condition is not None
    assert older.connection.remote_condition.name == "amqp:internal-error"
    assert [each.connection.number for each in timed.queue("q").links.consumers] == [2]
    assert newer.send("q", *durable(("a",))) == ["accepted"]
    assert newer.bodies() == ["a"]
    timed.close()
