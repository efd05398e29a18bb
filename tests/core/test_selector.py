"""Which texts are selectors, in which spelling they compare, and where a bad one is wrong (JMS 2.0, 3.8.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.reason import ErrorCondition, Reason, Refuse
from penstock_core.selector import Selector, compile_selector, mean_the_same, stored_selector
from penstock_core.selector.compiled import REMEMBERED, remembered


def selector(text: str) -> Selector:
    compiled = compile_selector(text)
    assert isinstance(compiled, Selector), compiled
    return compiled


def refused(text: str) -> Refuse:
    compiled = compile_selector(text)
    assert isinstance(compiled, Refuse), compiled
    return compiled


@pytest.mark.parametrize("text", ["", " ", "\t\f\r\n"])
def test_a_blank_text_is_no_selector(text: str) -> None:
    assert compile_selector(text) is None


SAME = [
    ("color='red'", "color = 'red'"),
    ("  color\n=\t'red' ", "color = 'red'"),
    ("a=1 and b=2 oR nOt c=3", "a = 1 AND b = 2 OR NOT c = 3"),
    ("((a = 1) AND (b = 2))", "a = 1 AND b = 2"),
    ("a = 1 AND (b = 2 AND c = 3)", "a = 1 AND b = 2 AND c = 3"),
    ("a = 1 AND (b = 2 OR c = 3)", "a = 1 AND (b = 2 OR c = 3)"),
    ("(a = 1 AND b = 2) OR c = 3", "a = 1 AND b = 2 OR c = 3"),
    ("not (a = 1 or b = 2)", "NOT (a = 1 OR b = 2)"),
    ("NOT NOT a", "NOT NOT a"),
    ("a between 1 and 2", "a BETWEEN 1 AND 2"),
    ("a not between 1 and 2 and b", "a NOT BETWEEN 1 AND 2 AND b"),
    ("not (a between 1 and 2)", "NOT a BETWEEN 1 AND 2"),
    ("not a NOT LIKE 'x%'", "NOT a NOT LIKE 'x%'"),
    ("not (a in ('y', 'x'))", "NOT a IN ('x', 'y')"),
    ("a in('y','x','x')", "a IN ('x', 'y')"),
    ("a not in ('x')", "a NOT IN ('x')"),
    ("a like 'x%'", "a LIKE 'x%'"),
    ("a not like '!%_' escape '!'", "a NOT LIKE '!%_' ESCAPE '!'"),
    ("a is null", "a IS NULL"),
    ("a is not null", "a IS NOT NULL"),
    ("a = 'it''s'", "a = 'it''s'"),
    ("a = 0x1F", "a = 31"),
    ("a = 017", "a = 15"),
    ("a = 5L", "a = 5"),
    ("a = 0xFFFFFFFFFFFFFFFF", "a = -1"),
    ("a = -9223372036854775808", "a = -9223372036854775808"),
    ("a = 9223372036854775807", "a = 9223372036854775807"),
    ("a = 7E3", "a = 7000.0"),
    ("a = -57.9E2", "a = -5790.0"),
    ("a = 7.", "a = 7.0"),
    ("a = .5f", "a = 0.5"),
    ("a = 5d", "a = 5.0"),
    ("a = +62", "a = 62"),
    ("a = - - 5", "a = 5"),
    ("a = -(5)", "a = -5"),
    ("-a = +b", "-a = +b"),
    ("a - -b = 0", "a - -b = 0"),
    ("-(a + b) = 0", "-(a + b) = 0"),
    ("(a + b) * c > a + (b * c)", "(a + b) * c > a + b * c"),
    ("a - (b - c) = a - b - c", "a - (b - c) = a - b - c"),
    ("a / (b * c) <> a / b * c", "a / (b * c) <> a / b * c"),
    ("a%(b*c) <> a%b*c", "a % (b * c) <> a % b * c"),
    ("(a % b) % c + d > 0", "a % b % c + d > 0"),
    ("(a + b) % 2 = a + (b % 2)", "(a + b) % 2 = a + b % 2"),
    ("TRUE or false", "TRUE OR FALSE"),
    ("flag", "flag"),
    ("flag = TRUE", "flag = TRUE"),
    ("$a._b.c1 = 1", "$a._b.c1 = 1"),
    ("größe > 3", "größe > 3"),
    ("\"my-name\" = 1", "\"my-name\" = 1"),
    ("\"name\" = 1", "name = 1"),
    ("\"Not\" = 1", "\"Not\" = 1"),
    ("\"a\"\"b\" = 1", "\"a\"\"b\" = 1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "normal"), SAME)
def test_one_spelling_for_what_is_the_same(text: str, normal: str) -> None:
    assert selector(text).text == normal
    assert selector(normal).text == normal
    assert selector(text) == selector(normal)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a = 1", "a = 1.0"),
        ("a = 1", "a = TRUE"),
        ("a = '1'", "a = 1"),
        ("a = 1 AND b = 2", "b = 2 AND a = 1"),
        ("A = 1", "a = 1"),
        ("a = 'x'", "a = 'X'"),
        ("a - b - c = 0", "a - (b - c) = 0"),
    ],
)
def test_what_is_different(one: str, other: str) -> None:
    assert selector(one) != selector(other)


def test_only_the_named_properties_are_asked_for() -> None:
    asked: list[str] = []

    def lookup(name: str) -> object:
        asked.append(name)
        return None

    compiled = selector("b = 'x' AND a > 3 OR b = 'y' AND c.d LIKE '%'")
    assert compiled.names == ("b", "a", "c.d")
    compiled.selects(lookup)
    assert asked == ["b", "a", "c.d"]


@pytest.mark.parametrize(
    ("text", "equality"),
    [
        ("color = 'red'", ("color", "red")),
        ("('red') = color", ("color", "red")),
        ("color <> 'red'", None),
        ("color = 5", None),
        ("color = shade", None),
        ("color = 'red' AND a", None),
    ],
)
def test_pure_equality_can_be_indexed(text: str, equality: tuple[str, str] | None) -> None:
    assert selector(text).equality == equality


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a = ", 5),
        ("= 5", 1),
        ("a = 5 b", 7),
        ("a = 'abc", 5),
        ("a # 5", 3),
        ("a\n= 5 AND\n#", 11),
        ("(a = 5", 7),
        ("a = 5)", 6),
        ("a = 5abc", 6),
        ("a IN ()", 7),
        ("a IN (5)", 7),
        ("a LIKE 5", 8),
        ("a LIKE 'x' ESCAPE 'ab'", 19),
        ("a LIKE 'x' ESCAPE ''", 19),
        ("a LIKE 'x!' ESCAPE '!'", 8),
        ("a LIKE '!x' ESCAPE '!'", 8),
        ("5 LIKE 'x'", 1),
        ("a + b IN ('x')", 1),
        ("'x' IS NULL", 1),
        ("a IS 5", 6),
        ("5", 1),
        ("'x'", 1),
        ("a + b", 1),
        ("a = 1 AND 5", 11),
        ("NOT 'x'", 5),
        ("a > 'x'", 5),
        ("TRUE < a", 1),
        ("a + 'x' = 5", 5),
        ("-TRUE = a", 2),
        ("a BETWEEN 'x' AND 'y'", 11),
        ("a = (b = c)", 6),
        ("a = NULL", 5),
        ("NULL = 5", 1),
        ("and = 5", 1),
        ("a = 09", 5),
        ("a = 9223372036854775808", 5),
        ("a = 9223372036854775808 + 1", 5),
        ("a BETWEEN 1 AND 9223372036854775808", 17),
        ("a = 0x10000000000000000", 5),
        ("a = " + "9" * 5000, 5),
        ("a = 1e999", 5),
        ("TRUE = 0", 1),
        ("FALSE = 0", 1),
        ("0 <> true", 6),
        ("TRUE = 'TRUE'", 1),
        ("a = 1 OR NOT (b AND 1 + a = FALSE)", 29),
        ("TRUE <> -a", 1),
        ("a" * 8193, 8193),
    ],
)
def test_decision_12_a_bad_selector_is_invalid_field_with_the_position(text: str, position: int) -> None:
    refuse = refused(text)
    assert refuse.reason is Reason.INVALID_SELECTOR
    assert refuse.condition is ErrorCondition.INVALID_FIELD
    assert refuse.error_info() == {
        "penstock:reason": "InvalidSelector",
        "invalid-field": "filter",
        "position": position,
    }
    assert f"at character {position}:" in refuse.description


@pytest.mark.parametrize(
    "text",
    [
        "NOT " * 1000 + "a",
        "-" * 1000 + "a = 1",
        "a" + " + a" * 500 + " = 1",
        "(" * 30 + "a" + (" * 1" * 30 + ")") * 30 + " = 1",
        "a = 1 AND NOT (b = 1 OR NOT (" * 80 + "c" + "))" * 80,
    ],
)
def test_deep_selectors_are_refused(text: str) -> None:
    assert "levels deep" in refused(text).description


@pytest.mark.parametrize(
    "text",
    [
        "(" * 500 + "a" + ")" * 500,
        " OR ".join(f"a = {number}" for number in range(340)),
        "a = 1" + " AND a = 1" * 340,
        "a IN ('" + "', '".join(f"{number:04}" for number in range(1000)) + "')",
    ],
)
def test_long_selectors_are_not(text: str) -> None:
    assert selector(text).selects({"a": 1}.get) in (True, False)


def test_what_would_be_too_long_to_read_again_is_refused() -> None:
    text = "a IN('" + "','".join(f"{number:04}" for number in range(1160)) + "')"
    assert len(text) == 8125
    refuse = refused(text)
    assert refuse.reason is Reason.INVALID_SELECTOR
    assert "longer than 8192 characters" in refuse.description


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a = 1 OR " * 341 + "a = 1", 3072),  # each has three words, and `=` behind the last `a` is one too many
        ("NOT " * 1024 + "a", 4097),
        ("(" * 8000, 1025),
        ("-" * 1025, 1025),
        ("a%" * 512 + "a", 1025),
        ("a LIKE '" + "_%" * 511 + "' OR b", 1033),
        ("a LIKE '" + "_%" * 512 + "'", 8),
    ],
)
def test_a_selector_of_too_many_words_is_refused_before_it_is_compiled(text: str, position: int) -> None:
    refuse = refused(text)
    assert refuse.reason is Reason.INVALID_SELECTOR
    assert f"at character {position}: more than 1024 names, operators" in refuse.description


def test_what_was_stored_before_there_was_a_limit_of_words_is_read() -> None:
    text = " OR ".join(f"a = {number}" for number in range(700))
    assert stored_selector(text).selects({"a": 699}.get)


@pytest.mark.parametrize("text", ["a = TRUE", "FALSE <> a", "TRUE = FALSE", "5 = '5'", "a + 1 = b"])
def test_names_may_be_of_any_type_and_unlike_literals_are_not_equal(text: str) -> None:
    assert selector(text).text == text


def test_what_was_stored_before_types_were_compared_is_read_and_still_refused_to_clients() -> None:
    stored = stored_selector("TRUE = 0 OR a = 1")
    assert stored.text == "TRUE = 0 OR a = 1"
    assert stored.names == ("a",)
    assert stored.selects({"a": 1}.get)
    assert not stored.selects({"a": 0}.get)
    assert "TRUE and FALSE are compared with a number or a string" in refused("TRUE = 0 OR a = 1").description


def test_the_client_s_spelling_and_the_normal_one_are_one_selector() -> None:
    asked = selector("spelling=1 and  told = 2")
    assert stored_selector("spelling = 1 AND told = 2") is asked


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a NOT IN ('x')", "NOT a IN ('x')", True),
        ("NOT (b = 1 AND a NOT BETWEEN 1 AND 2)", "NOT (b = 1 AND NOT a BETWEEN 1 AND 2)", True),
        ("a NOT LIKE 'x'", "a LIKE 'x'", False),
        ("NOT (b = 1 AND a IS NULL)", "b = 1 AND a IS NULL", False),
        ("a = 1", None, False),
        (None, None, True),
    ],
)
def test_what_an_older_release_could_not_tell_apart_is_one_selector(
    one: str | None, other: str | None, same: bool
) -> None:
    assert mean_the_same(one, other) is same


def test_what_is_remembered_is_bounded_by_its_length() -> None:
    before = selector("old=1")
    for number in range(100):
        assert selector(f"a{number} = '{'x' * 8000}'").names == (f"a{number}",)
        assert remembered() <= REMEMBERED
    assert selector("old=1") is not before
    assert selector("old=1") == before


WORDS = (
    *("a", "b", "1", "2.5", "0x", "'x'", "'x%'", "(", ")", ",", "=", "<>", "<", "+", "-", "*", "/", "$", ".", "'", '"'),
    *("AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE"),
)
ANY_TEXT = st.text() | st.lists(st.sampled_from(WORDS)).map(" ".join)


@given(ANY_TEXT)
def test_every_text_has_an_answer(text: str) -> None:
    compiled = compile_selector(text)
    match compiled:
        case None:
            assert not text.strip(" \t\f\r\n")
        case Refuse():
            position = compiled.error_info()["position"]
            assert isinstance(position, int)
            assert 1 <= position <= len(text) + 1
        case Selector():
            assert selector(compiled.text) == compiled
            compiled.selects({"a": 1, "b": "x"}.get)
