"""References from raw manifests: those of a resource that can be parsed, and what is left of one that can't."""

from __future__ import annotations

from typing import Any

import pytest
from support.resources import GOOD, bad_manifests, manifest_of

from penstock_api import declaration
from penstock_api.resources import Exchange, InvalidManifest, Subscription, parse
from penstock_operator.cluster.references import References, references_of

HOME = ("shop", "main")
QUEUE = "psub:durable:global:billing"


def subscription_with(**spec: Any) -> References:
    return references_of(manifest_of("Subscription", spec, None, {}))


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        ("Broker", {}, References()),
        ("Exchange", {}, References(HOME, None, "orders")),
        ("Exchange", {"exchangeName": "Orders 2"}, References(HOME, None, "Orders 2")),
        (
            "Exchange",
            {"unroutable": "Alternate", "alternateExchangeRef": {"name": "rest"}},
            References(HOME, ("shop", "rest"), "orders"),
        ),
        ("Subscription", {}, References(HOME, ("shop", "orders"), QUEUE)),
        (
            "Subscription",
            {"brokerRef": {"name": "hub", "namespace": "infra"}, "exchangeRef": {"name": "x", "namespace": "away"}},
            References(("infra", "hub"), ("away", "x"), QUEUE),
        ),
        (
            "Subscription",
            {"scope": "Container", "clientId": "till 1", "subscriptionName": "all|of it"},
            References(HOME, ("shop", "orders"), "psub:durable:container:till%201:all%7Cof%20it"),
        ),
        (
            "Subscription",
            {"durability": "NonDurable"},
            References(HOME, ("shop", "orders"), "psub:volatile:global:billing"),
        ),
        ("Queue", {}, References(HOME, None, "invoices")),
        ("Queue", {"queueName": "Invoices 2", "fromTheFuture": 1}, References(HOME, None, "Invoices 2")),
        ("Queue", {"queueName": {"prefix": "a"}}, References(HOME, None, None)),
    ],
)
def test_they_are_what_the_manifest_says(kind: str, spec: dict[str, Any], expected: References) -> None:
    assert references_of(manifest_of(kind, spec, None, {})) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"fromTheFuture": 1}, References(HOME, ("shop", "orders"), QUEUE), id="a-new-field"),
        pytest.param({"scope": "Zone"}, References(HOME, ("shop", "orders"), None), id="a-new-scope"),
        pytest.param({"clientId": "a"}, References(HOME, ("shop", "orders"), None), id="a-new-combination"),
        pytest.param({"durability": "Mirrored"}, References(HOME, ("shop", "orders"), None), id="a-new-durability"),
        pytest.param({"durability": ["Durable"]}, References(HOME, ("shop", "orders"), None), id="another-type"),
        pytest.param({"subscriptionName": 5}, References(HOME, ("shop", "orders"), None), id="a-name-that-is-none"),
        pytest.param({"brokerRef": "main"}, References(None, ("shop", "orders"), QUEUE), id="a-reference-as-text"),
        pytest.param(
            {"brokerRef": {"name": "main", "cluster": "east"}},
            References(None, ("shop", "orders"), QUEUE),
            id="a-reference-with-a-new-field",
        ),
        pytest.param({"brokerRef": {"name": 5}}, References(None, ("shop", "orders"), QUEUE), id="a-name-as-number"),
        pytest.param(
            {"brokerRef": {"name": "main", "namespace": {}}},
            References(None, ("shop", "orders"), QUEUE),
            id="a-namespace-as-map",
        ),
        pytest.param({"exchangeRef": None}, References(HOME, None, QUEUE), id="no-exchange"),
    ],
)
def test_what_can_t_be_read_is_not_known_and_the_rest_is(spec: dict[str, Any], expected: References) -> None:
    assert subscription_with(**spec) == expected


@pytest.mark.parametrize("spec", [None, [], "text", {}])
def test_without_a_spec_the_broker_may_be_any(spec: object) -> None:
    assert references_of({**GOOD["Subscription"], "spec": spec}).broker is None
    assert references_of({"kind": "Exchange"}) == References()


@pytest.mark.parametrize("row", bad_manifests(), ids=lambda row: row.name)
def test_no_invalid_manifest_is_too_bad(row: Any) -> None:
    found = references_of(row.manifest)
    try:
        resource = parse(row.manifest)
    except InvalidManifest:
        return
    assert isinstance(resource, Exchange | Subscription)
    assert found.broker == declaration.broker_key(resource)
