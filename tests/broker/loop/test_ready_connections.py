"""Connections that were ready when a turn was over: their order, and what thousands of them cost a turn."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import cast

import pytest
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream

from penstock_amqp.frames.frames import encode_frame
from penstock_broker.access.connection import Connection
from penstock_broker.access.read_progress import ReadProgress
from penstock_broker.clock import Timers
from penstock_broker.loop.ready_connections import ReadyConnections

HEARTBEAT = encode_frame(None)


class _Named:
    """What `ReadyConnections` looks at of a connection."""

    def __init__(self, name: str, *, is_bulk: bool) -> None:
        self.name = name
        self.reading = ReadProgress(is_bulk=is_bulk)


def light(name: str) -> Connection:
    return cast(Connection, _Named(name, is_bulk=False))


def bulk(name: str) -> Connection:
    return cast(Connection, _Named(name, is_bulk=True))


def names(ready: ReadyConnections) -> list[tuple[str, int]]:
    """Take all out."""
    found: list[tuple[str, int]] = []
    while ready.count:
        connection, mask = ready.pop()
        found.append((cast(_Named, connection).name, mask))
    return found


def test_those_who_sent_little_come_first_and_else_who_came_first() -> None:
    ready = ReadyConnections()
    for fd, connection in enumerate((bulk("b1"), light("l1"), bulk("b2"), light("l2"))):
        ready.add(connection, fd, 1, turn=1)
    assert names(ready) == [("l1", 1), ("l2", 1), ("b1", 1), ("b2", 1)]


def test_the_oldest_comes_first_though_it_sent_much() -> None:
    ready = ReadyConnections()
    ready.add(bulk("b"), 7, 1, turn=1)
    ready.add(light("l"), 8, 1, turn=2)
    connection, _ = ready.pop_oldest()
    assert cast(_Named, connection).name == "b"
    assert names(ready) == [("l", 1)]


def test_of_those_who_wait_as_long_the_oldest_is_one_who_sent_little() -> None:
    ready = ReadyConnections()
    ready.add(bulk("b"), 7, 1, turn=1)
    ready.add(light("l"), 8, 1, turn=1)
    connection, _ = ready.pop_oldest()
    assert cast(_Named, connection).name == "l"


def test_one_that_is_ready_again_keeps_its_place_and_the_newest_word_of_epoll() -> None:
    ready = ReadyConnections()
    first = bulk("first")
    ready.add(first, 7, 1, turn=1)
    ready.add(bulk("second"), 8, 1, turn=2)
    first.reading.is_bulk = False  # it was read meanwhile, by those that go on with what is unread
    ready.add(first, 7, 4, turn=3)
    assert ready.count == 2
    assert names(ready) == [("first", 4), ("second", 1)]


def test_of_what_epoll_says_only_news_is_looked_at() -> None:
    ready = ReadyConnections()
    ready.add(bulk("b"), 7, 1, turn=1)
    ready.add(light("l"), 8, 1, turn=1)
    assert ready.new_among([(9, 1), (8, 1), (7, 5), (5, 4)], 1) == [(9, 1), (7, 5), (5, 4)]
    ready.pop()
    assert ready.new_among([(8, 1), (7, 1)], 1) == [(8, 1)]


def test_epoll_is_asked_for_more_while_many_that_sent_much_wait_but_not_for_thousands() -> None:
    ready = ReadyConnections()
    for fd in range(100):
        ready.add(light("l"), fd, 1, turn=1)
    assert ready.most_events == 64
    for fd in range(100, 300):
        ready.add(bulk("b"), fd, 1, turn=1)
    assert ready.most_events == 264
    for fd in range(300, 10_000):
        ready.add(bulk("b"), fd, 1, turn=1)
    assert ready.most_events == 512


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connected(timed: SteppedBroker, clients: ExitStack, count: int) -> list[SteppedStream]:
    """The streams of connections that are open and have nothing to say."""
    streams = [SteppedStream(timed) for _ in range(count)]
    for number, stream in enumerate(streams):
        clients.enter_context(RawClient(0, f"client-{number}", stream=stream))
    for _ in range(10):  # the poll forgets who was ready
        timed.turn()
    return streams


def noted(timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """The connections that are served from now on, in order, alone or read ahead."""
    served: list[Connection] = []
    connections = timed.loop.connections
    serve, read_ahead = connections.serve, connections.ahead.read

    def noted_serve(connection: Connection, mask: int) -> None:
        served.append(connection)
        serve(connection, mask)

    def noted_read(connection: Connection) -> bool:
        is_read = read_ahead(connection)
        if is_read:
            served.append(connection)
        return is_read

    monkeypatch.setattr(connections, "serve", noted_serve)
    monkeypatch.setattr(connections.ahead, "read", noted_read)
    return served


def test_a_turn_looks_only_at_those_it_serves_and_at_those_that_epoll_names(
    timed: SteppedBroker, clients: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 clients say something at once, and a turn has time for one of them."""
    streams = connected(timed, clients, 200)
    looked_at = [0]
    add = ReadyConnections.add

    def counted_add(self: ReadyConnections, connection: Connection, fd: int, mask: int, turn: int) -> None:
        looked_at[0] += 1
        add(self, connection, fd, mask, turn)

    monkeypatch.setattr(ReadyConnections, "add", counted_add)
    served = noted(timed, monkeypatch)
    for stream in streams:
        stream.sendall(HEARTBEAT)
    timed.step_seconds = 0.003
    for turn in range(1, 201):
        timed.turn()
        assert looked_at[0] <= 64, "more than epoll names at once"
        looked_at[0] = 0
        assert len(served) == turn
    assert len(set(served)) == 200, "each had its turn before any had a second one"
    timed.step_seconds = 0.0


