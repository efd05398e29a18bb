"""Grants: who may do what to which names, and what a refusal says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core.factories import identity, there
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.permissions import (
    ALLOWED,
    EVERYTHING,
    Action,
    Grant,
    Need,
    Permissions,
    Principal,
    TargetKind,
    needs_to_subscribe,
)
from penstock_core.reason import ErrorCondition, Reason, Refuse

ANN = Principal("ann")
SHOP = Permissions(
    (
        Grant(
            users=("ann", "bob-*"),
            groups=("team",),
            actions=frozenset((Action.PUBLISH, Action.CONSUME)),
            exchanges=("orders.*",),
            queues=("work",),
        ),
        Grant(users=("*",), actions=frozenset((Action.CREATE,)), subscriptions=("*-audit",)),
        Grant(users=("root",), actions=frozenset(Action), management=True),
    )
)


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("kind", list(TargetKind))
def test_as_long_as_nobody_speaks_of_permissions_everything_is_allowed(action: Action, kind: TargetKind) -> None:
    assert EVERYTHING.decide(ANN, action, kind, "x") is ALLOWED


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("kind", list(TargetKind))
def test_an_empty_list_allows_nothing(action: Action, kind: TargetKind) -> None:
    assert isinstance(Permissions().decide(ANN, action, kind, "x"), Refuse)


def test_where_all_is_open_nobody_manages_what_others_made() -> None:
    assert not EVERYTHING.allows(ANN, Action.MANAGE, TargetKind.SUBSCRIPTION, "x")
    assert EVERYTHING.allows(ANN, Action.CONSUME, TargetKind.SUBSCRIPTION, "x")


@pytest.mark.parametrize(
    ("who", "action", "kind", "name", "allowed"),
    [
        (ANN, Action.PUBLISH, TargetKind.EXCHANGE, "orders.eu", True),
        (ANN, Action.PUBLISH, TargetKind.EXCHANGE, "orders.", True),
        (ANN, Action.PUBLISH, TargetKind.EXCHANGE, "orders", False),
        (ANN, Action.PUBLISH, TargetKind.EXCHANGE, "my.orders.eu", False),
        (ANN, Action.CONSUME, TargetKind.EXCHANGE, "orders.eu", True),
        (ANN, Action.MANAGE, TargetKind.EXCHANGE, "orders.eu", False),
        (ANN, Action.PUBLISH, TargetKind.QUEUE, "work", True),
        (ANN, Action.PUBLISH, TargetKind.QUEUE, "works", False),
        (ANN, Action.PUBLISH, TargetKind.QUEUE, "orders.eu", False),
        (Principal("bob-1"), Action.CONSUME, TargetKind.QUEUE, "work", True),
        (Principal("bob"), Action.CONSUME, TargetKind.QUEUE, "work", False),
        (Principal("eve", frozenset(("team",))), Action.CONSUME, TargetKind.QUEUE, "work", True),
        (Principal("eve", frozenset(("teams",))), Action.CONSUME, TargetKind.QUEUE, "work", False),
        (Principal("team"), Action.CONSUME, TargetKind.QUEUE, "work", False),
        (Principal("eve"), Action.CREATE, TargetKind.SUBSCRIPTION, "eu-audit", True),
        (Principal("eve"), Action.CREATE, TargetKind.SUBSCRIPTION, "audit-eu", False),
        (Principal("eve"), Action.MANAGE, TargetKind.MANAGEMENT, "", False),
        (Principal("root"), Action.MANAGE, TargetKind.MANAGEMENT, "", True),
        (Principal("root"), Action.MANAGE, TargetKind.QUEUE, "work", False),
    ],
)
def test_what_a_grant_allows(who: Principal, action: Action, kind: TargetKind, name: str, allowed: bool) -> None:
    assert SHOP.allows(who, action, kind, name) is allowed
    assert (SHOP.decide(who, action, kind, name) is ALLOWED) is allowed


def test_a_refusal_says_what_is_lacking_and_who_can_give_it() -> None:
    refused = SHOP.decide(Principal("eve"), Action.PUBLISH, TargetKind.EXCHANGE, "orders.eu")
    assert isinstance(refused, Refuse)
    assert refused.reason is Reason.NOT_PERMITTED
    assert refused.condition is ErrorCondition.UNAUTHORIZED_ACCESS
    assert refused.description == (
        "User 'eve' may not publish on exchange 'orders.eu': none of the broker's permissions allows it; "
        "ask those who run this broker to grant 'publish' on that exchange to this user."
    )
    assert refused.error_info() == {
        "penstock:reason": "NotPermitted",
        "penstock:action": "publish",
        "penstock:kind": "exchange",
    }


def test_a_refusal_of_management_names_no_name() -> None:
    refused = SHOP.decide(ANN, Action.MANAGE, TargetKind.MANAGEMENT, "")
    assert isinstance(refused, Refuse)
    assert refused.description.startswith("User 'ann' may not use $management:")


def test_a_long_name_is_not_sent_back() -> None:
    refused = SHOP.decide(ANN, Action.PUBLISH, TargetKind.QUEUE, "q" * 60_000)
    assert isinstance(refused, Refuse)
    assert len(refused.description) < 500


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*", "", True),
        ("**", "x", True),
        ("a*b*c", "a-b-c", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "acb", False),
        ("a*b*c", "ac", False),
        ("ab*ba", "aba", False),
        ("a*a", "a", False),
        ("", "", True),
        ("", "x", False),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
        ("a?", "ab", False),
    ],
)
def test_patterns_know_one_sign(pattern: str, name: str, matches: bool) -> None:
    grants = Permissions((Grant(users=("ann",), actions=frozenset((Action.PUBLISH,)), queues=(pattern,)),))
    assert grants.allows(ANN, Action.PUBLISH, TargetKind.QUEUE, name) is matches


@given(st.lists(st.text("ab", max_size=3), min_size=1, max_size=5), st.lists(st.text("ab", max_size=3), max_size=4))
def test_a_pattern_matches_whatever_stands_for_its_stars(parts: list[str], fillings: list[str]) -> None:
    name = parts[0] + "".join(map("".join, zip([*fillings, *[""] * 4], parts[1:], strict=False)))
    grants = Permissions((Grant(users=("ann",), actions=frozenset((Action.PUBLISH,)), queues=("*".join(parts),)),))
    assert grants.allows(ANN, Action.PUBLISH, TargetKind.QUEUE, name)


@pytest.mark.parametrize(
    ("user", "declared_users", "allowed"),
    [
        ("ann", ("ann",), True),
        ("ann", ("bob", "a*"), True),
        ("ann", ("bob",), False),
        ("ann", (), False),
        ("system:serviceaccount:shop:app", ("system:serviceaccount:shop:*",), True),
        ("system:serviceaccount:shop-2:app", ("system:serviceaccount:shop:*",), False),
    ],
)
def test_who_was_declared_with_it_needs_no_grant(user: str, declared_users: tuple[str, ...], allowed: bool) -> None:
    said = Permissions().decide(Principal(user), Action.CONSUME, TargetKind.SUBSCRIPTION, "audit", declared_users)
    assert (said is ALLOWED) is allowed


NEWS = Need(Action.CONSUME, TargetKind.EXCHANGE, "news")
AUDIT = Need(Action.CONSUME, TargetKind.SUBSCRIPTION, "audit")
MAKE_AUDIT = Need(Action.CREATE, TargetKind.SUBSCRIPTION, "audit")


@pytest.mark.parametrize(
    ("durable", "made_by", "needs"),
    [
        pytest.param(False, "nobody", (NEWS,), id="volatile"),
        pytest.param(True, "nobody", (NEWS, MAKE_AUDIT), id="durable-and-new"),
        pytest.param(True, ANN.user, (NEWS,), id="durable-and-there"),
        pytest.param(True, None, (AUDIT,), id="declared"),
        pytest.param(False, None, (AUDIT,), id="declared-volatile"),
    ],
)
def test_what_an_attach_to_a_topic_needs(durable: bool, made_by: str | None, needs: tuple[Need, ...]) -> None:
    wanted = identity("audit", durable=durable)
    found = None if made_by == "nobody" else there(wanted, user=made_by)
    assert needs_to_subscribe(wanted, found, "news") == needs


def test_a_declared_subscription_brings_its_own_users() -> None:
    wanted = identity("audit")
    found = replace(there(wanted, user=None), declared_consumers=("bob",))
    assert needs_to_subscribe(wanted, found, "news") == (
        Need(Action.CONSUME, TargetKind.SUBSCRIPTION, "audit", ("bob",)),
    )
