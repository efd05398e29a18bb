"""No call of the compiled functions keeps a reference, whether it succeeds or fails."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock_native
from penstock_amqp.endpoint.buffers import FREED
from penstock_amqp.endpoint.proton.connection import ProtonConnection

loops: Any = penstock_native.messages
proton: Any = penstock_native.proton
pytestmark = pytest.mark.skipif(loops is None, reason="the engine in Python was chosen")

CALLS = 100_000
SPARE = 100
"""Blocks of memory that come and go by themselves: a leak of one object a call is a thousand times as much."""


def kept(call: Callable[[], object], calls: int = CALLS) -> int:
    """How many blocks of memory, and references to None, True and False, so many calls keep."""

    def now() -> int:
        return sys.getallocatedblocks() + sum(map(sys.getrefcount, (None, True, False)))

    def many(count: int) -> None:
        for _ in range(count):
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                call()

    many(1000)
    gc.collect()
    gc.disable()
    try:
        before = now()
        many(calls)
        return now() - before
    finally:
        gc.enable()


BIG = 2**70
"""No small integer, which the interpreter keeps."""
HELD = (None, (1, b"ab", 2**60, 0, 1), 2**61)
BLOCK = bytes.fromhex("0500 0000 1a000000 09000000 00000000 ffffffffffffff7f ffffffffffffff7f") + b"ab"


def take(batch: list[Any], payloads: list[bytes] | None = None) -> None:
    loops.take_plain(batch, 0, b"a", 1, False, 9, 2**50, BIG, BIG, 1, [], [], [], payloads)


def take_all(sources: list[Any], payloads: list[bytes] | None = None) -> None:
    loops.take_batches(sources, 0, b"a", 1, False, 9, 2**50, BIG, BIG, 1, [], [], [], payloads)


def recorded(puts: list[Any]) -> None:
    loops.plain_entries(puts, 0, b"a", 1, False, 8, 2**50, 2, [])


SENT: Any = proton.Sent() if proton else None


def some_sent(count: int) -> None:
    """More than there is room for at first, some of them twice."""
    table = proton.Sent()
    for number in range(count):
        table.add(4096 + number % 66, None)
    assert len(table.all) == 66
    table.add(4096, None)


CASES: dict[str, Callable[[], object]] = {
    "take_plain": lambda: take([(BIG, b"ab", False), (BIG, b"ab", True)], []),
    "take_plain stops": lambda: take([(1, b"ab", False), (1, b"b", True)]),
    "take_plain fails": lambda: take([(1, b"ab", False), None], []),
    "take_batches": lambda: take_all([(object(), [(BIG, b"ab", False), (BIG, b"ab", True)])] * 2, []),
    "take_batches stops": lambda: take_all(
        [(BIG, [(BIG, b"ab", True)]), (1, [(1, b"ab", False), (1, b"b", True)])], []
    ),
    "take_batches fails": lambda: take_all([(BIG, [(1, b"ab", False)]), (BIG, [(BIG, b"ab", False), None])], []),
    "put_records": lambda: loops.put_records([b"ab", b"cd"], [], 5, 1, 2**50, 2**50),
    "put_records fails": lambda: loops.put_records([b"ab", None], [], 5, 1, 2**50, 2**50),
    "sent_runs": lambda: loops.sent_runs([HELD[1], (1, b"", 2**62, 0, 0)]),
    "sent_runs fails": lambda: loops.sent_runs([HELD[1], None]),
    "sent_runs fails at a size": lambda: loops.sent_runs([HELD[1], (1, None, 2**62, 0, 0)]),
    "accepted_runs": lambda: loops.accepted_runs([HELD, (None, (2**50, b"", 2**62, 0, 1), 2**63)], 1),
    "accepted_runs fails": lambda: loops.accepted_runs([HELD, (None, (1, b"", 1, 0, None), 2**63)], 1),
    "accepted_runs fails at once": lambda: loops.accepted_runs([None], 1),
    "read_puts": lambda: loops.read_puts(BLOCK, 0, len(BLOCK), 5, tuple, []),
    "read_puts fails": lambda: loops.read_puts(BLOCK, 1, 0, 5, tuple, []),
    "plain_entries": lambda: recorded([(1, BIG, 2**50, b"ab", 0)]),
    "plain_entries fails": lambda: recorded([(1, BIG, 2**50, b"ab", 0), None]),
    "pointers": lambda: proton.pn_transport_push(FREED, b"", 0),
    "drain fails": lambda: proton.drain(FREED, {}, SENT, {}, {}, []),
    "send fails": lambda: proton.send(None, FREED, [], 1, SENT, 1, 1, []),
    "sent": lambda: some_sent(70),
    "sent fails": lambda: SENT.add(FREED, 1),
    "accept fails": lambda: proton.accept([FREED]),
    "any_in_state fails": lambda: proton.any_in_state([(None, [(None, None, [(FREED,)])])], 1),
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_kept(name: str) -> None:
    assert kept(CASES[name]) < SPARE


def test_the_measure_sees_one_object_a_call() -> None:
    found: list[object] = []
    assert kept(lambda: found.append(object())) >= CALLS


def test_nothing_of_an_engine_is_kept() -> None:
    connection = ProtonConnection(max_frame=65_536, idle_timeout_ms=0, max_sessions=1)
    transport, collector = connection.transport, connection.collector
    buffer, out = memoryview(bytearray(64)), list[Any]()
    assert kept(lambda: proton.drain(collector, {}, SENT, {}, {}, out)) < SPARE
    assert kept(lambda: proton.output(transport, collector, buffer, [])) < SPARE
    room = proton.pn_transport_capacity(transport)
    push = lambda: proton.push_plain(transport, buffer, 0, 64, 0, 0, room, 16, collector, {}, SENT, {}, {}, out)  # noqa: E731
    assert kept(push) < SPARE
    again = lambda: proton.read_plain(None, 64, transport, buffer, room, 16, collector, {}, SENT, {}, {}, out)  # noqa: E731
    assert kept(again) < SPARE
    ours, theirs = socket.socketpair()
    with ours, theirs:
        fd = ours.fileno()

        def read() -> object:
            return proton.read_plain(fd, 8, transport, buffer, room, 16, collector, {}, SENT, {}, {}, out)

        assert kept(read) < SPARE  # nothing has come: EAGAIN
        theirs.send(b"not AMQP" * 12)
        assert [read() for _ in range(12)] == [(8, None)] * 12
        assert kept(lambda: proton.send_output(transport, collector, buffer, [], fd)) < SPARE
        line: Any = (fd, transport, collector, [], {}, proton.Sent(), {}, {}, None)
        lists = list[Any]()

        def together(lines: list[Any]) -> object:
            lists.clear()
            return proton.read_together(lines, 8, buffer, 16, 99, lists)

        for lines in ([line, line], [line, None], [(*line[:4], None, *line[5:])]):
            assert kept(partial(together, lines)) < SPARE
            assert kept(partial(proton.send_outputs, lines, buffer)) < SPARE
        theirs.send(b"not AMQP" * 12)
        assert [together([line]) for _ in range(12)] == [(8, None)] * 12
        theirs.close()
        assert kept(read) < SPARE
        assert read() == together([line]) == 0
    connection.let_go()()


def test_nothing_of_a_sync_is_kept(tmp_path: Path) -> None:
    aio = penstock_native.aio
    context, eventfd = aio.setup(), os.eventfd(0, os.EFD_NONBLOCK)
    reader, writer = os.pipe()

    def refused() -> None:
        with contextlib.suppress(OSError):
            aio.submit(context, eventfd, writer, 2**60)

    with (tmp_path / "file").open("wb") as file:
        fd = file.fileno()

        def synced() -> None:
            aio.submit(context, eventfd, fd, 2**60)
            assert aio.collect(context, eventfd, 1) == [(2**60, 0)]

        assert kept(synced, 5_000) < SPARE
    assert kept(refused) < SPARE
    assert kept(lambda: aio.collect(context, eventfd, 0)) < SPARE
    assert kept(lambda: aio.may_be_done(context)) < SPARE
    aio.destroy(context)
    for each in (eventfd, reader, writer):
        os.close(each)
