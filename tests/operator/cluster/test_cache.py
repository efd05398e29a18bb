"""The cache: a list is the truth, except about what changed while it was made; look-ups see every change at once."""

from __future__ import annotations

from typing import Any

import pytest
from support.resources import manifest_of

from penstock_operator.cluster.cache import Cache, ResourceChange, ResourceKey

BROKER = ResourceKey("Broker", "shop", "main")
ORDERS = ResourceKey("Exchange", "shop", "orders")
BILLING = ResourceKey("Subscription", "shop", "billing")


def made(kind: str, version: int = 1, metadata: dict[str, Any] | None = None, **spec: Any) -> Any:
    return manifest_of(kind, spec, None, {"resourceVersion": str(version), **(metadata or {})})


@pytest.fixture
def cache() -> Cache:
    filled = Cache()
    for kind in ("Broker", "Exchange", "Subscription"):
        filled.put(made(kind))
    return filled


def test_a_new_one_and_a_new_spec_are_work_a_new_status_is_not(cache: Cache) -> None:
    assert Cache().put(made("Broker")) is ResourceChange.SPEC
    assert cache.put(made("Broker")) is ResourceChange.NOTHING
    assert cache.put({**made("Broker", 2), "status": {"epoch": 3}}) is ResourceChange.STATUS
    assert cache.put(made("Broker", 3, {"generation": 4})) is ResourceChange.SPEC
    assert cache.put(made("Broker", 4, {"generation": 4, "annotations": {"a": "b"}})) is ResourceChange.SPEC


def test_a_finalizer_that_somebody_takes_away_is_work(cache: Cache) -> None:
    """Without it a deletion would not be seen before the resource is gone."""
    cache.put(made("Exchange", 2, {"finalizers": ["penstock.dev/topology"]}))
    assert cache.put(made("Exchange", 3)) is ResourceChange.SPEC
    assert cache.put(made("Exchange", 4)) is ResourceChange.STATUS


def test_what_a_list_lacks_is_gone(cache: Cache) -> None:
    assert cache.end_list("Subscription", cache.begin_list(), [], ()) == {BILLING}
    assert cache.get(BILLING) is None
    assert cache.get(ORDERS) is not None


def test_what_came_while_a_list_was_made_stays(cache: Cache) -> None:
    began = cache.begin_list()
    late = made("Subscription", 5, {"name": "late"})
    cache.put(late)
    assert cache.end_list("Subscription", began, [made("Subscription")], ()) == set()
    assert cache.get(ResourceKey("Subscription", "shop", "late")) is not None


def test_what_changed_while_a_list_was_made_is_newer_than_the_list(cache: Cache) -> None:
    began = cache.begin_list()
    cache.put(made("Subscription", 6, {"generation": 9}))
    cache.end_list("Subscription", began, [made("Subscription")], ())
    entry = cache.get(BILLING)
    assert entry is not None
    assert entry.version.resource_version == "6"


def test_what_went_while_a_list_was_made_does_not_come_back(cache: Cache) -> None:
    began = cache.begin_list()
    cache.remove(BILLING)
    assert cache.end_list("Subscription", began, [made("Subscription")], ()) == set()
    assert cache.get(BILLING) is None
    assert cache.end_list("Subscription", cache.begin_list(), [made("Subscription", 9)], ()) == {BILLING}


def test_a_list_of_some_namespaces_says_nothing_about_others(cache: Cache) -> None:
    assert cache.end_list("Subscription", cache.begin_list(), [], ["elsewhere"]) == set()
    assert cache.get(BILLING) is not None


def test_dependents_follow_the_references(cache: Cache) -> None:
    assert cache.dependents(BROKER) == [ORDERS, BILLING]
    assert cache.dependents(ORDERS) == [BILLING]
    cache.put(made("Subscription", 2, {"generation": 4}, exchangeRef={"name": "other"}))
    assert cache.dependents(ORDERS) == []
    assert cache.dependents(ResourceKey("Exchange", "shop", "other")) == [BILLING]
    cache.remove(BILLING)
    assert cache.dependents(BROKER) == [ORDERS]


def test_an_exchange_depends_on_its_alternate(cache: Cache) -> None:
    alternate = {"unroutable": "Alternate", "alternateExchangeRef": {"name": "rest"}}
    cache.put(made("Exchange", 2, {"generation": 4}, **alternate))
    assert cache.dependents(ResourceKey("Exchange", "shop", "rest")) == [ORDERS]


