"""What asking a Broker's observer for the newest lag result has come to, round by round.

A single failed request means nothing: an observer counts as unreachable only after it has failed for a minute. Pure;
the time is the operator's own. Source: docs/decisions/067-freshness-of-lag.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Self

__all__ = ["ObserverContact"]

_PATIENCE: Final = timedelta(seconds=60)
"""An observer is unreachable if every request failed for so long."""
_AT_LEAST: Final = 2
"""And if at least so many did: the rounds may be further apart than a minute."""
_REWORDING: Final = timedelta(minutes=5)
"""The words of a lasting problem are renewed this often at most: they go into the status of every Subscription."""
_MAX_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True)
class _Words:
    """What is wrong, in a few words."""

    text: str
    since: datetime
    """When they were taken down."""


@dataclass(frozen=True, slots=True)
class ObserverContact:
    """The outcome of the requests since the operator started."""

    has_answered: bool = False
    """Whether a request was ever answered, or none can be made. Until then an operator that has just started does not
    know better than the last one.
    """
    failures: int = 0
    """Requests that failed since the last one that was answered."""
    failing_since: datetime | None = None
    """When the first of them did."""
    _failure: _Words | None = None
    _fault: _Words | None = None

    @property
    def failure(self) -> str:
        """Why the observer does not answer; empty if it does."""
        return "" if self._failure is None else self._failure.text

    @property
    def fault(self) -> str:
        """Why its last answer can't be used; empty if it can."""
        return "" if self._fault is None else self._fault.text

    def answered(self, now: datetime, fault: str = "") -> Self:
        """The contact after an answer, or if there is nobody to ask; `fault`: why it can't be used."""
        worded = _worded(self._fault, fault, now) if fault else None
        return replace(self, has_answered=True, failures=0, failing_since=None, _failure=None, _fault=worded)

    def failed(self, now: datetime, failure: str) -> Self:
        """The contact after a request without an answer; `failure` says why."""
        since = min(self.failing_since or now, now)  # the clock may have been set back
        worded = _worded(self._failure, failure, now)
        return replace(self, failures=self.failures + 1, failing_since=since, _failure=worded)

    def is_unreachable(self, now: datetime) -> bool:
        """Whether every request has failed for so long that it can't be chance."""
        since = self.failing_since
        return since is not None and self.failures >= _AT_LEAST and now - since >= _PATIENCE


def _worded(before: _Words | None, text: str, now: datetime) -> _Words:
    keeps = before is not None and timedelta(0) <= now - before.since < _REWORDING
    return before if keeps and before is not None else _Words(text[:_MAX_CHARACTERS], now)
