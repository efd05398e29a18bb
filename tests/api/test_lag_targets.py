"""The document that names the Brokers of one run of the lag job."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from penstock_api.lag_targets import LagTarget, LagTargets
from penstock_api.validation_messages import validation_messages

SHOP = {
    "namespace": "shop",
    "broker": "main",
    "observers": ["https://main-observer.shop.svc:8080"],
    "tokenFile": "shop.main.token",
}


def document(*brokers: dict[str, Any], **more: Any) -> str:
    return json.dumps({"version": 1, "brokers": list(brokers), **more})


def test_what_is_left_out_has_the_defaults_of_the_command() -> None:
    [target] = LagTargets.model_validate_json(document(SHOP)).brokers
    assert target == LagTarget(
        namespace="shop",
        broker="main",
        observers=("https://main-observer.shop.svc:8080",),
        token_file="shop.main.token",
        ca_file=None,
        window_seconds=300,
        stale_seconds=180,
    )


def test_keys_of_a_later_release_are_ignored() -> None:
    later = document({**SHOP, "capacity": {"cap": 8}}, rollups="hour")
    assert LagTargets.model_validate_json(later) == LagTargets.model_validate_json(document(SHOP))


def test_the_document_is_written_as_it_is_described() -> None:
    target = LagTarget(
        namespace="shop",
        broker="main",
        observers=("https://a:8080", "https://b:8080"),
        token_file="shop.main.token",
        ca_file="shop.main.crt",
        window_seconds=900,
    )
    text = LagTargets(version=1, brokers=(target,)).to_json()
    assert text == (
        '{"version":1,"brokers":[{"namespace":"shop","broker":"main","observers":["https://a:8080","https://b:8080"],'
        '"tokenFile":"shop.main.token","caFile":"shop.main.crt","windowSeconds":900,"staleSeconds":180}]}\n'
    )
    assert LagTargets.model_validate_json(text).brokers == (target,)
    plain = LagTargets(version=1, brokers=(target.model_copy(update={"ca_file": None}),)).to_json()
    assert plain == text.replace('"caFile":"shop.main.crt",', "")


def test_an_operator_without_brokers_writes_an_empty_list() -> None:
    assert LagTargets.model_validate_json(document()).brokers == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            '{"version":2,"brokers":[]}',
            "document: version 2 is not known here; this release reads version 1",
            id="version",
        ),
        pytest.param(document(SHOP, SHOP), "document: shop/main is listed twice", id="twice"),
        pytest.param(
            document({**SHOP, "observers": ["main:8080"]}),
            "brokers.0.observers.0: an observer is an http:// or https:// URL",
            id="url",
        ),
        pytest.param(
            document({key: SHOP[key] for key in SHOP if key != "tokenFile"}),
            "brokers.0.tokenFile: is required",
            id="no token",
        ),
        pytest.param(
            document({**SHOP, "observers": []}),
            "brokers.0.observers: must not be empty",
            id="no observer",
        ),
        pytest.param(
            document({**SHOP, "windowSeconds": 604_801}),
            "brokers.0.windowSeconds: must be at most 604800",
            id="window",
        ),
    ],
)
def test_a_wrong_document_is_refused_with_the_place_and_the_reason(text: str, message: str) -> None:
    with pytest.raises(ValidationError) as error:
        LagTargets.model_validate_json(text)
    assert validation_messages(error.value)[0] == message


def test_the_same_name_in_two_namespaces_is_two_brokers() -> None:
    assert len(LagTargets.model_validate_json(document(SHOP, {**SHOP, "namespace": "pay"})).brokers) == 2