def test_the_older_one_has_the_identity_until_it_is_gone(cache: Cache) -> None:
    older = made("Subscription", 2, {"name": "older", "uid": "o", "creationTimestamp": "2026-01-01T00:00:00Z"})
    cache.put({**older, "spec": {**older["spec"], "subscriptionName": "billing"}})
    younger = made("Subscription", 3, {"creationTimestamp": "2026-01-02T00:00:00Z", "generation": 4})
    cache.put(younger)
    winner = cache.oldest_subscription(BILLING)
    assert winner is not None
    assert winner.metadata.name == "older"
    assert cache.affected(ResourceKey("Subscription", "shop", "older")) == {BILLING}
    cache.remove(ResourceKey("Subscription", "shop", "older"))
    winner = cache.oldest_subscription(BILLING)
    assert winner is not None
    assert winner.metadata.name == "billing"


def test_one_that_may_not_use_the_broker_does_not_win(cache: Cache) -> None:
    stranger = made("Subscription", 2, {"namespace": "away", "uid": "s", "creationTimestamp": "2020-01-01T00:00:00Z"})
    stranger["spec"]["brokerRef"] = {"name": "main", "namespace": "shop"}
    cache.put(stranger)
    winner = cache.oldest_subscription(BILLING)
    assert winner is not None
    assert winner.metadata.namespace == "shop"


def test_a_queue_is_found_by_its_broker_and_by_its_name(cache: Cache) -> None:
    """A Subscription whose resource has the same name declares something else."""
    invoices = ResourceKey("Queue", "shop", "invoices")
    cache.put(made("Queue", 2, {"creationTimestamp": "2026-01-02T00:00:00Z"}))
    twin = made("Queue", 3, {"name": "twin", "uid": "t", "creationTimestamp": "2026-01-01T00:00:00Z"})
    cache.put({**twin, "spec": {**twin["spec"], "queueName": "invoices"}})
    cache.put(made("Subscription", 4, {"name": "invoices"}))
    assert invoices in cache.dependents(BROKER)
    assert cache.declaring_same_entity(invoices) == [invoices, ResourceKey("Queue", "shop", "twin")]
    winner = cache.oldest_queue(invoices)
    assert winner is not None
    assert winner.metadata.name == "twin"
    assert sorted(it.metadata.name for it in cache.queues_of(BROKER)) == ["invoices", "twin"]
    assert sorted((it.kind, it.metadata.name) for it in cache.holdings_of(BROKER)) == [
        ("Queue", "invoices"),
        ("Queue", "twin"),
        ("Subscription", "billing"),
        ("Subscription", "invoices"),
    ]
    cache.put(made("Queue", 5, {"generation": 4}, fromTheFuture=1))
    assert cache.unreadable(BROKER) == {invoices}
    cache.remove(invoices)
    assert [it.metadata.name for it in cache.queues_of(BROKER)] == ["twin"]


def test_an_exchange_that_is_being_deleted_hears_of_its_subscriptions(cache: Cache) -> None:
    assert cache.affected(BILLING) == set()
    cache.put(made("Exchange", 2, {"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    assert cache.affected(BILLING) == {ORDERS}


def test_what_can_t_be_read_is_kept_with_its_problem(cache: Cache) -> None:
    cache.put(made("Subscription", 2, {"generation": 4}, fromTheFuture=1))
    entry = cache.get(BILLING)
    assert entry is not None
    assert entry.resource is None
    assert "fromTheFuture" in entry.problem
    assert cache.dependents(ORDERS) == [BILLING]
    assert cache.dependents(BROKER) == [ORDERS, BILLING]
    assert cache.declaring_same_entity(BILLING) == [BILLING]
    assert cache.is_unreadable(BILLING)


def test_what_can_t_be_read_concerns_the_broker_that_it_names_or_may_name(cache: Cache) -> None:
    other = ResourceKey("Broker", "shop", "other")
    assert cache.unreadable(BROKER) == set()
    cache.put(made("Subscription", 2, {"generation": 4}, fromTheFuture=1))
    assert cache.unreadable(BROKER) == {BILLING}
    assert cache.unreadable(other) == set()
    cache.put(made("Subscription", 3, {"generation": 5}, brokerRef={"selector": "any"}))
    assert cache.unreadable(other) == {BILLING}
    cache.put(made("Broker", 4, {"generation": 4}, fromTheFuture=1))
    assert (cache.unreadable(BROKER), cache.unreadable(other)) == ({BILLING, BROKER}, {BILLING})
    cache.put(made("Subscription", 5, {"generation": 6}))
    cache.put(made("Broker", 6, {"generation": 5}))
    assert cache.unreadable(BROKER) == set()


def test_a_resource_that_can_t_be_read_and_goes_is_not_remembered(cache: Cache) -> None:
    cache.put(made("Subscription", 2, {"generation": 4}, fromTheFuture=1))
    cache.remove(BILLING)
    assert cache.unreadable(BROKER) == set()
