"""Floods a broker with messages while nobody consumes, and takes them all again; used by tests and `hack/soak/memory`.

Messages are numbered. What a producer is told counts: accepted, or refused.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable

from crash.load_client import Peer, encoded, lib

__all__ = ["drain", "flood", "half_sent"]

QUIET_SECONDS = 60.0
"""A client that hears nothing for so long gives up. A test waits for it only when it fails."""


def turn(peer: Peer, seconds: float = 20.0) -> bool:
    """Send and receive once; False if nothing came for so long."""
    poll = select.poll()
    poll.register(peer.sock, select.POLLIN if peer.flush() else select.POLLIN | select.POLLOUT)
    ready = poll.poll(seconds * 1000)
    if any(mask & select.POLLIN for _, mask in ready):
        peer.read()
    return bool(ready)


def flood(
    port: int,
    address: str,
    count: int,
    size: int,
    *,
    durable: bool,
    watch: Callable[[], None] = lambda: None,
) -> tuple[set[int], int]:
    """Send `count` messages of `size` bytes, numbered from 1; those that were accepted, and how many were refused.

    It ends early if no answer comes for `QUIET_SECONDS`: the broker has no room. `watch` is called again and again.
    """
    peer = Peer("127.0.0.1", port, f"producer of {address}")
    accepted: set[int] = set()
    sender = peer.sender("flood", address, accepted.update)
    padding = bytes(size - 8)
    sent, heard = 0, time.monotonic()
    while len(accepted) + len(sender.refused) < count:
        while sent < count and sender.credit > 0:
            part = range(sent + 1, sent + 1 + min(64, count - sent, sender.credit))
            sender.send([encoded(number.to_bytes(8, "big") + padding, durable=durable) for number in part])
            sent += len(part)
        before = len(accepted)
        turn(peer, 0.1)
        watch()
        if len(accepted) > before:
            heard = time.monotonic()
        elif time.monotonic() - heard > QUIET_SECONDS:
            break
    refused = len(sender.refused)
    peer.free()
    return accepted, refused


def half_sent(port: int, number: int, size: int) -> Peer:
    """A client that has sent the first `size` bytes of a message, and says no more."""
    peer = Peer("127.0.0.1", port, f"half {number}")
    sender = peer.sender("half", "halves", lambda _: None)
    while not sender.credit:
        turn(peer)
    message = encoded(bytes(2 * size), durable=False)[:size]
    lib.pn_delivery(sender.link, sender.tag(1))
    lib.pn_link_send(sender.link, message, len(message))
    while not peer.flush() or lib.pn_session_outgoing_bytes(peer.session):
        turn(peer, 0.05)
    return peer


def drain(
    port: int,
    address: str,
    wanted: int,
    size: int,
    watch: Callable[[], None] = lambda: None,
    *,
    credit: int = 500,
) -> set[int]:
    """The numbers of the messages of `size` bytes that wait in a queue; at most `credit` are under way at a time.

    It ends once `wanted` came, or if none comes for `QUIET_SECONDS`.
    """
    peer = Peer("127.0.0.1", port, f"consumer of {address}")
    came: set[int] = set()

    def take(message: bytes) -> bool:
        came.add(int.from_bytes(message[-size : 8 - size], "big"))
        return True

    peer.receiver("drain", address, take, credit=credit)
    while len(came) < wanted:
        if not turn(peer, QUIET_SECONDS):
            break
        watch()
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        turn(peer, 0.05)
    peer.free()
    return came
