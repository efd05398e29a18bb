"""Auto-creation: what may be made by its name, and how much of it."""

from __future__ import annotations

import pytest

from penstock_core.auto_creation import ANYTHING, NOTHING, AutoCreation, CreationRule, check_limit
from penstock_core.patterns import matches
from penstock_core.reason import Reason
from penstock_core.terms import NodeKind


@pytest.mark.parametrize("kind", list(NodeKind))
def test_all_or_nothing(kind: NodeKind) -> None:
    assert ANYTHING.allows(kind, "x")
    assert not NOTHING.allows(kind, "x")


def test_each_kind_has_its_own_patterns() -> None:
    rules = AutoCreation(CreationRule(("a*",)), CreationRule(("b",)))
    assert rules.allows(NodeKind.QUEUE, "app")
    assert not rules.allows(NodeKind.TOPIC, "app")
    assert rules.allows(NodeKind.TOPIC, "b")


def test_limits() -> None:
    rules = AutoCreation(CreationRule(("*",), limit=2), CreationRule(("*",), limit=0))
    assert check_limit(rules, NodeKind.QUEUE, "q", 1) is None
    refused = check_limit(rules, NodeKind.QUEUE, "q", 2)
    assert refused is not None
    assert (refused.reason, "autoCreate.queues.limit" in refused.description) == (Reason.LIMIT_EXCEEDED, True)
    refused = check_limit(rules, NodeKind.TOPIC, "t", 0)
    assert refused is not None
    assert "autoCreate.topics.limit" in refused.description


@pytest.mark.parametrize(
    ("name", "patterns", "matched"),
    [
        ("", ("*",), True),
        ("abc", ("a*c",), True),
        ("ac", ("a*c",), True),
        ("abcd", ("a*c",), False),
        ("a.b.c", ("a.*.c",), True),
        ("aba", ("ab*ba",), False),
        ("abc", ("x", "abc"), True),
        ("abc", (), False),
        ("xaybz", ("*a*b*",), True),
        ("xbya", ("*a*b*",), False),
    ],
)
def test_patterns(name: str, patterns: tuple[str, ...], matched: bool) -> None:
    assert matches(name, patterns) is matched
