"""What the operator keeps in memory: no records of who wrote which field, and nothing about what is gone."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import gc
import json
import tracemalloc
from collections.abc import Sized
from typing import Any, cast

import aiohttp
import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.operator_in_memory import World, resource
from support.resources import GOOD, NOW
from support.virtual_time import run_in_virtual_time

from penstock_operator.cluster import cache as cache_module
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.cluster.child_versions import LISTED
from penstock_operator.manifest import Manifest, text_at, trimmed
from penstock_operator.reconcile.lag_reader import LagReader

MAIN = ResourceKey("Broker", "shop", "main")
CONDITION = {
    "status": "True",
    "reason": "Declared",
    "message": "The broker has the subscription.",
    "lastTransitionTime": "2026-03-01T12:00:00Z",
    "observedGeneration": 1,
}
LAG = {
    "state": "OK",
    "message": "Nothing waits.",
    "messages": 0,
    "ready": 0,
    "inFlight": 0,
    "consumers": 2,
    "arrivalPerMinute": 120,
    "settledPerMinute": 120,
    "velocityPerMinute": 0,
    "source": "Live",
    "observedTime": "2026-03-01T12:00:00Z",
    "runName": "live",
    "brokersReporting": "1/1",
}


def as_stored(number: int) -> dict[str, Any]:
    """A Subscription as an API server has it: applied with kubectl, and with the status of operator and lag reader."""
    wanted = {**GOOD["Subscription"], "metadata": {"name": f"billing-{number}", "namespace": "shop"}}
    shown = {
        "observedGeneration": 1,
        "subscriptionName": f"billing-{number}",
        "queueName": f"psub:durable:global:billing-{number}",
        "address": "amqps://orders-x.shop.svc:5671/orders",
        "applied": {"exchange": "orders", "bindingKeys": ["#"], "expiryPolicy": "Never", "sharing": "Shared"},
        "conditions": [{"type": kind, **CONDITION} for kind in ("Ready", "Accepted", "Bound", "Matched")],
    }
    lag = {"lag": LAG, "conditions": [{"type": kind, **CONDITION} for kind in ("Lagging", "LagFresh")]}
    writers = {
        "kubectl-client-side-apply": {"spec": wanted["spec"], "metadata": {"annotations": {"last-applied": ""}}},
        "Python-urllib": {"metadata": {"finalizers": ["penstock.dev/topology"]}},
        "penstock-operator": {"status": shown},
        "penstock-lag": {"status": lag},
    }
    return {
        **wanted,
        "metadata": {
            **wanted["metadata"],
            "uid": f"5f9a2c1e-0000-4000-8000-{number:012}",
            "generation": 1,
            "resourceVersion": str(1000 + number),
            "creationTimestamp": "2026-03-01T12:00:00Z",
            "finalizers": ["penstock.dev/topology"],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(wanted)},
            "managedFields": [
                {"manager": name, "operation": "Apply", "time": "2026-03-01T12:00:00Z", "fieldsV1": fields_of(written)}
                for name, written in writers.items()
            ],
        },
        "status": {**shown, **lag, "conditions": [*cast(Any, shown["conditions"]), *cast(Any, lag["conditions"])]},
    }


def fields_of(written: object) -> dict[str, Any]:
    """The form in which the API server records fields, `fieldsV1`."""
    if isinstance(written, dict):
        return {f"f:{name}": fields_of(value) for name, value in cast(dict[str, object], written).items()}
    if isinstance(written, list):
        return {item_of(it): {".": {}, **fields_of(it)} for it in cast(list[object], written)}
    return {}


def item_of(item: object) -> str:
    """The form in which it records an item of a list: by its key, or by its value."""
    kind = text_at(cast(Manifest, item), "type")
    return f'v:"{item}"' if kind is None else f'k:{{"type":"{kind}"}}'


def cached_bytes(count: int) -> int:
    """Bytes that a cache with so many Subscriptions takes."""
    texts = [json.dumps(as_stored(number)) for number in range(count)]
    gc.collect()
    tracemalloc.start()
    cache = Cache()
    for text in texts:
        cache.put(json.loads(text))
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(cache.all()) == count
    return taken


def test_who_wrote_which_field_is_not_kept() -> None:
    stored = as_stored(1)
    before = json.dumps(stored)
    cache = Cache()
    cache.put(stored)
    entry = cache.get(ResourceKey("Subscription", "shop", "billing-1"))
    assert entry is not None
    metadata = cast(dict[str, Any], entry.manifest["metadata"])
    assert sorted(metadata) == [
        "annotations",
        "creationTimestamp",
        "finalizers",
        "generation",
        "name",
        "namespace",
        "resourceVersion",
        "uid",
    ]
    assert metadata["annotations"] == {}
    assert json.dumps(stored) == before, "the object of the watch is not changed"


@pytest.mark.parametrize("metadata", [None, "text", {}, {"annotations": None}, {"annotations": {"a": "b"}}])
def test_what_has_no_such_records_stays_as_it_is(metadata: object) -> None:
    manifest: Manifest = {"kind": "Broker", "metadata": metadata}
    assert trimmed(manifest) == manifest


def test_the_cache_needs_a_third_less_memory_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 300
    cached_bytes(count)  # what is made once, at the first use, is no part of a Subscription
    taken = cached_bytes(count)
    assert 15_000 < taken / count < 26_000, "docs/reference/operator.md says how much a Subscription takes"

    def untrimmed(manifest: Manifest) -> Manifest:
        return manifest

    monkeypatch.setattr(cache_module, "trimmed", untrimmed)
    monkeypatch.setattr(cache_module, "sharing_texts", untrimmed)
    assert taken < 0.67 * cached_bytes(count)


def test_resources_share_their_texts() -> None:
    cache = Cache()
    for number in range(2):
        cache.put(json.loads(json.dumps(as_stored(number))))
    one, other = (cast(Any, found(cache, number)) for number in range(2))
    assert one["status"]["conditions"] == other["status"]["conditions"]
    for field in ("message", "reason", "lastTransitionTime"):
        assert one["status"]["conditions"][0][field] is other["status"]["conditions"][0][field]
    assert one["status"]["applied"]["bindingKeys"][0] is other["status"]["applied"]["bindingKeys"][0]
    names = [{id(name) for name in it["status"]["lag"]} for it in (one, other)]
    assert names[0] == names[1]
    assert found(cache, 0) == trimmed(as_stored(0)), "nothing else is changed"


def found(cache: Cache, number: int) -> Manifest:
    entry = cache.get(ResourceKey("Subscription", "shop", f"billing-{number}"))
    assert entry is not None
    return entry.manifest


async def test_a_list_of_what_has_not_changed_is_no_second_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    world, listed = World(), list[Manifest]()
    names = [("Subscription", "shop", f"billing-{number}") for number in range(3)]
    for number, name in enumerate(names):
        world.api.objects[name] = as_stored(number)
    await world.controller.list_all(world.api, ())
    changed = world.api.objects[names[2]]
    changed["metadata"]["resourceVersion"] = "2000"
    changed["spec"] = {**changed["spec"], "deletionPolicy": "Retain"}
    end_list = Cache.end_list

    def keep(self: Cache, kind: Any, began: int, manifests: list[Manifest], namespaces: Any) -> set[ResourceKey]:
        listed.extend(manifests)
        return end_list(self, kind, began, manifests, namespaces)

    monkeypatch.setattr(Cache, "end_list", keep)
    kept = [found(world.controller.cache, number) for number in range(3)]
    await world.controller.list_all(world.api, ())
    assert [it is known for it, known in zip(listed, kept, strict=True)] == [True, True, False]
    assert cast(Any, found(world.controller.cache, 2))["spec"]["deletionPolicy"] == "Retain"


async def test_a_list_holds_no_such_records_either(monkeypatch: pytest.MonkeyPatch) -> None:
    world, listed = World(), list[Manifest]()
    world.api.objects["Subscription", "shop", "billing-1"] = as_stored(1)

    def end_list(self: Cache, kind: str, began: int, manifests: list[Manifest], namespaces: object) -> set[ResourceKey]:
        listed.extend(manifests)
        return set()

    monkeypatch.setattr(Cache, "end_list", end_list)
    await world.controller.list_all(world.api, ())
    assert ["managedFields" in cast(Any, it["metadata"]) for it in listed] == [False]


def sizes(owner: Any) -> dict[str, int]:
    """How many things each dict, set and list of an object has."""
    values = {field.name: getattr(owner, field.name) for field in dataclasses.fields(owner)}
    return {name: len(it) for name, it in values.items() if isinstance(it, Sized) and not isinstance(it, str | tuple)}


def part(owner: object, name: str) -> Any:
    """What an object has under this name."""
    return getattr(owner, name)


async def test_nothing_is_kept_of_what_is_gone() -> None:
    world = World()
    for manifest in (
        resource("Broker", "main"),
        resource("Exchange", "orders"),
        *(resource("Subscription", f"s{number}") for number in range(20)),
        resource("Subscription", "unreadable", fromTheFuture=1),
    ):
        world.api.user_applies(manifest)
    await world.calm_down()
    for name in ("s1", "s2"):
        del world.api.objects["Subscription", "shop", name]
    await world.controller.list_all(world.api, ())
    await world.collector.run()
    assert sizes(world.collector) == {"findings": 1, "_missing_since": 1}
    for kind, name in [(key[0], key[2]) for key in world.api.objects]:
        if kind in ("Subscription", "Exchange", "Broker"):
            world.api.objects.pop((kind, "shop", name))
    await world.calm_down()
    await world.collector.run()
    assert sizes(world.collector) == {"findings": 0, "_missing_since": 0}
    assert sizes(world.reconciler.brokers) == {"findings": 0}
    assert sizes(world.reconciler.brokers.shared_lag) == {"_offers": 0}
    assert sizes(world.reconciler.paced) == {"_waiting": 0}
    assert sizes(world.reconciler.bindings) == {"_waiting": 0}
    assert world.sessions.open == {}
    assert sizes(world.controller) == {"queue": 0, "started": 0}
    assert sizes(world.controller.children) == {"_seen": 0, "_applied": 0, "_of": 0, "_changed": 0, "_kept": 0}
    kept = {"_removed", "_listed_until"}
    assert {name: size for name, size in sizes(world.controller.cache).items() if name not in kept} == {
        "_entries": 0,
        "_unreadable": 0,
    }
    assert sizes(part(world.controller.cache, "_index")) == {"_by_broker": 0, "_by_exchange": 0, "_by_entity": 0}
    assert sizes(world.controller.queue) == {"_waiting": 0, "_delayed": 0, "_ready": 0, "_working": 0, "_failures": 0}


async def test_a_broker_that_is_gone_is_forgotten_at_once() -> None:
    world = World()
    world.api.user_applies(resource("Broker", "main"))
    await world.calm_down()
    assert MAIN in world.reconciler.brokers.findings
    world.api.user_deletes("Broker", "shop", "main")
    world.tell(len(world.api.events))
    await world.reconcile_next(10)
    assert world.reconciler.brokers.findings == {}


async def test_what_the_cluster_removes_after_its_broker_leaves_nothing() -> None:
    world = World()
    world.api.user_applies(resource("Broker", "main"))
    await world.calm_down()
    children = [copy.deepcopy(it) for key, it in world.api.objects.items() if key[0] in LISTED]
    assert children
    world.api.user_deletes("Broker", "shop", "main")
    world.tell(len(world.api.events))
    await world.reconcile_next(10)
    for child in children:
        world.controller.child_changed(child, is_deleted=True)
    assert sizes(world.controller.children) == {"_seen": 0, "_applied": 0, "_of": 0, "_changed": 0, "_kept": 0}


def test_the_lag_of_what_is_gone_is_forgotten() -> None:
    cache, api = Cache(), ApiServerInMemory()
    for manifest in (resource("Broker", "main"), resource("Subscription", "billing")):
        api.user_applies(manifest)
    reader = LagReader(api, cache, cast(aiohttp.ClientSession, None), {}, lambda: NOW, lambda key: None, lambda: False)

    async def look() -> None:
        task = asyncio.create_task(reader.run(10))
        for manifest in api.objects.values():
            cache.put(manifest)
        await asyncio.sleep(25)
        assert sizes(reader)["_readings"] == 1
        for key in cache.all():
            cache.remove(key)
        await asyncio.sleep(25)
        task.cancel()

    run_in_virtual_time(look())
    assert sizes(reader) == {"findings": 0, "_readings": 0, "_logged": 0}
    assert sizes(reader.writer) == {"_updates": 0, "_writes": 0, "_writing": 0}
