"""`hack/bench turns`, third part: the longest turn that very many connections bring about, in milliseconds.

As in the second part a whole broker runs in this process and only its turns are timed, by the thread's processor
time.
"""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from benching.long_turns import timed_broker
from benching.wide_turns import Client, Turns, request, steady
from proton import Endpoint

if TYPE_CHECKING:
    from support.engine_client import EngineClient
    from support.stepped_broker import SteppedBroker

IDLE_MS = 60_000
"""Each connection was looked at once after so long."""


def connection_turns(count: int) -> None:
    """Print, for each kind of work, how many turns it took and how long the longest was."""
    count = _allowed(count)
    limits = {"connections": count + 10, "unauthenticated_per_peer": None}
    timed = timed_broker({"limits": limits})
    steady()
    clients = _storm(timed, count)
    _time_outs(timed, count)
    manager = Client(timed, "manager")
    manager.manage()
    for kind in ("penstock.connection", "penstock.link"):
        manager.ask(f"QUERY of 1,000 of {count:,} with {kind}", request("QUERY", kind))
    _release(timed, count)
    for client in clients[: count // 2]:
        client.close_socket()
    left = len(timed.broker.clients.connections) - count // 2
    _until(timed, f"{count // 2:,} connections are lost at once", lambda: _served(timed) <= left)
    timed.loop.stop()
    _until(timed, f"a stop with {count // 2:,} connections", lambda: _served(timed) == 0)
    timed.close()


def _allowed(connections: int) -> int:
    """Each takes two descriptors, since both ends are in this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    allowed = min(connections, (hard - 200) // 2)
    if allowed < connections:
        print(f"only {hard:,} descriptors are allowed, so that there are {allowed:,} connections", file=sys.stderr)
    return allowed


def _served(timed: SteppedBroker) -> int:
    return len(timed.broker.clients.connections)


def _until(timed: SteppedBroker, what: str, is_over: Callable[[], bool]) -> None:
    turns = Turns(what)
    while not is_over():
        turns.time(timed.turn)
    turns.show()


def _storm(timed: SteppedBroker, count: int) -> list[EngineClient]:
    """All log in and open at once."""
    from support.engine_client import EngineClient

    clients = [EngineClient(timed.connect_socket(), f"c{number}", lambda _: None) for number in range(count)]
    turns = Turns(f"{count:,} clients log in at once")
    waiting = clients
    while waiting:
        for client in waiting:
            client.flush()
            client.receive(BlockingIOError)
            client.flush()
        for _ in range(1 + len(waiting) // 8):
            timed.now_ms += 1  # who has not logged in waits for some time while others have work
            turns.time(timed.turn)
        waiting = [each for each in waiting if not each.connection.state & Endpoint.REMOTE_ACTIVE]
    turns.show()
    return clients


def _time_outs(timed: SteppedBroker, count: int) -> None:
    turns = Turns(f"the time-outs of {count:,} connections are looked at")
    timed.now_ms += IDLE_MS
    turns.time(timed.loop.time_outs.sweep)
    for _ in range(count // 50):
        turns.time(timed.turn)
    turns.show()


def _release(timed: SteppedBroker, count: int) -> None:
    for connection in timed.broker.clients.connections.values():
        timed.broker.hold(connection)
    _until(timed, f"{count:,} connections that were held are read again", lambda: not timed.broker.work.held)
