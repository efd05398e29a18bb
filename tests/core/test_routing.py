"""Routing against hand-typed cases and, by Hypothesis, against a naive matcher."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_core.routing import MEMO_KEYS, ROUTABLE_KEY_LENGTH, Router
from penstock_core.terms import ExchangeType

WORDS = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=6).map(".".join)
KEYS = WORDS | st.text(alphabet="ab.*#", max_size=8)


def naive(pattern: list[str], words: list[str]) -> bool:
    """The definition: `*` is one word, `#` zero or more."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(naive(pattern[1:], words[skip:]) for skip in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and naive(pattern[1:], words[1:])


def split(key: str) -> list[str]:
    return key.split(".") if key else []


def topic(*patterns: str) -> Router[str]:
    router: Router[str] = Router(ExchangeType.TOPIC)
    for pattern in patterns:
        router.bind(pattern, frozenset({pattern}))
    return router


@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [
        ("#", "", True),
        ("#", "a", True),
        ("#", "a.b.c", True),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("a.#", "b.a", False),
        ("#.c", "c", True),
        ("#.c", "a.b.c", True),
        ("#.c", "a.b.c.d", False),
        ("a.#.c", "a.c", True),
        ("a.#.c", "a.b.b.c", True),
        ("*", "a", True),
        ("*", "", False),
        ("*", "a.b", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*.c", "a.b.c", True),
        ("#.*", "", False),
        ("#.*", "a.b", True),
        ("a.*", "a.", True),
        ("a", "a", True),
        ("a", "ab", False),
        ("ab*", "abc", False),
        ("", "", True),
        ("", "a", False),
        ("a.b", "a.*", False),
        ("a.b", "a.#", False),
        ("a.*", "a.*", True),
        ("#.a.#.a.#.a.#", "a.b.a.b.a", True),
    ],
)
def test_topic(pattern: str, key: str, matches: bool) -> None:
    assert topic(pattern).route(key) == ((pattern,) if matches else ())


def test_direct_matches_equal_keys() -> None:
    router: Router[str] = Router(ExchangeType.DIRECT)
    router.bind("one", frozenset({"a", "b"}))
    router.bind("two", frozenset({"a"}))
    router.bind("three", frozenset({""}))
    assert router.route("a") == ("one", "two")
    assert router.route("b") == ("one",)
    assert router.route("") == ("three",)
    assert router.route("#") == ()
    assert router.needs_key


def test_fanout_matches_everything() -> None:
    router: Router[str] = Router(ExchangeType.FANOUT)
    router.bind("one", frozenset({"a"}))
    router.bind("two", frozenset({""}))
    assert router.route("x.y") == ("one", "two")
    assert not router.needs_key


@pytest.mark.parametrize("exchange_type", [ExchangeType.TOPIC, ExchangeType.DIRECT, ExchangeType.FANOUT])
def test_a_change_of_bindings_shows_at_once(exchange_type: ExchangeType) -> None:
    router: Router[int] = Router(exchange_type)
    assert router.route("k") == ()
    router.bind(1, frozenset({"k"}))
    assert router.route("k") == (1,)
    router.bind(2, frozenset({"k", "l"}))
    assert router.route("k") == (1, 2)
    router.unbind(1)
    assert router.route("k") == (2,)
    router.unbind(1)
    router.unbind(2)
    assert router.route("k") == ()
    assert router.handles == ()


def test_rebinding_in_place_keeps_the_turn() -> None:
    router = topic("a", "b")
    router.bind("a", frozenset({"b", "c"}))
    assert router.route("b") == ("a", "b")
    assert router.route("a") == ()
    assert router.handles == ("a", "b")


def test_a_handle_with_two_matching_keys_comes_once() -> None:
    router: Router[int] = Router(ExchangeType.TOPIC)
    router.bind(1, frozenset({"#", "a.*"}))
    assert router.route("a.b") == (1,)


def test_needs_key_only_if_a_binding_is_not_catch_all() -> None:
    router = topic("#")
    assert not router.needs_key
    router.bind("other", frozenset({"a.#"}))
    assert router.needs_key
    router.unbind("other")
    assert not router.needs_key


def test_more_keys_than_the_memo_holds() -> None:
    router = topic("*.x", "#")
    for _ in range(2):
        for number in range(3 * MEMO_KEYS):
            assert router.route(f"{number}.x") == ("*.x", "#")
            assert router.route("hot.x") == ("*.x", "#")


def test_the_memo_is_bounded_and_keeps_what_is_asked_again() -> None:
    router = topic("cold", "hot", "#")
    cold, hot = router.route("cold"), router.route("hot")
    for number in range(3 * MEMO_KEYS):
        router.route(str(number))
        assert router.route("hot") is hot
    assert router.route("cold") == cold
    assert router.route("cold") is not cold, "forgotten after two generations"


def test_equal_answers_are_one_tuple() -> None:
    router = topic("a.*", "#")
    assert router.route("a.1") is router.route("a.2")


def test_a_generation_ends_by_weight_too() -> None:
    router: Router[int] = Router(ExchangeType.DIRECT)
    for number in range(400):
        router.bind(number, frozenset(str(key) for key in range(400) if key != number))
    for key in range(400):
        assert len(router.route(str(key))) == 399
    first = router.route("0")
    assert router.route("0") is first
    for key in range(1, 400):
        router.route(str(key))
    assert router.route("0") == first
    assert router.route("0") is not first, (
        "forgotten, since 400 answers of 399 handles are more than two generations hold"
    )


def test_long_keys_match_catch_all_alone() -> None:
    longest = "a" * ROUTABLE_KEY_LENGTH
    router = topic("*", "#")
    assert router.route(longest) == ("*", "#")
    assert router.route(longest + "a") == ("#",)
    assert topic("*").route(longest + "a") == ()


@settings(max_examples=300)
@given(st.lists(st.frozensets(KEYS, min_size=1, max_size=3), max_size=6), st.lists(KEYS, min_size=1, max_size=4))
def test_the_router_equals_the_naive_matcher(bindings: list[frozenset[str]], keys: list[str]) -> None:
    router: Router[int] = Router(ExchangeType.TOPIC)
    bound: dict[int, frozenset[str]] = {}
    for handle, patterns in enumerate(bindings):
        router.bind(handle, patterns)
        bound[handle] = patterns
        for key in keys:
            assert router.route(key) == expected(bound, key)
    for handle in list(bound)[::2]:
        router.unbind(handle)
        del bound[handle]
        for key in keys:
            assert router.route(key) == expected(bound, key)


def expected(bound: dict[int, frozenset[str]], key: str) -> tuple[int, ...]:
    return tuple(
        handle for handle, patterns in bound.items() if any(naive(split(each), split(key)) for each in patterns)
    )


def test_hostile_patterns_stay_linear() -> None:
    # A backtracking matcher would need more than 10**20 steps here; this one looks at each word once per live pattern.
    router = topic(".".join(["#", "a"] * 30 + ["b"]))
    assert router.route(".".join(["a"] * 200)) == ()
