"""How many rollups are kept: of an observer, and of a folder of the lag job.

Pure. Source: docs/reference/lag-job.md, "Rollups"; docs/reference/observer.md, "Retention".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from penstock_api.rollup_format import Period, RollupInfo, RollupName

__all__ = ["KEPT", "deletable", "is_future", "is_more", "past_retention"]

KEPT: Final[Mapping[Period, int]] = {Period.HOUR: 7 * 24, Period.DAY: 400}
"""So many of the newest rollups are kept. A number, because a time would be reckoned by a clock that can be set."""
CLOCK_TOLERANCE_MS: Final = 3_600_000


def past_retention(names: Iterable[RollupName], now_ms: int) -> list[RollupName]:
    """The rollups that are not among the newest that are kept, the oldest first. Those that are yet to come by the
    clock, because it was set, are counted on their own: they do not drive out the others, nor the others them.
    """
    found: list[RollupName] = []
    ordered = sorted(names)
    for future in (False, True):
        for period, number in KEPT.items():
            alike = [name for name in ordered if name.period is period and is_future(name, now_ms) is future]
            found += alike[: max(len(alike) - number, 0)]
    return sorted(found)


def is_future(name: RollupName, now_ms: int) -> bool:
    """Whether it is yet to come by the clock."""
    return name.end_ms > now_ms + CLOCK_TOLERANCE_MS


def deletable(stored: Mapping[RollupName, RollupInfo], damaged: Iterable[RollupName], now_ms: int) -> list[RollupName]:
    """The rollups of a folder that can go, in the order in which they have to: hours before days, the oldest first, so
    that whatever is left when that ends early is what there could have been without it. `damaged`: those that can't be
    read.

    They are past their retention, and an hour is in its day with all its brokers, as far as that day is kept.
    """
    old = past_retention({*stored, *damaged}, now_ms)
    gone = frozenset(old)
    of_day: dict[RollupName, list[RollupInfo]] = {}
    for name, info in stored.items():
        if name.period is Period.HOUR:
            of_day.setdefault(RollupName.of(Period.DAY, name.start_ms), []).append(info)

    def is_needed(name: RollupName) -> bool:
        day = RollupName.of(Period.DAY, name.start_ms)
        is_hour = name in stored and name.period is Period.HOUR
        return is_hour and day not in gone and is_more(of_day[day], stored.get(day))

    return sorted((name for name in old if not is_needed(name)), key=lambda name: (name.period is Period.DAY, name))


def is_more(hours: Sequence[RollupInfo], day: RollupInfo | None, *, is_written: bool = False) -> bool:
    """Whether a day is to be merged of these hours: it is not there, or has fewer of them, or lacks a broker of them,
    or one `is_written` since. A day of which hours are gone already stays as it is.
    """
    if day is None:
        return True
    ordinals = {ordinal for hour in hours for ordinal in hour.ordinals}
    return len(hours) > day.hours or (len(hours) == day.hours and (is_written or not ordinals <= set(day.ordinals)))
