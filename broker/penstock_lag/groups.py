"""Which Brokers are computed together, and how their ledgers are told apart.

All ledgers of a run are numbered: first those of the first Broker in the order of the pods' ordinals, then those of the
second, and so on. Where Spark sees rows, this number stands in the column `ordinal`; with one Broker it is the ordinal.
So the same questions serve one Broker and many. A group is as large as memory and temporary disk allow. Pure. Source:
docs/reference/lag-job.md, "Many Brokers in one run".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock_lag.ledger.windows import BrokerWindow, Plan
from penstock_lag.targets import Target
from penstock_lag_rules.figures import Figures

__all__ = ["Member", "figures_of_members", "grouped", "numbered", "windows_of"]


@dataclass(frozen=True, slots=True)
class Member:
    """A Broker of a run, and what is read of it."""

    target: Target
    plan: Plan
    first: int
    """The number of its first ledger. That of ordinal n is `first + n`."""


def numbered(planned: Iterable[tuple[Target, Plan]]) -> list[Member]:
    """In the given order."""
    members: list[Member] = []
    first = 0
    for target, plan in planned:
        members.append(Member(target, plan, first))
        first += target.expected
    return members


def grouped(members: Iterable[Member], most_rows: int, most_bytes: int) -> list[list[Member]]:
    """In the given order. A group has at most so many rows, in segments of so many bytes, or it is a single Broker."""
    groups: list[list[Member]] = []
    rows = size = 0
    for member in members:
        rows, size = rows + member.plan.rows, size + member.plan.bytes
        if not groups or rows > most_rows or size > most_bytes:
            groups.append([])
            rows, size = member.plan.rows, member.plan.bytes
        groups[-1].append(member)
    return groups


def windows_of(members: Iterable[Member]) -> list[BrokerWindow]:
    """By the numbers of the ledgers."""
    return [
        replace(window, ordinal=member.first + window.ordinal) for member in members for window in member.plan.windows
    ]


def figures_of_members(members: Sequence[Member], found: Iterable[Figures]) -> Mapping[int, list[Figures]]:
    """The figures of each member, by `first`; their ordinals count from 0 again."""
    firsts = {member.first + ordinal: member.first for member in members for ordinal in range(member.target.expected)}
    by_first: dict[int, list[Figures]] = {member.first: [] for member in members}
    for one in found:
        first = firsts[one.subject.ordinal]
        own = one if first == 0 else replace(one, subject=replace(one.subject, ordinal=one.subject.ordinal - first))
        by_first[first].append(own)
    return by_first
