"""Steps that tests of the log take again and again."""

from __future__ import annotations

from penstock_broker.log import Log

__all__ = ["a_queue", "settle"]


def a_queue(log: Log, key: str = "q") -> tuple[int, int]:
    """(incarnation, route set) of a new queue."""
    incarnation = log.next_incarnation()
    log.topology("queue", key, b"", incarnation)
    return incarnation, log.route_set((incarnation,))


def settle(log: Log) -> None:
    """Turns without traffic, until there is nothing left to do."""
    log.write()
    log.sync()
    while log.wants_maintenance:
        log.maintain(1000)
        log.collect()
