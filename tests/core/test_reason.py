"""Reasons and their AMQP conditions; the conditions of the page's refusals typed from the attach table."""

from __future__ import annotations

import re

import pytest

from penstock_core.reason import CONDITIONS, Reason, Refuse


def test_every_reason_has_a_condition() -> None:
    assert set(CONDITIONS) == set(Reason)
    assert all(reason.condition is CONDITIONS[reason] for reason in Reason)


def test_reasons_are_valid_kubernetes_condition_reasons() -> None:
    assert all(re.fullmatch(r"[A-Z][A-Za-z]*", reason.value) for reason in Reason)


@pytest.mark.parametrize(
    ("reason", "condition"),
    [
        ("SubscriptionInUse", "amqp:resource-locked"),
        ("ExclusivityMismatch", "amqp:resource-locked"),
        ("OwnedByOtherLink", "amqp:resource-locked"),
        ("LinkLiveForOtherKind", "amqp:resource-locked"),
        ("Managed", "amqp:resource-locked"),
        ("ConsumersActive", "amqp:resource-locked"),
        ("ExchangeNotFound", "amqp:not-found"),
        ("SubscriptionNotFound", "amqp:not-found"),
        ("InvalidSelector", "amqp:invalid-field"),
        ("ContainerInUse", "amqp:invalid-field"),
        ("OtherUser", "amqp:unauthorized-access"),
        ("LoginExpired", "amqp:unauthorized-access"),
        ("LoginWithdrawn", "amqp:unauthorized-access"),
        ("NotAllowed", "amqp:not-allowed"),
        ("LimitExceeded", "amqp:resource-limit-exceeded"),
        ("LinkStolen", "amqp:link:stolen"),
        ("MessageTooLong", "amqp:link:message-size-exceeded"),
        ("NotImplemented", "amqp:not-implemented"),
    ],
)
def test_the_condition_of(reason: str, condition: str) -> None:
    assert Reason(reason).condition.value == condition


def test_the_reason_travels_in_the_info_map_first() -> None:
    refuse = Refuse(Reason.MANAGED, "why", (("resource", "a/b"),))
    assert list(refuse.error_info().items()) == [("penstock:reason", "Managed"), ("resource", "a/b")]


@pytest.mark.parametrize(
    ("reason", "field"),
    [
        (Reason.INVALID_SELECTOR, "filter"),
        (Reason.INVALID_BINDING_KEY, "filter"),
        (Reason.INVALID_NAME, "name"),
        (Reason.INVALID_ADDRESS, "address"),
        (Reason.CONTAINER_IN_USE, "container-id"),
    ],
)
def test_an_invalid_field_is_named(reason: Reason, field: str) -> None:
    assert Refuse(reason, "why").error_info() == {"penstock:reason": reason.value, "invalid-field": field}
    assert Refuse(reason, "why", (("invalid-field", "own"),)).error_info()["invalid-field"] == "own"
