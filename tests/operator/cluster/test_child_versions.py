"""What of the children is in force, and whose change it is that a list or a watch shows."""

from __future__ import annotations

from typing import Any

from penstock_operator.cluster.cache import ResourceKey
from penstock_operator.cluster.child_versions import ChildVersions

ORDERS = ResourceKey("Exchange", "shop", "orders")
WANTED: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {
        "name": "orders-x",
        "namespace": "shop",
        "labels": {"app.kubernetes.io/managed-by": "penstock-operator", "penstock.dev/broker": "main"},
        "ownerReferences": [{"kind": "Exchange", "name": "orders", "uid": "u1", "controller": True}],
    },
    "spec": {"selector": {"a": "b"}, "ports": [{"port": 5671}]},
}


def kept(version: str, **changes: Any) -> dict[str, Any]:
    """The object as the API server keeps it: with its defaults, a version and a status."""
    about = {**WANTED["metadata"], "resourceVersion": version, "uid": "s1", "managedFields": [{"time": version}]}
    spec = {**WANTED["spec"], "clusterIP": "10.0.0.1", "sessionAffinity": "None"}
    return {**WANTED, "metadata": about, "spec": spec, "status": {"seen": version}, **changes}


def applied() -> ChildVersions:
    made = ChildVersions()
    made.note_applied(WANTED, kept("7"), 0)
    return made


def test_what_was_applied_is_in_force_and_no_news() -> None:
    made = applied()
    assert made.is_in_force(WANTED, 1e9)
    assert made.see(kept("7")) is None
    assert made.is_in_force(WANTED, 1e9)


def test_what_was_never_applied_is_not_in_force_and_its_owner_looks() -> None:
    made = ChildVersions()
    assert not made.is_in_force(WANTED, 0)
    assert made.see(kept("7")) == ORDERS
    assert made.see(kept("7")) is None, "once"
    assert not made.confirm(WANTED, kept("7"), 0), "it is not known what was wanted then"


def test_a_list_that_was_made_before_is_corrected_by_the_next() -> None:
    made = applied()
    assert made.see(kept("5")) == ORDERS
    assert not made.is_in_force(WANTED, 1)
    assert made.see(kept("7")) is None
    assert made.is_in_force(WANTED, 1)


def test_another_manifest_is_not_in_force() -> None:
    made = applied()
    other: dict[str, Any] = {**WANTED, "spec": {**WANTED["spec"], "ports": [{"port": 5672}]}}
    assert not made.is_in_force(other, 1)
    assert not made.confirm(other, kept("7"), 1)


def test_somebody_else_s_change_is_told_to_the_owner_and_is_to_be_taken_back() -> None:
    made = applied()
    changed = kept("9", spec={**kept("9")["spec"], "selector": {"a": "c"}})
    assert made.see(changed) == ORDERS
    assert not made.is_in_force(WANTED, 1)
    assert not made.confirm(WANTED, changed, 1)


def test_a_field_that_somebody_adds_is_a_change_once() -> None:
    made = applied()
    added = kept("9")
    added["metadata"]["annotations"] = {"cloud": "x"}
    assert made.see(added) == ORDERS
    assert not made.confirm(WANTED, added, 1)
    made.note_applied(WANTED, added, 1)
    assert made.is_in_force(WANTED, 2)


def test_a_change_of_status_is_looked_at_and_nothing_is_applied() -> None:
    made = applied()
    assert made.see(kept("9")) == ORDERS
    assert made.confirm(WANTED, kept("9"), 1)
    assert made.is_in_force(WANTED, 2)
    assert made.see(kept("9")) is None


def test_what_is_missing_in_a_complete_list_is_told_to_its_owner() -> None:
    made = applied()
    assert made.end_list("ConfigMap", None, []) == set(), "of another kind"
    assert made.end_list("Service", "bank", []) == set(), "of another namespace"
    assert made.end_list("Service", "shop", [kept("7")]) == set()
    assert made.end_list("Service", "shop", []) == {ORDERS}
    assert not made.is_in_force(WANTED, 1)
    assert made.end_list("Service", "shop", []) == set(), "once"


def test_a_deletion_that_a_watch_shows_is_told_to_the_owner() -> None:
    made = applied()
    assert made.see_gone(kept("7")) == ORDERS
    assert not made.is_in_force(WANTED, 1)


def test_without_a_controller_the_label_names_the_owner() -> None:
    """As after a restore, or a deletion with --cascade=orphan."""
    lone = kept("7")
    del lone["metadata"]["ownerReferences"]
    assert ChildVersions().see(lone) == ResourceKey("Broker", "shop", "main")
    del lone["metadata"]["labels"]
    assert ChildVersions().see(lone) is None


def test_a_child_in_another_namespace_names_that_of_its_broker() -> None:
    """The CA of a Broker in the namespace of a resource that uses it: the resource owns it, and controls nothing."""
    labels = {"penstock.dev/broker": "main", "penstock.dev/broker-namespace": "hub"}
    owner = {"kind": "Exchange", "name": "orders", "uid": "u1"}
    about = {"name": "hub.main-ca", "namespace": "shop", "resourceVersion": "3", "labels": labels}
    trust: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**about, "ownerReferences": [owner]}}
    assert ChildVersions().see(trust) == ResourceKey("Broker", "hub", "main")


def test_a_child_that_may_not_be_listed_is_read_again_after_a_while() -> None:
    secret: dict[str, Any] = {**WANTED, "kind": "Secret"}
    made = ChildVersions()
    made.note_applied(secret, {**kept("7"), "kind": "Secret"}, 0)
    assert made.is_in_force(secret, 1800)
    assert not made.is_in_force(secret, 5400)
    assert made.confirm(secret, {**kept("9"), "kind": "Secret"}, 5400)
    assert made.is_in_force(secret, 5400 + 1800)
    assert not made.is_in_force(secret, 5399), "the clock was set back: nobody knows how long ago that was"


def test_of_an_owner_that_is_gone_nothing_is_kept() -> None:
    made = applied()
    made.note_applied({**WANTED, "kind": "Secret"}, {**kept("8"), "kind": "Secret"}, 0)  # no list shows that it is gone
    made.forget(ORDERS)
    made.end_list("Service", None, [])
    assert made == ChildVersions()
