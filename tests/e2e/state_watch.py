"""What the observer said of one subscription from poll to poll, against what a scenario expects. Pure.

The limit is counted in polls of the observer, by the broker's clock: the state has to be there at the first poll that
is two periods after the injection. So a machine that is slow makes a test longer, and does not make it fail.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from penstock_api.lag_result import LagState

__all__ = ["Expectation", "Seen", "Sighting", "WrongState", "sighting_of"]

PERIODS = 2


class WrongState(Exception):
    """The observer said something else than it has to; the text says what."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one poll said."""

    time_ms: int
    """Of the poll, by the broker's clock."""
    state: LagState
    sentence: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run has shown: one line of docs/reference/lag-states.md."""

    injected: str
    state: LagState | None
    """None: nobody answers who could say it."""
    seconds: int
    """From the injection to the first poll with this state."""
    sentence: str


@dataclass(frozen=True, slots=True)
class Expectation:
    """What has to be seen of one subscription."""

    name: str
    path: tuple[LagState, ...]
    """The states that it may have, in this order; the last one has to come, and stay."""
    period_ms: int
    sentence: str
    """A regular expression for the whole sentence with which the last state begins."""


def sighting_of(expected: Expectation, sightings: Sequence[Sighting], injected_ms: int) -> Sighting | None:
    """The first sighting of the expected state after the injection; None if it may still come.

    Raises:
        WrongState: another state, another sentence, or it is too late.
    """
    _check_path(expected, sightings)
    after = [each for each in sightings if each.time_ms > injected_ms]
    for each in after:
        if each.state is expected.path[-1]:
            if re.fullmatch(expected.sentence, each.sentence) is None:
                raise WrongState(f"{expected.name} is {each.state}, but says: {each.sentence}")
            return each
        if each.time_ms >= injected_ms + PERIODS * expected.period_ms:
            seconds = (each.time_ms - injected_ms) // 1000
            raise WrongState(
                f"{expected.name} is {each.state} and not {expected.path[-1]} after {seconds} s: {each.sentence}"
            )
    return None


def _check_path(expected: Expectation, sightings: Sequence[Sighting]) -> None:
    states = [state for state, _ in groupby(each.state for each in sightings)]
    rest = iter(expected.path)
    for state in states:
        if state not in rest:  # takes from the iterator up to the state
            told = next(each.sentence for each in sightings if each.state is state)
            path = ", ".join(expected.path)
            raise WrongState(f"{expected.name} was {', '.join(states)}; allowed is {path}. {state} said: {told}")
