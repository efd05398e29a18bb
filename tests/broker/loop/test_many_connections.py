"""What is due for very many connections at one time is done for a few of them in each turn, counted in connections."""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

import pytest
from proton import Endpoint, Message
from support.stepped_broker import Peer, SteppedBroker

from penstock_broker.access.connection import Connection, Phase
from penstock_broker.access.engine_memory import EngineMemory
from penstock_broker.attach import permission_review
from penstock_broker.loop import connections as connections_module
from penstock_broker.loop import gone_connections, stop, time_outs
from penstock_broker.state.broker import Broker


def connected(timed: SteppedBroker, count: int) -> list[Peer]:
    return [timed.connect(f"c{number}") for number in range(count)]


def test_time_outs_that_are_due_together_are_looked_at_in_slices(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_outs, "DUE_PER_TURN", 3)
    connected(timed, 8)
    looked_at: list[int] = []
    tick = time_outs.TimeOuts._tick  # pyright: ignore[reportPrivateUsage]

    def counted(self: time_outs.TimeOuts, connection: Connection) -> None:
        looked_at.append(connection.number)
        tick(self, connection)

    monkeypatch.setattr(time_outs.TimeOuts, "_tick", counted)
    served = list(timed.broker.clients.connections.values())
    for connection in served:
        connection.due_ms = timed.now_ms
    timed.loop.time_outs.sweep()
    so_far = [len(looked_at)]
    timed.loop.connections.drop(served[4])  # its turn has not come, and will not
    for _ in range(3):
        timed.turn()
        so_far.append(len(looked_at))
    assert so_far == [3, 5, 7, 7]
    assert looked_at == [each.number for each in served if each is not served[4]]
    assert all(each.due_ms > timed.now_ms for each in served if each is not served[4])


def test_a_broker_that_stops_closes_a_few_clients_per_turn_and_serves_the_others(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "CLOSED_PER_TURN", 2)
    timed.make_queue("q")
    peers = connected(timed, 7)
    peers[6].receive("q", credit=10)
    closing: list[int] = []
    timed.loop.stop()
    for turn in range(5):
        timed.turn()
        phases = [each.phase for each in timed.broker.clients.connections.values()]
        closing.append(sum(phase is Phase.OPEN for phase in phases))
        if turn == 0:
            assert len(phases) >= 5
    assert closing == sorted(closing, reverse=True)
    assert all(before - after <= 2 for before, after in zip([7, *closing], closing, strict=False))
    assert closing[-1] == 0
    for peer in peers:
        peer.read()
        assert peer.connection.state & Endpoint.REMOTE_CLOSED
        assert peer.connection.remote_condition is not None
        assert peer.connection.remote_condition.name == "amqp:connection:forced"


@pytest.mark.parametrize("failed_before", [True, False])
def test_a_broker_whose_log_has_failed_tells_its_clients_when_it_stops(
    timed: SteppedBroker, failed_before: bool
) -> None:
    timed.make_queue("q")
    publisher, peer = connected(timed, 2)
    sender = publisher.session.sender("to q")
    sender.target.address = "q"
    sender.open()
    publisher.pump()
    timed.files.broken.add("fdatasync")
    if not failed_before:
        timed.loop.stop()
    sender.delivery("1")
    sender.send(Message("lost", durable=True).encode())
    sender.advance()
    publisher.flush()
    if failed_before:
        for _ in range(3):
            timed.turn()
        assert timed.log.failed is not None
        timed.loop.stop()
    for _ in range(3):
        timed.turn()
    peer.read()
    assert peer.connection.state & Endpoint.REMOTE_CLOSED
    assert peer.connection.remote_condition is not None
    assert peer.connection.remote_condition.name == "amqp:connection:forced"


def test_a_broker_that_stops_closes_no_more_clients_when_the_slice_has_taken_its_time(timed: SteppedBroker) -> None:
    """Each look at the clock takes 1.5 ms: the second is over the time, so two are closed per turn."""
    connected(timed, 5)
    served = list(timed.broker.clients.connections.values())
    timed.loop.stop()
    timed.step_seconds = 0.0015
    closing: list[int] = []
    for _ in range(4):
        timed.turn()
        closing.append(sum(each.phase is Phase.OPEN for each in served))
    timed.step_seconds = 0.0
    assert closing == [3, 1, 0, 0]


def test_clients_that_take_no_close_are_dropped_a_few_per_turn(timed: SteppedBroker) -> None:
    """Their sockets are full, so that their Close waits until the broker does not wait any more."""
    connected(timed, 5)
    served = list(timed.broker.clients.connections.values())
    for connection in served:
        connection.transport.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        with suppress(BlockingIOError):
            while connection.transport.sock.send(bytes(1 << 16)):
                pass
    timed.loop.stop()
    timed.turn()
    assert [each.phase for each in served] == [Phase.CLOSING] * 5
    timed.now_ms += stop.CLOSE_MS
    timed.step_seconds = 0.0015
    left = {5: None}
    for _ in range(8):  # the timers of the first turns are others
        timed.turn()
        left[len(timed.broker.clients.connections)] = None
    timed.step_seconds = 0.0
    assert list(left) == [5, 3, 1, 0]


def test_a_thread_frees_what_the_engine_holds_of_very_many_connections(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once three were there at once, of each of them: the C library gives memory back with any, as with the last."""
    monkeypatch.setattr(gone_connections, "MANY", 3)
    freed: list[int] = []
    free = EngineMemory.free

    def counted(self: EngineMemory, action: Callable[[], None]) -> None:
        freed.append(1)
        free(self, action)

    monkeypatch.setattr(EngineMemory, "free", counted)
    first, _ = connected(timed, 2)
    first.drop()
    assert len(freed) == 0
    connected(timed, 2)
    for left in (2, 1, 0):
        timed.loop.connections.drop(next(iter(timed.broker.clients.connections.values())))
        assert len(freed) == 3 - left


def test_links_of_very_many_connections_are_reviewed_in_slices(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock takes 1.5 ms: two connections are looked at per turn. One goes before its turn comes."""
    connected(timed, 6)
    served = list(timed.broker.clients.connections.values())
    looked_at: list[int] = []
    check = permission_review._check_links_of  # pyright: ignore[reportPrivateUsage]

    def counted(broker: Broker, connection: Connection) -> None:
        looked_at.append(connection.number)
        check(broker, connection)

    monkeypatch.setattr(permission_review, "_check_links_of", counted)
    timed.step_seconds = 0.0015
    permission_review.check_links(timed.broker)
    so_far = {len(looked_at): None}
    timed.loop.connections.drop(served[4])
    for _ in range(6):
        timed.turn()
        so_far[len(looked_at)] = None
    timed.step_seconds = 0.0
    assert list(so_far) == [2, 4, 6]
    assert looked_at == [each.number for each in served]


def test_connections_that_were_held_are_read_again_in_slices(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections_module, "RELEASED_PER_TURN", 2)
    timed.make_queue("q")
    peers = connected(timed, 5)
    for connection in timed.broker.clients.connections.values():
        timed.broker.hold(connection)
    left: list[int] = []
    while timed.broker.work.held:
        timed.turn()
        left.append(len(timed.broker.work.held))
    assert left == [3, 1, 0]
    assert not any(each.reading.is_held for each in timed.broker.clients.connections.values())
    for peer in peers:
        assert peer.send("q", Message("late")) == ["accepted"]
