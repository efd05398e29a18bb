"""The numbers of what uses a Broker are those that a walk over everything finds, whatever comes, changes and goes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.resources import manifest_of

from penstock_api import declaration
from penstock_api.resources import Broker
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.cluster.resource_key import KindName

KINDS: tuple[KindName, ...] = ("Exchange", "Subscription", "Queue")
BROKERS = [ResourceKey("Broker", namespace, name) for namespace in ("shop", "hub") for name in ("main", "other")]

PUTS = st.tuples(
    st.sampled_from(KINDS),
    st.sampled_from(("shop", "hub", "lab")),
    st.sampled_from(("one", "two")),
    st.sampled_from(BROKERS),
    st.booleans(),
)
"""A kind, a namespace, a name, the Broker that it names, and whether it can be read."""
REMOVALS = st.tuples(st.sampled_from(KINDS), st.sampled_from(("shop", "hub", "lab")), st.sampled_from(("one", "two")))


def resource(version: int, put: tuple[KindName, str, str, ResourceKey, bool]) -> dict[str, Any]:
    kind, namespace, name, broker, is_readable = put
    spec: dict[str, Any] = {"brokerRef": {"name": broker.name, "namespace": broker.namespace}}
    if not is_readable:
        spec["fromTheFuture"] = 1
    about = {"namespace": namespace, "name": name, "uid": f"{kind}{namespace}{name}{version}"}
    return dict(manifest_of(kind, spec, None, {**about, "resourceVersion": str(version)}))


@given(st.lists(PUTS | REMOVALS, max_size=40))
def test_counted_is_what_is_there(steps: list[Any]) -> None:
    cache = Cache()
    for version, step in enumerate(steps, start=1):
        if len(step) == 5:
            cache.put(resource(version, step))
        else:
            cache.remove(ResourceKey(*step))
        found = [entry.resource for key in cache.all() if (entry := cache.get(key)) is not None]
        users = [it for it in found if it is not None and not isinstance(it, Broker)]
        for broker in BROKERS:
            mine = [it for it in users if declaration.broker_key(it) == broker[1:]]
            for kind in KINDS:
                assert cache.count_of(broker, kind) == sum(it.kind == kind for it in mine)
            assert cache.namespaces_of(broker) == {it.metadata.namespace for it in mine}
            elsewhere = {id(it) for it in mine if it.metadata.namespace != broker.namespace}
            assert {id(it) for it in cache.declaring_elsewhere(broker)} == elsewhere
        holding = {declaration.broker_key(it) for it in users if it.kind != "Exchange"}
        assert cache.brokers_of_holdings() == {ResourceKey("Broker", *each) for each in holding}
