"""Bindings: decision 6 ("compared after parsing") and the default keys of "Addresses"."""

from __future__ import annotations

import pytest

from penstock_core.binding import (
    Binding,
    Filter,
    binding_declared,
    check_binding,
    check_keys,
    default_keys,
    keys_asked,
)
from penstock_core.header_bindings import HeaderMatch, header_binding
from penstock_core.reason import Reason, Refuse
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
        Binding("x", frozenset({"a"}), headers=frozenset({header_binding(HeaderMatch.ALL, {"h": 1})})),
    ],
)
def test_decision_06_another_exchange_key_or_filter_is_different(other: Binding) -> None:
    assert Binding("x", frozenset({"a"})) != other


@pytest.mark.parametrize("text", ["a NOT IN ('x')", "a = 1 AND a NOT BETWEEN 1 AND 2", "a NOT LIKE 'x%'"])
def test_decision_06_what_an_older_release_stored_as_the_same_selector_is_no_change(text: str) -> None:
    # releases up to 0.1 stored NOT (a IN ('x')) as a NOT IN ('x')
    head, _, predicate = text.rpartition(" AND a NOT") if " AND a NOT" in text else ("", "", "")
    asked = "NOT a" + text.split("a NOT", 1)[1]
    if head:
        asked = f"{head} AND NOT a{predicate}"
    stored = Binding("x", frozenset({"k"}), Filter(text))
    assert Binding("x", frozenset({"k"}), Filter(asked)).means(stored)
    assert not Binding("x", frozenset({"j"}), Filter(asked)).means(stored)
    assert not Binding("x", frozenset({"k"}), Filter("a = 2")).means(stored)
    assert not Binding("x", frozenset({"k"}), Filter(asked, no_local=True)).means(stored)
    assert not Binding("x", frozenset({"k"})).means(stored)


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


TOPIC, DIRECT, FANOUT, HEADERS = ExchangeType
NONE: set[str] = set()


# type, key of the address, exact keys, patterns -> binding keys
@pytest.mark.parametrize(
    ("exchange_type", "key", "exact", "patterns", "keys"),
    [
        (TOPIC, None, NONE, NONE, None),
        (TOPIC, "a", NONE, NONE, {"a"}),
        (TOPIC, None, NONE, {"eu.#", "us.*"}, {"eu.#", "us.*"}),
        (TOPIC, "a", NONE, {"eu.#"}, {"a", "eu.#"}),
        (TOPIC, None, {"a.b"}, NONE, {"a.b"}),
        (TOPIC, None, {"a.*"}, NONE, None),  # there it would be a pattern
        (TOPIC, None, {"a*"}, NONE, {"a*"}),
        (DIRECT, None, {"a.*", "b"}, NONE, {"a.*", "b"}),
        (DIRECT, None, NONE, {"eu.#"}, None),
        (DIRECT, None, NONE, {"eu"}, {"eu"}),
        (FANOUT, None, {"a"}, {"b"}, None),
        (FANOUT, "k", NONE, NONE, {"k"}),
        (HEADERS, None, {"a"}, {"b"}, None),
    ],
)
def test_keys_that_an_attach_names(
    exchange_type: ExchangeType, key: str | None, exact: set[str], patterns: set[str], keys: set[str] | None
) -> None:
    assert keys_asked(exchange_type, key, exact, patterns) == (None if keys is None else frozenset(keys))


NO_KEYS: frozenset[str] = frozenset()
TESTED = frozenset({header_binding(HeaderMatch.ALL, {"h": 1})})


def test_a_declaration_names_what_its_exchange_goes_by() -> None:
    assert binding_declared("x", TOPIC, NO_KEYS, frozenset(), Filter()) == Binding("x", frozenset({"#"}))
    assert binding_declared("x", DIRECT, frozenset({"a"}), frozenset(), Filter()) == Binding("x", frozenset({"a"}))
    declared = Binding("x", frozenset({""}), headers=TESTED)
    assert binding_declared("x", HEADERS, NO_KEYS, TESTED, Filter()) == declared
    for refused in (
        binding_declared("x", HEADERS, frozenset({"a"}), TESTED, Filter()),
        binding_declared("x", TOPIC, frozenset({"a"}), TESTED, Filter()),
    ):
        assert isinstance(refused, Refuse)
        assert refused.reason is Reason.INVALID_BINDING_KEY


def test_both_halves_of_a_binding_are_checked() -> None:
    assert check_binding(Binding("x", frozenset({"a"}), headers=TESTED)) is None
    assert check_binding(Binding("x", NO_KEYS)) is not None
    long = frozenset({header_binding(HeaderMatch.ALL, {"h" * 256: 1})})
    assert check_binding(Binding("x", frozenset({""}), headers=long)) is not None
