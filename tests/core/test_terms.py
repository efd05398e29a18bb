"""The words, as resources and AMQP spell them; typed from the attach table and docs/reference/rules.md."""

from __future__ import annotations

import enum

import pytest

from penstock_core.terms import (
    ClientOverrides,
    DeletionPolicy,
    Durability,
    ExchangeType,
    Exclusivity,
    ExpiryPolicy,
    Lifetime,
    Overflow,
    Persistence,
    RebindPolicy,
    Unroutable,
    expiry_of,
    lifetime_of,
)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (Exclusivity, ["Shared", "Exclusive"]),
        (Lifetime, ["Never", "LinkDetach", "SessionEnd", "ConnectionClose"]),
        (ExpiryPolicy, ["link-detach", "session-end", "connection-close", "never"]),
        (ExchangeType, ["Topic", "Direct", "Fanout", "Headers"]),
        (Persistence, ["AsSent", "Always"]),
        (Overflow, ["DropOldest", "DropNewest", "Reject"]),
        (Unroutable, ["Accept", "Reject", "Alternate"]),
        (ClientOverrides, ["Refuse", "Ignore"]),
        (RebindPolicy, ["InPlace", "WhenIdle", "WhenIdleAndEmpty", "Never"]),
        (DeletionPolicy, ["Delete", "DeleteWhenEmpty", "DeleteWhenUnused", "Retain"]),
    ],
)
def test_spellings(words: type[enum.Enum], values: list[str]) -> None:
    assert [word.value for word in words] == values


def test_durability_is_amqps() -> None:
    assert [(each.value, each.is_durable) for each in Durability] == [(0, False), (1, True), (2, True)]


@pytest.mark.parametrize(
    ("expiry", "lifetime"),
    [
        ("link-detach", Lifetime.NO_OUTBOUND_LINK),
        ("session-end", Lifetime.SESSION_END),
        ("connection-close", Lifetime.CONNECTION_CLOSE),
        ("never", Lifetime.PERMANENT),
    ],
)
def test_lifetime_and_expiry_policy(expiry: str, lifetime: Lifetime) -> None:
    assert lifetime_of(ExpiryPolicy(expiry)) is lifetime
    assert expiry_of(lifetime) is ExpiryPolicy(expiry)


def test_an_absent_expiry_policy_means_session_end() -> None:
    assert lifetime_of(None) is Lifetime.SESSION_END
