"""Bindings of a Headers exchange: comparing, checking, and which messages they match."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.header_bindings import (
    HeaderBinding,
    HeaderMatch,
    HeaderValue,
    ValueKind,
    check_headers,
    header_binding,
    ordered_bindings,
)
from penstock_core.header_routing import MEMO_COMBINATIONS, HeadersRouter
from penstock_core.reason import Reason

ALL, ANY = HeaderMatch.ALL, HeaderMatch.ANY


def routed(values: Mapping[str, object], **bindings: HeaderBinding) -> tuple[str, ...]:
    router: HeadersRouter[str] = HeadersRouter()
    for handle, binding in bindings.items():
        router.bind(handle, frozenset({binding}))
    return router.route(values)


def test_equal_by_meaning() -> None:
    assert header_binding(ALL, {"a": 1, "b": "x"}) == header_binding(ALL, {"b": "x", "a": 1.0})
    assert header_binding(ALL, {"a": 1}) == header_binding(ANY, {"a": 1})  # of one header all and any are the same
    assert header_binding(ALL, {"a": 1, "b": 2}) != header_binding(ANY, {"a": 1, "b": 2})
    assert header_binding(ALL, {"a": 1}) != header_binding(ALL, {"a": True})
    assert header_binding(ALL, {"a": 1}) != header_binding(ALL, {"a": "1"})
    assert header_binding(ALL, {"a": None}) != header_binding(ALL, {"a": ""})


def test_they_are_written_down_in_a_stable_order() -> None:
    one, two = header_binding(ANY, {"b": 1, "a": "x"}), header_binding(ALL, {"c": None})
    assert ordered_bindings({one, two}) == ordered_bindings([two, one]) == (two, one)
    assert list(one.headers.items()) == [("a", "x"), ("b", 1)]


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({f"h{number}": 1 for number in range(65)}, "A header binding has 65 headers; use at most 64."),
        ({"": 1}, "The header '' has 0 characters; use 1 to 255."),
        ({"n" * 256: 1}, f"The header {'n' * 40!r} has 256 characters; use 1 to 255."),
        ({"a": "v" * 1025}, "The value of header 'a' is longer than 1024 characters."),
    ],
)
def test_limits(headers: dict[str, HeaderValue], why: str) -> None:
    refused = check_headers({header_binding(ALL, headers)})
    assert refused is not None
    assert (refused.reason, refused.description) == (Reason.INVALID_BINDING_KEY, why)


def test_there_are_so_many_bindings_and_no_more() -> None:
    many = {header_binding(ALL, {"a": number}) for number in range(257)}
    refused = check_headers(many)
    assert refused is not None
    assert refused.description == "257 header bindings were given; name at most 256."
    assert check_headers(list(many)[:256]) is None
    assert check_headers({header_binding(ALL, {"n" * 255: "v" * 1024})}) is None


EU_BIG: dict[str, HeaderValue] = {"region": "eu", "size": 3}

# x-match, headers of the binding, properties of the message -> matched
TABLE: list[tuple[HeaderMatch, dict[str, HeaderValue], dict[str, object], bool]] = [
    (ALL, {}, {}, True),
    (ANY, {}, {"a": 1}, True),
    (ALL, EU_BIG, {"region": "eu", "size": 3, "else": 1}, True),
    (ALL, EU_BIG, {"region": "eu", "size": 4}, False),
    (ALL, EU_BIG, {"region": "eu"}, False),
    (ALL, EU_BIG, {}, False),
    (ANY, EU_BIG, {"region": "eu", "size": 4}, True),
    (ANY, EU_BIG, {"size": 3}, True),
    (ANY, EU_BIG, {"region": "us", "size": 4}, False),
    (ANY, EU_BIG, {}, False),
    (ALL, {"a": None}, {"a": 17}, True),
    (ALL, {"a": None}, {"a": None}, True),
    (ALL, {"a": None}, {"a": b"bytes"}, True),
    (ALL, {"a": None}, {"b": 17}, False),
    (ALL, {"a": None, "b": 1}, {"a": "x", "b": 1}, True),
    (ALL, {"a": None, "b": 1}, {"a": "x", "b": 2}, False),
    (ALL, {"a": None, "b": 1}, {"b": 1}, False),
    (ALL, {"a": None, "b": None}, {"a": 0, "b": 0}, True),
    (ALL, {"a": None, "b": None}, {"a": 0}, False),
    (ANY, {"a": None, "b": 1}, {"a": "x", "b": 2}, True),
    (ALL, {"n": 1}, {"n": 1.0}, True),
    (ALL, {"n": 1}, {"n": True}, False),
    (ALL, {"n": True}, {"n": True}, True),
    (ALL, {"n": 1}, {"n": "1"}, False),
    (ALL, {"n": "1"}, {"n": b"1"}, False),
]


@pytest.mark.parametrize(("match", "headers", "properties", "matched"), TABLE)
def test_what_matches(
    match: HeaderMatch, headers: dict[str, HeaderValue], properties: dict[str, object], matched: bool
) -> None:
    assert routed(properties, one=header_binding(match, headers)) == (("one",) if matched else ())


def test_no_binding_takes_everything_and_asks_for_nothing() -> None:
    router: HeadersRouter[str] = HeadersRouter()
    assert router.names == ()
    assert router.route({}) == ()
    router.bind("one", frozenset())
    assert router.names == ()
    assert router.handles == ("one",)
    assert router.route({"a": 1}) == ("one",)


def test_each_handle_comes_once_in_the_order_of_binding() -> None:
    router: HeadersRouter[str] = HeadersRouter()
    for handle in ("one", "two", "three"):
        router.bind(handle, frozenset({header_binding(ALL, {"a": 1}), header_binding(ALL, {"b": 1})}))
    router.bind("one", frozenset({header_binding(ALL, {"b": 1})}))
    assert router.names == ("a", "b")
    assert router.route({"a": 1, "b": 1}) == ("one", "two", "three")
    assert router.route({"a": 1}) == ("two", "three")
    router.unbind("two")
    router.unbind("nobody")
    assert router.route({"a": 1}) == ("three",)
    assert router.handles == ("one", "three")


def test_what_is_remembered_is_bounded_and_right() -> None:
    router: HeadersRouter[str] = HeadersRouter()
    router.bind("one", frozenset({header_binding(ALL, {"a": 5})}))
    router.bind("long", frozenset({header_binding(ALL, {"a": "v" * 300})}))
    for number in range(2 * MEMO_COMBINATIONS + 10):
        assert router.route({"a": number % 1500}) == (("one",) if number % 1500 == 5 else ())
    assert router.route({"a": "v" * 300}) == ("long",)
    assert router.route({"a": "v" * 301}) == ()
    assert len(router._memo) <= MEMO_COMBINATIONS  # pyright: ignore[reportPrivateUsage]  # the bound is inside


values = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x", "1"]) | st.just(1.0)
headers = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


def matches(binding: HeaderBinding, properties: Mapping[str, object]) -> bool:
    """The document's words, one test after the other."""
    results = [
        test.name in properties
        and (
            test.kind is ValueKind.OTHER
            or (
                properties[test.name] == test.value
                and isinstance(properties[test.name], bool) is isinstance(test.value, bool)
                and isinstance(properties[test.name], str) is isinstance(test.value, str)
            )
        )
        for test in binding.tests
    ]
    return not results or (all(results) if binding.match is ALL else any(results))


@given(
    st.lists(st.sets(st.builds(header_binding, st.sampled_from(HeaderMatch), headers), max_size=3), max_size=5),
    st.lists(headers, min_size=1, max_size=4),
)
def test_the_index_finds_what_looking_at_each_finds(
    bound: list[set[HeaderBinding]], messages: list[dict[str, HeaderValue]]
) -> None:
    router: HeadersRouter[int] = HeadersRouter()
    for handle, bindings in enumerate(bound):
        router.bind(handle, frozenset(bindings))
    for properties in (*messages, *messages):
        expected = [
            handle
            for handle, bindings in enumerate(bound)
            if not bindings or any(matches(each, properties) for each in bindings)
        ]
        assert list(router.route(properties)) == expected
