"""What `penstock status` says of a broker: its figures in a few lines, and what needs attention. Pure.

It must not know how the states were asked for. The rules are those of the Broker's conditions and of the alerts, as far
as one look at the broker can tell (docs/reference/management.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock_api.state_documents import BrokerState
from penstock_page.text import count, duration, printable, size

__all__ = ["FIGURES", "BrokerReport", "QueueFigures", "report_lines"]

NAMED: Final = 3
"""So many queues are named in a sentence; the others are counted."""

FIGURES: Final = ("depth", "ready", "consumers", "stranded")
"""What is asked of each queue, beside its name."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """What one queue, or the queue of one subscription, holds."""

    name: str
    depth: int
    """Messages, those in flight included."""
    ready: int
    consumers: int
    stranded: int
    """Messages whose dead-letter or expiry destination does not take them."""

    @classmethod
    def of_row(cls, row: Mapping[str, object], key: str) -> QueueFigures:
        """From a row of a list that has `FIGURES`, and the name as `key`."""
        depth, ready, consumers, stranded = (
            value if isinstance(value := row.get(name), int) else 0 for name in FIGURES
        )
        return cls(str(row[key]), depth, ready, consumers, stranded)


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """A broker, its subscriptions and its queues at one moment."""

    broker: BrokerState
    subscriptions: Sequence[QueueFigures]
    queues: Sequence[QueueFigures] = ()

    @property
    def unconsumed(self) -> tuple[QueueFigures, ...]:
        """Those in which messages are ready and nobody consumes, the deepest first."""
        found = [each for each in (*self.subscriptions, *self.queues) if each.ready and not each.consumers]
        return tuple(sorted(found, key=lambda each: (-each.ready, each.name)))

    @property
    def stranded(self) -> tuple[QueueFigures, ...]:
        """Those with messages whose dead-letter or expiry destination does not take them."""
        return tuple(each for each in (*self.subscriptions, *self.queues) if each.stranded)

    def concerns(self) -> tuple[str, ...]:
        """What needs attention, the worst first; one sentence each."""
        return tuple(_concerns(self))

    def to_document(self) -> dict[str, object]:
        """The same for programs: the broker's state as `$management` tells it, the totals, and the concerns."""
        return {
            "broker": self.broker.to_wire(),
            "messages": _messages(self.subscriptions) + _messages(self.queues),
            "unconsumed": [each.name for each in self.unconsumed],
            "stranded": [each.name for each in self.stranded],
            "concerns": list(self.concerns()),
        }


def report_lines(report: BrokerReport) -> list[str]:
    """The report for a person."""
    state = report.broker
    figures = {
        "Broker": f"version {state.version}, up for {duration((state.now_ms - state.started_ms) // 1000)}",
        "Durable work": state.durable_work,
        "Volume": _share(state.volume_used_bytes, state.volume_bytes, state.storage_level),
        "Memory": _share(state.memory_used_bytes, state.memory_bytes, state.memory_level),
        "Connections": count(state.connections),
        "Exchanges": count(state.exchanges),
        "Subscriptions": f"{count(state.subscriptions)}, with {count(_messages(report.subscriptions))} messages",
        "Queues": f"{count(state.queues)}, with {count(_messages(report.queues))} messages",
    }
    lines = [f"{name + ':':<15}{printable(figure)}" for name, figure in figures.items()]
    concerns = report.concerns()
    return [*lines, "", *(f"! {concern}" for concern in concerns)] if concerns else [*lines, "", "All is well."]


def _share(used: int, whole: int, level: str) -> str:
    return f"{level}, {size(used)} of {size(whole)}" if whole else f"{level}, size not known"


def _concerns(report: BrokerReport) -> Iterator[str]:
    state = report.broker
    if state.durable_work != "Ok":
        page = "docs/how-to/runbooks/storage-refuses-work.md"
        yield f"Durable messages are refused: the log is {state.durable_work}. See {page}."
    if state.storage_level != "Ok":
        largest = ", ".join(printable(each.queue_name) for each in state.largest_queues)
        yield f"The volume is filling ({state.storage_level}){f'; the largest queues: {largest}' if largest else ''}."
    if state.memory_level != "Ok":
        yield f"Messages take much of the memory ({state.memory_level}): producers are slowed down."
    if report.stranded:
        yield f"Messages can't go to their dead-letter or expiry destination: {_named(report.stranded)}."
    if report.unconsumed:
        yield f"Messages wait and nobody consumes: {_named(report.unconsumed)}."
    for contest in state.contested_containers:
        yield (
            f"Connections with the container-id {printable(contest.container_id)!r} keep closing each other: "
            "give each program one of its own."
        )


def _messages(found: Sequence[QueueFigures]) -> int:
    return sum(each.depth for each in found)


def _named(found: Sequence[QueueFigures]) -> str:
    names = ", ".join(printable(each.name) for each in found[:NAMED])
    return names if len(found) <= NAMED else f"{names} and {len(found) - NAMED} more"
