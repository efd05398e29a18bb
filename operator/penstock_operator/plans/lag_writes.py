"""Which lag is written to a status, and in which order.

A state or a reason that changes is written at once; figures only beyond a dead-band, or if what is shown is a minute
old. States come first, and while both wait one write of ten is for figures, so that neither waits for ever. Figures
change all the time, so they have a slower pace of their own. What does not change is not written, so an idle
Subscription costs nothing. Pure. Source: docs/decisions/069-two-sources-of-lag.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from typing import Final, Generic, TypeVar

from penstock_api.resources import Condition, Holding, Lag, RepeatedMessage
from penstock_operator.plans.conditions import FRESH, StatusCondition
from penstock_operator.plans.lag_freshness import LagUpdate
from penstock_operator.plans.lag_sources import LagSource
from penstock_operator.plans.lag_status import FORECASTS_SHOWN

__all__ = ["STATES_IN_A_ROW", "LagWrites", "Urgency", "urgency"]

STATES_IN_A_ROW: Final = 9
"""After so many writes of states, one of figures has its turn."""

_NOTICEABLE: Final = 0.1
"""A figure that changes by less than this share is within the dead-band."""
_NOTICEABLE_MESSAGES: Final = 10
"""Numbers of messages are beyond it also if they change by so many, however large they are."""
_REFRESH: Final = timedelta(minutes=1)
"""What is shown may differ from what is known for so long, if it is within the dead-band."""

KeyT = TypeVar("KeyT", bound=Hashable)


class Urgency(IntEnum):
    """How soon an update is written."""

    NONE = 0
    """Not at all: the status says the same."""
    FIGURES = 1
    """After all states."""
    STATE = 2
    """First."""


def urgency(resource: Holding, update: LagUpdate) -> Urgency:
    """How soon an update about a Subscription or a Queue is written to its status."""
    before = {condition.type: condition for condition in resource.status.conditions}
    shown, found = resource.status.lag, update.lag
    if any(_is_other(before.get(condition.type), condition) for condition in update.conditions):
        return Urgency.STATE
    if (found is None) is not (shown is None) or (found and shown and found.state != shown.state):
        return Urgency.STATE
    if any(_is_reworded(before.get(condition.type), condition) for condition in update.conditions):
        return Urgency.FIGURES
    return Urgency.FIGURES if found is not None and shown is not None and _is_due(shown, found) else Urgency.NONE


def _is_other(before: Condition | None, condition: StatusCondition) -> bool:
    return before is None or (before.status, before.reason) != (condition.status.value, str(condition.reason))


def _is_reworded(before: Condition | None, condition: StatusCondition) -> bool:
    # The sentence of Lagging has figures, which change with each result; that of LagFresh is the same for as long as
    # its cause is.
    return condition.type == FRESH and before is not None and before.message != condition.message


def _is_due(shown: Lag, found: Lag) -> bool:
    """Whether figures are written. Those of a run have to be newer; live ones are the present, also if the broker's
    clock was set back. Of figures of one time only a forecast can be wrong: an earlier release left it beside Unknown.
    """
    if found.observed_time == shown.observed_time:
        return any(getattr(shown, name) is not None and getattr(found, name) is None for name in FORECASTS_SHOWN)
    if found.observed_time < shown.observed_time and found.source != LagSource.LIVE:
        return False
    if _is_noticeable(shown, found):
        return True
    return abs(found.observed_time - shown.observed_time) >= _REFRESH and _content(shown) != _content(found)


def _is_noticeable(shown: Lag, found: Lag) -> bool:
    """Whether a figure has left its dead-band."""
    counts = (
        (shown.messages, found.messages),
        (shown.ready, found.ready),
        (shown.in_flight, found.in_flight),
        (shown.lost, found.lost),
    )
    rates = (
        (shown.oldest_age_seconds, found.oldest_age_seconds),
        (shown.arrival_per_minute, found.arrival_per_minute),
        (shown.settled_per_minute, found.settled_per_minute),
        (shown.velocity_per_minute, found.velocity_per_minute),
        (shown.drain_seconds, found.drain_seconds),
        (shown.sojourn_p95_millis, found.sojourn_p95_millis),
        (shown.redelivery_percent, found.redelivery_percent),
        (shown.consumers, found.consumers),
        (shown.suggested_consumers, found.suggested_consumers),
        (shown.capacity_per_minute, found.capacity_per_minute),
    )
    return (
        any(_count_differs(old, new) for old, new in counts)
        or any(_differs(old, new) for old, new in rates)
        or _failing(shown.repeated) != _failing(found.repeated)
    )


def _count_differs(old: int | None, new: int | None) -> bool:
    if old is None or new is None:
        return old is not new
    change = abs(new - old)
    return change >= _NOTICEABLE_MESSAGES or (change > 0 and change >= _NOTICEABLE * old)


def _differs(old: int | None, new: int | None) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(new - old) > _NOTICEABLE * max(abs(old), 1)


def _failing(repeated: tuple[RepeatedMessage, ...]) -> set[str]:
    return {each.id for each in repeated}


def _content(lag: Lag) -> Lag:
    """What a reader sees, without what changes with each poll or run although nothing happens."""
    shown: dict[str, object] = {"observed_time": None, "since_caught_up_seconds": None}
    if lag.sojourn_p95_millis is None:
        shown |= {"run_name": "", "run_time": None}
    return lag.model_copy(update=shown)


@dataclass(slots=True)
class LagWrites(Generic[KeyT]):
    """The writes that wait, in two lines: states and figures. In each, who came first is served first."""

    _states: OrderedDict[KeyT, None] = field(default_factory=OrderedDict[KeyT, None])
    _figures: OrderedDict[KeyT, None] = field(default_factory=OrderedDict[KeyT, None])
    _states_in_a_row: int = 0

    def __len__(self) -> int:
        return len(self._states) + len(self._figures)

    def ask(self, key: KeyT, how_soon: Urgency) -> None:
        """A write is wanted, or not any more. One that waits already keeps its place; it moves from the figures to the
        states if it has become one, but never back.
        """
        if how_soon is Urgency.NONE:
            self._states.pop(key, None)
            self._figures.pop(key, None)
        elif how_soon is Urgency.STATE:
            self._figures.pop(key, None)
            self._states.setdefault(key, None)
        elif key not in self._states:
            self._figures.setdefault(key, None)

    @property
    def has_states(self) -> bool:
        """Whether a state waits."""
        return bool(self._states)

    def take(self, *, figures: bool = True) -> KeyT | None:
        """Whose turn it is; it waits no longer. None if nobody waits. `figures`: whether they may have a turn now."""
        is_turn_of_figures = not self._states or self._states_in_a_row >= STATES_IN_A_ROW
        line = self._figures if figures and self._figures and is_turn_of_figures else self._states
        if not line:
            return None
        self._states_in_a_row = self._states_in_a_row + 1 if line is self._states else 0
        return line.popitem(last=False)[0]
