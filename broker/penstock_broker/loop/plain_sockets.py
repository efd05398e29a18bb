"""Connections that are flushed by one call: each is a plain socket, and needs nothing else.

Must not handle what a socket does not take: that is `loop.connections`.

Written for speed: this runs for every connection of every turn. Source: docs/decisions/118-small-batches-together.md.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from penstock_amqp.endpoint.engine import ENGINE, Line
from penstock_broker.access.connection import Connection, Phase

__all__ = ["FEW", "send_plain"]

FEW: Final = 4
"""Fewer connections than these are read, and flushed, one by one: the lists for one call would cost more."""

_OPEN: Final = Phase.OPEN
"""An attribute of an enum's class takes long to find."""

_Stuck: TypeAlias = tuple[Connection, tuple[int, int]]


def send_plain(dirty: list[Connection]) -> tuple[list[Connection], _Stuck | None]:
    """Send what those have to say that need nothing else, up to the first that can't send all. Returns those that are
    left to be flushed one by one, and that first one with what `SocketEngine.send_output` returned for it: its bytes
    are in `buffers.OUTPUT`, so it is to be dealt with before any other.
    """
    plain: list[Connection] = []
    lines: list[Line] = []
    others: list[Connection] = []
    for connection in dirty:
        line, endpoint = connection.line, connection.endpoint
        if (
            line is None
            or connection.phase is not _OPEN
            or connection.is_blocked
            or connection.is_congested
            or endpoint.streams
            or endpoint.flows.owed
            or endpoint.changes.are_pending
        ):
            others.append(connection)
            continue
        connection.is_dirty = False
        connection.turn_bytes = 0
        plain.append(connection)
        lines.append(line)
    if not plain:
        return others, None
    try:
        found = lines[0][ENGINE].send_outputs(lines)
    except Exception:
        return plain + others, None  # whose mistake it is shows then; what was sent is not sent again
    if found is None:
        return others, None
    at, left = found
    return plain[at + 1 :] + others, (plain[at], left)
