"""The models of the kinds: what they refuse, which defaults they set, and how they read sizes."""

from __future__ import annotations

import copy

import pytest
from support.resources import GOOD, Bad, bad_manifests, broker, queue, subscription

from penstock_api.declaration import queue_name
from penstock_api.resources import Broker, Exchange, InvalidManifest, Subscription, load, parse, quantity_bytes


@pytest.mark.parametrize("bad", [pytest.param(bad, id=bad.name) for bad in bad_manifests()])
def test_every_bad_manifest_is_refused(bad: Bad) -> None:
    with pytest.raises(InvalidManifest) as refused:
        parse(bad.manifest)
    assert bad.says in str(refused.value)


@pytest.mark.parametrize("kind", GOOD)
def test_the_manifests_under_the_bad_ones_are_good(kind: str) -> None:
    assert parse(GOOD[kind]).kind == kind


def test_a_broker_without_more_than_it_needs() -> None:
    spec = broker().spec
    assert (spec.replicas, spec.image, spec.storage.size, spec.storage.ledger_size) == (1, None, "10Gi", "2Gi")
    assert (spec.listeners.amqps, spec.listeners.amqp) == (True, False)
    assert (spec.lag_analysis.backend, spec.lag_analysis.interval_minutes) == ("Auto", 5)


def test_a_subscription_without_more_than_it_needs() -> None:
    spec = subscription().spec
    assert (spec.scope, spec.sharing, spec.durability, spec.expiry_policy) == ("Global", "Shared", "Durable", "Never")
    assert (spec.rebind_policy, spec.deletion_policy, spec.client_overrides) == ("InPlace", "Delete", "Refuse")
    assert (spec.persistence, spec.limits.overflow, spec.binding_keys) == ("Always", "Reject", ())


def test_a_queue_without_more_than_it_needs() -> None:
    spec = queue().spec
    assert (spec.queue_name, spec.durability, spec.persistence) == (None, "Durable", "Always")
    assert (spec.deletion_policy, spec.limits.overflow, spec.limits.max_bytes) == ("Delete", "Reject", None)


def test_a_refusal_names_the_field_and_the_resource() -> None:
    manifest = copy.deepcopy(GOOD["Subscription"])
    manifest["spec"]["limits"] = {"overflow": "Ignore"}
    with pytest.raises(InvalidManifest, match=r"^Subscription billing: spec\.limits\.overflow: "):
        parse(manifest)


def test_the_longest_name_of_a_queue_fits_into_every_status() -> None:
    """Client-id and name have up to 255 characters, of which the name of the queue writes each as up to twelve."""
    made = subscription(
        subscriptionName="\U00010348" * 255,
        scope="Container",
        clientId="\U00010348" * 255,
        sharing="Shared",
        durability="NonDurable",
        expiryPolicy="LinkDetach",
    )
    name = queue_name(made)
    assert len(name) > 6_000
    assert subscription(status={"queueName": name}).status.queue_name == name
    orphan = {"kind": "Subscription", "name": name, "resource": "shop/billing", "reason": "Retain"}
    assert broker(status={"orphans": [orphan]}).status.orphans[0].name == name


def test_unknown_fields_of_a_status_are_passed_over() -> None:
    later: dict[str, object] = {"observedGeneration": 2, "conditions": [], "somethingNew": {"a": 1}}
    assert subscription(status=later).status.observed_generation == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("1k", 1_000),
        ("1Ki", 1_024),
        ("10Gi", 10_737_418_240),
        ("1.5Gi", 1_610_612_736),
        ("0.5", 1),
        ("1500m", 2),
        ("1e3", 1_000),
        ("2E", 2_000_000_000_000_000_000),
        (".5Ki", 512),
    ],
)
def test_sizes_are_read_as_kubernetes_reads_them(text: str, expected: int) -> None:
    assert quantity_bytes(text) == expected


@pytest.mark.parametrize("text", ["8Ei", "10E", "1e30", "1e999999", "1e1000000", "1E99999999999", "9" * 32])
def test_sizes_end_where_those_of_kubernetes_end(text: str) -> None:
    assert quantity_bytes(text) == 2**63 - 1
    assert quantity_bytes(f"-{text}") == 1 - 2**63


@pytest.mark.parametrize("text", ["1e-30", "1e-1000000", "1e-99999999999"])
def test_less_than_a_byte_is_a_byte(text: str) -> None:
    assert quantity_bytes(text) == 1


@pytest.mark.parametrize("text", ["", "1 Gi", "1gi", "Gi", "1GiB", "0x10", "1e", "--1"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity_bytes(text)


def test_a_file_gives_its_resources_in_order_and_passes_over_others() -> None:
    text = """
apiVersion: penstock.dev/v1alpha1
kind: Subscription
metadata: {name: s}
spec: {brokerRef: {name: b}, exchangeRef: {name: e}}
---
apiVersion: v1
kind: Secret
metadata: {name: users}
---
---
apiVersion: penstock.dev/v1alpha1
kind: Exchange
metadata: {name: e, namespace: shop}
spec: {brokerRef: {name: b}}
---
apiVersion: penstock.dev/v1alpha1
kind: Broker
metadata: {name: b}
spec: {authentication: {anonymous: true}}
"""
    found = list(load(text))
    assert [type(resource) for resource in found] == [Subscription, Exchange, Broker]
    assert [resource.key for resource in found] == ["default/s", "shop/e", "default/b"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not YAML"),
        ("- a\n- b\n", "a manifest is a map"),
        ("apiVersion: penstock.dev/v1alpha1\nkind: Topic\nmetadata: {name: q}\nspec: {}\n", "Topic q"),
        ("apiVersion: penstock.dev/v9\nkind: Broker\nmetadata: {name: q}\nspec: {}\n", "apiVersion"),
    ],
)
def test_a_file_that_can_t_be_read_says_why(text: str, says: str) -> None:
    with pytest.raises(InvalidManifest, match=says):
        list(load(text))
