"""What the hours before a window say of each subscription, from two or three rollups.

The newest closed hour, and one up to 24 hours back: totals are cumulative, so what came between them is their
difference. That holds within one run of the broker; after a restart the older one is looked for among fewer hours.
Source: docs/reference/lag-job.md, "Paces and changes".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock_api.rollup_format import ENDS, TOTALS, Period, RollupInfo, RollupName
from penstock_lag.rollups.brokers import place_of
from penstock_lag.rollups.files import BadRollup, read_about, read_rollup
from penstock_lag.rollups.stores import RollupStore, RollupsUnavailable
from penstock_lag.settings import LagJobSettings
from penstock_lag.targets import Target
from penstock_lag_rules.paces import Pace, newest_runs, paces, paces_between
from penstock_lag_rules.rollups import QueueKey, Rollup, with_known_starts

__all__ = ["PastHours", "past_of", "read_past"]

log = logging.getLogger(__name__)

BACK: Final = (23, 11, 5, 2)
"""So many hours before the newest closed one the oldest is looked for, in this order."""
FRESH_MS: Final = 6 * Period.HOUR.milliseconds
"""A newest hour that ended earlier than this before the window is not compared with it."""

_COLUMNS: Final = frozenset(
    {
        *("interval_ms", "first_complete_seq", "queue_name", "incarnation"),
        *("max_age_ms", "min_consumers", "max_consumers"),
        *(f"{end}_{total}" for end in ENDS for total in TOTALS),
        *(f"{end}_sojourn_{part}" for end in ENDS for part in ("indexes", "counts")),
    }
)
"""What paces need of a rollup."""


@dataclass(frozen=True, slots=True)
class PastHours:
    """The paces of the subscriptions; those of which nothing is known are absent."""

    hour: Mapping[QueueKey, Pace] = field(default_factory=dict[QueueKey, Pace])
    day: Mapping[QueueKey, Pace] = field(default_factory=dict[QueueKey, Pace])


def past_of(target: Target, settings: LagJobSettings, end_ms: int) -> PastHours:
    """Of the hours that were closed at the end of a window. Nothing if there are no rollups, or if they can't be read:
    a result does not need them.
    """
    if settings.rollups is None and not target.observers:
        return PastHours()
    try:
        return read_past(place_of(target, settings).store, end_ms)
    except (RollupsUnavailable, BadRollup) as error:
        log.warning("%s: the result says nothing of the hours before, because %s", target.name, error)
        return PastHours()


def read_past(store: RollupStore, end_ms: int) -> PastHours:
    """From a store. Raises RollupsUnavailable or BadRollup."""
    stored = store.stored() or {}
    newest = _newest(stored, end_ms)
    if newest is None:
        return PastHours()
    last, last_is_whole = _read(store, newest)
    day = {}
    for hours in BACK:
        name = RollupName(newest.start_ms - hours * Period.HOUR.milliseconds, Period.HOUR)
        oldest = _first_from(stored, name, newest)
        if oldest is None:
            continue
        if any(oldest <= each <= newest and info.clock_set for each, info in _hours(stored)):
            continue
        first, first_is_whole = _read(store, oldest)
        first, known = with_known_starts([first, last])
        if newest_runs(known) <= {row.run for row in first.runs}:
            day = paces_between(first, known, newest.end_ms, is_whole=first_is_whole and last_is_whole)
            break
    set_in = stored[newest].clock_set
    hour = paces(last, newest.end_ms, is_whole=last_is_whole)
    return PastHours({queue: pace for queue, pace in hour.items() if queue[0] not in set_in}, day)


def _hours(stored: Mapping[RollupName, RollupInfo]) -> list[tuple[RollupName, RollupInfo]]:
    return [(name, info) for name, info in stored.items() if name.period is Period.HOUR]


def _read(store: RollupStore, name: RollupName) -> tuple[Rollup, bool]:
    """One of the rollups, and whether nothing is missing in it."""
    content = store.get(name)
    return read_rollup(content, _COLUMNS), not read_about(content).missing


def _newest(stored: Mapping[RollupName, RollupInfo], end_ms: int) -> RollupName | None:
    closed = [name for name in stored if name.period is Period.HOUR and end_ms - FRESH_MS <= name.end_ms <= end_ms + 1]
    return max(closed, default=None)


def _first_from(stored: Mapping[RollupName, RollupInfo], name: RollupName, newest: RollupName) -> RollupName | None:
    """The first rollup of an hour from `name` on, before the newest."""
    return min(
        (each for each in stored if each.period is Period.HOUR and name.start_ms <= each.start_ms < newest.start_ms),
        default=None,
    )
