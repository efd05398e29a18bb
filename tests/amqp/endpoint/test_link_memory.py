"""Links and connections that have ended take no memory, though an engine holds on to the links that are attached."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

import pytest
from support.engine_pair import EnginePair

from penstock_amqp.endpoint.events import EventKind

ROUNDS = 100
PER_ROUND = 400
"""Bytes of the C library's memory that a round may keep: a link takes more than a thousand."""


class _InUse(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = [
        *((f"before_{number}", ctypes.c_size_t) for number in range(7)),
        ("uordblks", ctypes.c_size_t),
        *((f"behind_{number}", ctypes.c_size_t) for number in range(2)),
    ]


def in_use() -> int:
    """Bytes that were taken from the C library and not given back."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        pytest.skip("the C library does not tell what is in use")
    mallinfo.restype = _InUse
    gc.collect()
    return int(mallinfo().uordblks)


def kept(round_: Callable[[], None]) -> float:
    for _ in range(20):
        round_()
    before = in_use()
    for _ in range(ROUNDS):
        round_()
    return (in_use() - before) / ROUNDS


def carry(pair: EnginePair) -> None:
    """One message each way on new links, which stay."""
    session = pair.open()
    sender, incoming = pair.attach_sender(session)
    receiver, outgoing = pair.attach_receiver(session)
    sender.delivery("1")
    sender.stream(b"abc")
    sender.advance()
    pair.exchange()
    (event,) = (each for each in pair.events if each[0] is EventKind.MESSAGES)
    pair.endpoint.accept([delivery for delivery, _, _ in event[2]])
    pair.endpoint.send(outgoing, [(1, b"x" * 1024, 0, 0, 0)], 0)
    pair.exchange()
    delivery = receiver.current
    assert delivery is not None and incoming.is_open
    delivery.update(delivery.ACCEPTED)
    delivery.settle()
    pair.exchange()


def test_a_connection_that_is_freed_with_its_links_leaves_nothing() -> None:
    def round_() -> None:
        pair = EnginePair()
        carry(pair)
        pair.close()

    assert kept(round_) < PER_ROUND


def test_nor_does_one_whose_link_was_detached_before() -> None:
    def round_() -> None:
        pair = EnginePair()
        session = pair.open()
        receiver, link = pair.attach_receiver(session)
        pair.endpoint.send(link, [(1, b"x" * 1024, 0, 0, 0)], 0)
        pair.exchange()
        receiver.close()
        pair.exchange()
        pair.endpoint.detach(link, closed=True)
        pair.exchange()
        receiver.free()
        pair.close()

    assert kept(round_) < PER_ROUND
