"""Bindings: decision 6 ("compared after parsing") and the default keys of "Addresses"."""

from __future__ import annotations

import pytest

from penstock_core.binding import Binding, Filter, check_keys, default_keys
from penstock_core.reason import Reason
from penstock_core.terms import ExchangeType


def test_the_order_of_keys_does_not_matter() -> None:
    assert Binding("x", frozenset(["a", "b"])) == Binding("x", frozenset(["b", "a"]))


@pytest.mark.parametrize(
    "other",
    [
        Binding("y", frozenset({"a"})),
        Binding("x", frozenset({"b"})),
        Binding("x", frozenset({"a"}), Filter(selector="p = 1")),
        Binding("x", frozenset({"a"}), Filter(no_local=True)),
    ],
)
def test_decision_06_another_exchange_key_or_filter_is_different(other: Binding) -> None:
    assert Binding("x", frozenset({"a"})) != other


@pytest.mark.parametrize(
    ("exchange_type", "key"),
    [
        (ExchangeType.TOPIC, "#"),
        (ExchangeType.DIRECT, ""),
        (ExchangeType.FANOUT, ""),
        (ExchangeType.HEADERS, ""),
    ],
)
def test_no_binding_means(exchange_type: ExchangeType, key: str) -> None:
    assert default_keys(exchange_type) == frozenset({key})


def test_an_empty_filter_takes_everything() -> None:
    assert Filter().is_empty
    assert not Filter(selector="p = 1").is_empty
    assert not Filter(no_local=True).is_empty


@pytest.mark.parametrize("keys", [{""}, {"#"}, {"k" * 255}, {str(number) for number in range(256)}])
def test_keys_that_can_be_bound(keys: set[str]) -> None:
    assert check_keys(frozenset(keys)) is None


@pytest.mark.parametrize("keys", [set[str](), {"k" * 256}, {str(number) for number in range(257)}])
def test_keys_that_can_not(keys: set[str]) -> None:
    refused = check_keys(frozenset(keys))
    assert refused is not None
    assert refused.reason is Reason.INVALID_BINDING_KEY
    assert len(refused.description) < 200
