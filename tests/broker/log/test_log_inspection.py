"""What the inspection of a log keeps in memory."""

from __future__ import annotations

from penstock_broker.log import EndReason, Put
from penstock_broker.log.format.records import Ack, RouteSet
from penstock_broker.log.inspection import log_inspection


def test_sizes_are_kept_of_live_messages_only() -> None:
    """Else a log of many small messages that were consumed takes a gigabyte for ten million of them."""
    contents = log_inspection._Contents()  # pyright: ignore[reportPrivateUsage]
    contents.take([RouteSet(1, (7,)), Put(1, 1, 0, b"lives", 0)], 1, 0)
    for first in range(2, 100_002, 1000):
        numbers = range(first, first + 1000)
        contents.take([*(Put(1, number, 0, b"dies", 0) for number in numbers)], 1, 0)
        contents.take([Ack(7, numbers, EndReason.ACCEPTED.value)], 1, 0)
    assert len(contents.sizes) < 20_000
    assert [(message, contents.sizes[message]) for message in contents.replay.puts] == [(1, 5)]
