"""What each container got in the window, from what the ledger says at the ends of each life. Pure.

A container is the same one at both ends if it connected at the same time. One that came in between counts from then
on; one that went is not listed, and neither is one that was beyond the list before.
Source: penstock_api.state_documents.ConsumerTotal; docs/concepts/lag.md, "Shares and fairness".
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from penstock_lag_rules.figures import ConsumerWork

__all__ = ["ConsumersAt", "consumer_work"]


@dataclass(frozen=True, slots=True)
class ConsumersAt:
    """The containers at one time."""

    time_ms: int
    delivered: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    """By container and the time at which it connected."""

    @classmethod
    def of(cls, time_ms: int, text: str | None) -> Self:
        """From the ledger's JSON."""
        found: list[dict[str, Any]] = [] if text is None else json.loads(text)
        return cls(time_ms, {(each["container"], each["sinceMs"]): each["delivered"] for each in found})


def consumer_work(lives: Iterable[tuple[ConsumersAt | None, ConsumersAt | None]]) -> tuple[ConsumerWork, ...]:
    """From the first and the last that is known of each life; without a first one it counts from zero."""
    work: dict[str, tuple[int, int]] = {}
    for first, last in lives:
        if last is None:
            continue
        for (container, since_ms), delivered in last.delivered.items():
            before, begin_ms = 0, since_ms
            if first is not None and first.time_ms > since_ms:
                if (container, since_ms) not in first.delivered:
                    continue
                before, begin_ms = first.delivered[container, since_ms], first.time_ms
            so_far, connected_ms = work.get(container, (0, 0))
            work[container] = (
                so_far + max(delivered - before, 0),
                connected_ms + max(last.time_ms - begin_ms, 0),
            )
    ordered = sorted(work.items(), key=lambda item: (-item[1][0], item[0]))
    return tuple(ConsumerWork(container, *counts) for container, counts in ordered)