def test_what_a_consumer_says_is_seen_in_the_next_turn_though_many_who_sent_much_wait(
    timed: SteppedBroker, clients: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn has time for two: the one that has waited longest, and one that sent little."""
    streams = connected(timed, clients, 201)
    *producers, consumer = timed.broker.clients.connections.values()
    for producer in producers:
        producer.reading.is_bulk = True
    timed.step_seconds = 0.003
    for stream in streams[:-1]:
        stream.sendall(HEARTBEAT)
    for _ in range(5):  # epoll has named them all
        timed.turn()
    served = noted(timed, monkeypatch)
    timed.step_seconds = 0.0011
    streams[-1].sendall(HEARTBEAT)
    timed.turn()
    timed.step_seconds = 0.0
    assert consumer in served
    assert len(served) == 2


def test_one_that_sent_much_has_its_turn_though_others_always_have_something_to_say(
    timed: SteppedBroker, clients: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn has time for one, and three say something in each turn."""
    streams = connected(timed, clients, 4)
    much, *little = timed.broker.clients.connections.values()
    served = noted(timed, monkeypatch)
    timed.step_seconds = 0.003
    for stream in streams[1:]:
        stream.sendall(HEARTBEAT)
    timed.turn()
    much.reading.is_bulk = True
    streams[0].sendall(HEARTBEAT)
    for _ in range(8):
        for stream in streams[1:]:
            stream.sendall(HEARTBEAT)
        timed.turn()
    timed.step_seconds = 0.0
    assert much in served
    assert set(little) <= set(served)


def test_a_turn_does_not_wait_while_connections_or_answers_do(
    timed: SteppedBroker, clients: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = connected(timed, clients, 3)
    waits: list[int] = []
    answers: list[int] = []

    def wait_ms(_timers: Timers, _now: int, _most: int) -> int:
        waits.append(len(answers))
        return 0

    monkeypatch.setattr(Timers, "wait_ms", wait_ms)
    timed.step_seconds = 0.003
    for stream in streams:
        stream.sendall(HEARTBEAT)
    timed.loop.turn()
    waits.clear()
    for _ in range(2):
        timed.loop.turn()
    assert waits == [], "two connections were left"
    for number in range(4):
        timed.broker.sync.after_sync(None, partial(answers.append, number))
    for _ in range(6):
        timed.loop.turn()
    timed.step_seconds = 0.0
    assert answers == [0, 1, 2, 3]
    assert set(waits) <= {0, 4}, "an answer that could be given waited for the poll"
    assert waits[-1] == 4


def test_a_connection_that_ends_while_it_waits_is_not_served(
    timed: SteppedBroker, clients: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = connected(timed, clients, 3)
    timed.step_seconds = 0.003
    for stream in streams:
        stream.sendall(HEARTBEAT)
    timed.turn()
    for connection in list(timed.broker.clients.connections.values()):
        timed.loop._ready.add(connection, connection.transport.fd, select.EPOLLOUT, 0)  # pyright: ignore[reportPrivateUsage]
        timed.loop.connections.drop(connection)

    def serve(connection: Connection, _mask: int) -> None:
        raise AssertionError(f"connection {connection.number} is gone")

    monkeypatch.setattr(timed.loop.connections, "serve", serve)
    for _ in range(4):
        timed.turn()
    assert not timed.broker.clients.connections
    timed.step_seconds = 0.0
