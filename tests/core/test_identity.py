"""Identities and their names: decision 1 and docs/decisions/020-queue-names.md, QPIDJMS-220 for link names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.identity import (
    GLOBAL,
    Identity,
    LinkKey,
    Scope,
    parse_queue_name,
    private_name,
    queue_name,
    subscription_name,
    suffix_of,
)

TEXT = st.text(max_size=12) | st.text(alphabet=":%/|~aé", max_size=8)
IDENTITIES = st.builds(Identity, st.builds(Scope, st.none() | TEXT), TEXT, st.booleans())


@pytest.mark.parametrize(
    ("link_name", "name", "suffix"),
    [
        ("mysub", "mysub", ""),
        ("mysub|foo", "mysub", "foo"),
        ("mysub|global2", "mysub", "global2"),
        ("mysub|a|b", "mysub", "a|b"),
        ("mysub|", "mysub", ""),
        ("|mysub", "|mysub", ""),
        ("|mysub|2", "|mysub", "2"),
        ("||", "|", ""),
        ("", "", ""),
    ],
)
def test_decision_01_the_name_in_a_link_name(link_name: str, name: str, suffix: str) -> None:
    assert subscription_name(link_name) == name
    assert suffix_of(link_name) == suffix


@pytest.mark.parametrize(
    ("identity", "name"),
    [
        (Identity(GLOBAL, "orders-eu", True), "psub:durable:global:orders-eu"),
        (Identity(Scope("billing"), "orders-eu", True), "psub:durable:container:billing:orders-eu"),
        (Identity(GLOBAL, "a/b:c|é", False), "psub:volatile:global:a%2Fb%3Ac%7C%C3%A9"),
        (Identity(Scope("ID:x:1"), "s", False), "psub:volatile:container:ID%3Ax%3A1:s"),
        (Identity(Scope(""), "s", True), "psub:durable:container::s"),
    ],
)
def test_the_documented_queue_names(identity: Identity, name: str) -> None:
    assert queue_name(identity) == name
    assert parse_queue_name(name) == identity


@given(IDENTITIES)
def test_a_queue_name_leads_back(identity: Identity) -> None:
    name = queue_name(identity)
    assert parse_queue_name(name) == identity
    assert "/" not in name


@given(IDENTITIES, IDENTITIES)
def test_queue_names_are_injective(one: Identity, other: Identity) -> None:
    assert (queue_name(one) == queue_name(other)) is (one == other)


@given(st.text() | st.text(alphabet="psub:durablegt%41C3FF", max_size=30))
def test_every_other_string_is_no_queue_name(text: str) -> None:
    identity = parse_queue_name(text)
    assert identity is None or queue_name(identity) == text


@pytest.mark.parametrize(
    "text",
    [
        "orders",
        "psub:durable:global",
        "psub:lasting:global:a",
        "psub:durable:global:a:b",
        "psub:durable:global:%61",
        "psub:durable:global:%FF",
        "psub:durable:container:a",
    ],
)
def test_what_only_looks_like_a_queue_name(text: str) -> None:
    assert parse_queue_name(text) is None


@given(TEXT, TEXT)
def test_no_shared_link_can_mean_a_private_name(nonce: str, link_name: str) -> None:
    assert subscription_name(link_name) != private_name(nonce)


def test_only_the_global_scope_is_global() -> None:
    assert GLOBAL.is_global
    assert not Scope("c").is_global
    assert not Scope("").is_global


def test_words_for_people() -> None:
    assert str(Identity(GLOBAL, "s", True)) == "durable subscription 's' (global)"
    assert str(Identity(Scope("c"), "s", False)) == "volatile subscription 's' (container 'c')"
    assert str(LinkKey("c", "l")) == "link 'l' of container 'c'"
