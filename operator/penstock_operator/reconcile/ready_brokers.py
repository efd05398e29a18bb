"""The Brokers that are as they should be, and when each is looked at again although nothing is known to have changed.

What can be listed or watched of a Broker's children is; for the rest, such as its Secrets, it is looked at in turn.
Pure; the time comes in. Source: docs/decisions/099-unchanged-costs-nothing.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from penstock_api.resources import Broker
from penstock_operator.children.lag_schedules import KINDS
from penstock_operator.cluster.cache import ResourceKey
from penstock_operator.manifest import Manifest
from penstock_operator.plans.broker_view import BrokerReportView
from penstock_operator.reconcile.broker_children import ChildName

__all__ = ["ReadyBrokers", "look_seconds"]

_SECONDS_PER_BROKER: Final = 4.5
"""A look is about 14 requests, so all looks together cost three requests a second."""
_LONGEST_SECONDS: Final = 3600.0
_LONGEST_SECONDS_OWN_JOB: Final = 300.0
"""For a Broker with a lag job of its own, whose condition says when a run is overdue."""


@dataclass(frozen=True, slots=True)
class _LastPass:
    at: datetime
    uid: str
    generation: int
    annotations: Mapping[str, str]
    scopes: bool | None
    absent: frozenset[ChildName]
    namespaces: frozenset[str]
    view: BrokerReportView


@dataclass(slots=True)
class ReadyBrokers:
    """What was found when each Broker was Ready, with all children applied, at its last pass."""

    brokers: int = 1
    """How many Brokers the operator has: the fewer, the more often each of them is looked at."""
    _ready: dict[ResourceKey, _LastPass] = field(default_factory=dict[ResourceKey, _LastPass])

    def begin(self, key: ResourceKey, broker: Broker) -> frozenset[ChildName]:
        """A pass begins, so how the Broker is will be known after it. Return what this pass need not look for."""
        last = self._ready.pop(key, None)
        if last is None or (last.uid, last.generation) != (broker.metadata.uid, broker.metadata.generation):
            return frozenset()
        return last.absent

    def note_ready(
        self,
        key: ResourceKey,
        view: BrokerReportView,
        scopes: bool | None,
        absent: frozenset[ChildName],
        namespaces: frozenset[str] = frozenset(),
    ) -> None:
        """The pass found the Broker Ready. `scopes`: whether its observer knew tokens of single subscriptions, on which
        its Secrets depend. `absent`: what is not there, and is not made while the spec stays. `namespaces`: where the
        resources are that use it, since these get its CA.
        """
        about = view.broker.metadata
        trimmed = replace(view, stateful_set=_status_of(view.stateful_set), pod=_status_of(view.pod))
        self._ready[key] = _LastPass(
            view.now, about.uid, about.generation, about.annotations, scopes, absent, namespaces, trimmed
        )

    def view(
        self, key: ResourceKey, broker: Broker, scopes: bool | None, namespaces: frozenset[str], now: datetime
    ) -> BrokerReportView | None:
        """What was found then, if nobody has touched the Broker since, the same `namespaces` use it, and its turn has
        not come; else None.
        """
        last, about = self._ready.get(key), broker.metadata
        if last is None or self._is_its_turn(last, broker, now):
            return None
        before = (last.uid, last.generation, last.annotations, last.scopes, last.namespaces)
        return last.view if before == (about.uid, about.generation, about.annotations, scopes, namespaces) else None

    def forget(self, key: ResourceKey) -> None:
        """The Broker is gone, or about to go."""
        self._ready.pop(key, None)

    def clear(self) -> None:
        """Something has changed that concerns all of them."""
        self._ready.clear()

    def is_due(
        self, key: ResourceKey, broker: Broker, counts: tuple[int, int, int], namespaces: frozenset[str], now: datetime
    ) -> bool:
        """Whether the Broker is to be looked at. `counts`: the Exchanges, Subscriptions and Queues that name it, which
        are in `namespaces`.
        """
        last, shown = self._ready.get(key), broker.status
        if not any(condition.type == "Ready" and condition.status == "True" for condition in shown.conditions):
            return True  # Somebody else has written its status.
        if last is None or counts != (shown.exchanges, shown.subscriptions, shown.queues or 0):
            return True
        if namespaces != last.namespaces:
            return True
        return self._is_its_turn(last, broker, now)

    def _is_its_turn(self, last: _LastPass, broker: Broker, now: datetime) -> bool:
        """Also if the clock was set back since: else nobody would look before it has caught up."""
        return not 0 <= (now - last.at).total_seconds() < look_seconds(broker, self.brokers)


def _status_of(manifest: Manifest | None) -> Manifest | None:
    """What a report reads of an object; the rest is a hundred times as long."""
    return None if manifest is None else {"status": manifest.get("status")}


def look_seconds(broker: Broker, brokers: int) -> float:
    """Seconds after which a Ready Broker is looked at again, if the operator has so many. Its uid decides between two
    and four thirds of the mean, so that they are not looked at all at once. The longest time is not more than twice the
    shortest: no Broker has its second turn in the same minutes in which others still have their first.
    """
    longest = _LONGEST_SECONDS_OWN_JOB if broker.spec.lag_analysis.backend in KINDS else _LONGEST_SECONDS
    share = int(hashlib.sha256(broker.metadata.uid.encode()).hexdigest()[:4], 16) / 0x10000
    return min(_SECONDS_PER_BROKER * brokers, longest) * (2 + 2 * share) / 3
