"""The conditions of all resources as metrics: how many there are of each, which resources are in trouble, and since
when results of the lag job are to be expected for a Broker.

A series for each condition of each resource would be 60,000 at 10,000 Subscriptions, nearly all of which say that all
is well. So every condition is counted, and only those that mean trouble name their resource, at most `NAMED` of one
type: when a broker is lost, all its Subscriptions are in trouble at once, and the count says so.

Source: docs/decisions/103-condition-metrics.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock_operator.cluster.cache import Cache, KindName, ResourceKey
from penstock_operator.manifest import Manifest, items_of, text_at

__all__ = [
    "NAMED",
    "ConditionCollector",
    "ConditionCount",
    "TroubledResource",
    "conditions_of",
    "is_trouble",
    "lag_analysis_since",
]

NAMED: Final = 500
"""Resources of one kind that are named for one type of condition, the first by namespace and name."""
WARNINGS: Final = frozenset(
    {
        "ContainersContested",
        "DeletionBlocked",
        "InsecurePlain",
        "Lagging",
        "NodeLost",
        "ObserverFailing",
        "ReconciliationPaused",
        "Stalled",
        "StorageFilling",
        "StorageResizing",
    }
)
"""Conditions that mean trouble if they are True; the others do if they are not."""
AS_WANTED: Final = frozenset({"Disabled", "ScaledToZero", "Suspended"})
"""Reasons that say that a spec asks for it: nobody has to look."""


class ConditionCount(NamedTuple):
    """What resources are counted by."""

    kind: str
    type: str
    status: str


class TroubledResource(NamedTuple):
    """A condition of one resource that means trouble."""

    kind: str
    namespace: str
    name: str
    type: str
    status: str


def is_trouble(type_: str, status: str, reason: str) -> bool:
    """Whether somebody should look at a resource with this condition."""
    return (status == "True") is (type_ in WARNINGS) and reason not in AS_WANTED


def conditions_of(
    manifests: Iterable[Manifest], named: int = NAMED
) -> tuple[dict[ConditionCount, int], list[TroubledResource]]:
    """All conditions counted, and those that mean trouble; `named`: the most resources of a kind for one type."""
    counts: dict[tuple[str, str, str], int] = {}  # plain, because a scrape of 60,000 conditions holds up the loop
    troubled: defaultdict[tuple[str, str], list[TroubledResource]] = defaultdict(list)
    for manifest in manifests:
        kind = str(manifest["kind"])
        for condition in items_of(manifest, "status", "conditions"):
            type_, status = str(condition.get("type")), str(condition.get("status"))
            counted = (kind, type_, status)
            counts[counted] = counts.get(counted, 0) + 1
            if is_trouble(type_, status, str(condition.get("reason"))):
                namespace = text_at(manifest, "metadata", "namespace") or ""
                name = text_at(manifest, "metadata", "name") or ""
                troubled[kind, type_].append(TroubledResource(kind, namespace, name, type_, status))
    first = [each for group in sorted(troubled) for each in sorted(troubled[group])[:named]]
    return {ConditionCount(*counted): number for counted, number in counts.items()}, first


def lag_analysis_since(manifest: Manifest) -> float | None:
    """Since when a Broker is to be analysed, in seconds since the epoch; None if it is not, as its spec or that of the
    operator's job asks.
    """
    for condition in items_of(manifest, "status", "conditions"):
        if condition.get("type") == "LagAnalysisScheduled" and condition.get("reason") not in AS_WANTED:
            return datetime.fromisoformat(text_at(condition, "lastTransitionTime") or "").timestamp()
    return None


class ConditionCollector(Collector):
    """Reads the cache at each scrape. An operator that waits until it leads counts nothing, and none counts what it
    leaves to another one: else a sum over all operators would count a resource twice.
    """

    def __init__(
        self,
        cache: Cache,
        leads: Callable[[], bool] = lambda: True,
        left: Callable[[], Iterable[ResourceKey]] = tuple[ResourceKey, ...],
    ) -> None:
        """`left`: the Brokers that another operator manages."""
        self._cache = cache
        self._leads = leads
        self._left = left

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The families, without samples while there are no resources."""
        counts, troubled = conditions_of(self._manifests())
        counted = GaugeMetricFamily(
            "penstock_resource_conditions",
            "Number of resources that have this condition with this status.",
            labels=ConditionCount._fields,
        )
        for count, resources in sorted(counts.items()):
            counted.add_metric(count, resources)
        yield counted
        named = GaugeMetricFamily(
            "penstock_resource_condition",
            "1 for each condition of a resource that means trouble.",
            labels=TroubledResource._fields,
        )
        for resource in troubled:
            named.add_metric(resource, 1)
        yield named
        yield self._analysed()

    def _analysed(self) -> GaugeMetricFamily:
        analysed = GaugeMetricFamily(
            "penstock_lag_analysis_since_timestamp_seconds",
            "Since when results of the lag job are to be expected for a Broker.",
            labels=("broker_namespace", "broker"),
        )
        for manifest in self._manifests("Broker"):
            since = lag_analysis_since(manifest)
            if since is not None:
                name = (text_at(manifest, "metadata", "namespace") or "", text_at(manifest, "metadata", "name") or "")
                analysed.add_metric(name, since)
        return analysed

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing: registering must not read the cache."""
        return []

    def _manifests(self, kind: KindName | None = None) -> Iterator[Manifest]:
        left = set(self._left())
        for broker in tuple(left):
            left.update(self._cache.dependents(broker))
        for key in self._cache.all(kind) if self._leads() else ():
            entry = self._cache.get(key)
            if entry is not None and key not in left:
                yield entry.manifest
