"""The cluster as an issuer of tokens: what is read from the API server, and what the pods get."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.resources import broker

from penstock_operator.children.cluster_issuer import ClusterIssuer, config_map, is_wanted, read
from penstock_operator.children.stateful_set import broker_stateful_set, pin
from penstock_operator.manifest import dig, text_at

# As an API server answers; the moduli are shortened.
DISCOVERY: dict[str, Any] = {
    "issuer": "https://kubernetes.default.svc.cluster.local",
    "jwks_uri": "https://10.0.0.1:6443/openid/v1/jwks",
    "response_types_supported": ["id_token"],
    "subject_types_supported": ["public"],
    "id_token_signing_alg_values_supported": ["RS256"],
}
OLD = {"use": "sig", "kty": "RSA", "kid": "b", "alg": "RS256", "n": "sEr", "e": "AQAB"}
NEW = {"use": "sig", "kty": "RSA", "kid": "a", "alg": "RS256", "n": "xRt", "e": "AQAB"}
TOKENS = {"tokens": [{"issuer": "https://login", "keysConfigMapRef": {"name": "login"}}, {"issuer": "Cluster"}]}


def test_issuer_and_keys_are_read() -> None:
    found = read(DISCOVERY, {"keys": [OLD, NEW]})
    assert found is not None
    assert found.issuer == "https://kubernetes.default.svc.cluster.local"
    assert json.loads(found.keys) == {"keys": [NEW, OLD]}


def test_the_order_of_keys_is_no_change() -> None:
    assert read(DISCOVERY, {"keys": [OLD, NEW]}) == read(DISCOVERY, {"keys": [NEW, OLD]})


@pytest.mark.parametrize(
    ("discovery", "keys"),
    [
        (None, {"keys": [OLD]}),
        (DISCOVERY, None),
        (DISCOVERY, {"keys": []}),
        (DISCOVERY, {"keys": "none"}),
        ({"issuer": ""}, {"keys": [OLD]}),
        ({}, {}),
    ],
)
def test_what_is_of_no_use_is_no_issuer(discovery: Any, keys: Any) -> None:
    assert read(discovery, keys) is None


def test_it_is_asked_for_only_where_it_is_wanted() -> None:
    assert is_wanted(broker(authentication=TOKENS))
    assert not is_wanted(broker(authentication={"tokens": TOKENS["tokens"][:1]}))


def test_the_pods_mount_its_keys_beside_those_of_others() -> None:
    made = broker(authentication=TOKENS)
    stateful_set, config = broker_stateful_set(made, pin(made, None, "image:1"), "https://cluster")
    volumes = dig(stateful_set, "spec", "template", "spec", "volumes")
    assert isinstance(volumes, list)
    assert volumes[-2:] == [
        {"name": "token-keys-0", "configMap": {"name": "login"}},
        {"name": "token-keys-1", "configMap": {"name": "main-issuer"}},
    ]
    assert "issuer: https://cluster" in (text_at(config, "data", "broker.yaml") or "")
    keys = config_map(made, ClusterIssuer("https://cluster", '{"keys": []}'))
    assert text_at(keys, "metadata", "name") == "main-issuer"
    assert keys["data"] == {"issuer": "https://cluster", "keys": '{"keys": []}'}


def test_new_keys_roll_no_pod_and_another_issuer_does() -> None:
    made = broker(authentication=TOKENS)
    pinned = pin(made, None, "image:1")
    one, other = (broker_stateful_set(made, pinned, it)[0] for it in ("https://one", "https://other"))
    assert one == broker_stateful_set(made, pinned, "https://one")[0]
    assert one != other
