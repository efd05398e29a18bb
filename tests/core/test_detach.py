"""Detach: decisions 8, 9, 10, 14 and 16 (docs/decisions), and the "Link Detach" part of the attach table."""

from __future__ import annotations

import pytest
from core.factories import ANN, BOB, identity, resource, there

from penstock_core.detach import (
    DetachDecision,
    DetachOnly,
    DetachRequest,
    EndSubscription,
    RefuseClose,
    SourceKind,
    decide_detach,
)
from penstock_core.existing_subscription import ExistingSubscription
from penstock_core.reason import Reason
from penstock_core.terms import Durability, Lifetime

VOLATILE_LIFETIMES = [Lifetime.NO_OUTBOUND_LINK, Lifetime.SESSION_END, Lifetime.CONNECTION_CLOSE]


def detaching(
    *,
    closed: bool = True,
    source: SourceKind = SourceKind.TOPIC,
    durability: int = 2,
    user: str = ANN,
    may_use_others: bool = False,
) -> DetachRequest:
    return DetachRequest(
        closed=closed, source=source, durability=Durability(durability), user=user, may_use_others=may_use_others
    )


def reason(decision: DetachDecision) -> tuple[Reason, str]:
    assert isinstance(decision, RefuseClose)
    return decision.refuse.reason, decision.refuse.condition.value


@pytest.mark.parametrize("source", list(SourceKind))
@pytest.mark.parametrize("others", [0, 1])
def test_detach_without_close_ends_nothing(source: SourceKind, others: int) -> None:
    assert decide_detach(detaching(closed=False, source=source), there(identity()), others) == DetachOnly()


@pytest.mark.parametrize("source", list(SourceKind))
@pytest.mark.parametrize("lifetime", list(Lifetime))
def test_decision_09_the_last_close_ends_it_whatever_its_lifetime(source: SourceKind, lifetime: Lifetime) -> None:
    existing = there(identity(), lifetime=lifetime)
    assert decide_detach(detaching(source=source), existing, 0) == EndSubscription(existing.identity, 7)


@pytest.mark.parametrize("source", list(SourceKind))
def test_decision_09_a_permanent_one_in_use_is_locked(source: SourceKind) -> None:
    decision = decide_detach(detaching(source=source), there(identity(), consumers=2), 2)
    assert reason(decision) == (Reason.CONSUMERS_ACTIVE, "amqp:resource-locked")


@pytest.mark.parametrize("lifetime", VOLATILE_LIFETIMES)
def test_decision_09_any_other_lifetime_in_use_detaches_without_error(lifetime: Lifetime) -> None:
    # What the JMS client does with every consumer of a shared volatile subscription.
    assert decide_detach(detaching(durability=0), there(identity(), lifetime=lifetime), 1) == DetachOnly()


def test_decision_09_what_is_gone_already_is_a_success() -> None:
    assert decide_detach(detaching(source=SourceKind.LOOKUP), None, 0) == DetachOnly()


def managed() -> ExistingSubscription:
    return there(identity(), user=None, managed=resource())


@pytest.mark.parametrize("others", [0, 1])
def test_decision_14_close_of_a_link_that_asked_durability_0_just_detaches(others: int) -> None:
    assert decide_detach(detaching(durability=0), managed(), others) == DetachOnly()


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize(
    ("source", "durability"), [(SourceKind.TOPIC, 1), (SourceKind.TOPIC, 2), (SourceKind.LOOKUP, 0)]
)
def test_decision_14_otherwise_and_by_null_source_it_is_locked(
    source: SourceKind, durability: int, others: int
) -> None:
    decision = decide_detach(detaching(source=source, durability=durability), managed(), others)
    assert reason(decision) == (Reason.MANAGED, "amqp:resource-locked")
    assert isinstance(decision, RefuseClose)
    assert decision.refuse.error_info() == {"penstock:reason": "Managed", "resource": "shop/orders-eu"}


def test_decision_16_the_permission_is_never_assumed() -> None:
    request = DetachRequest(closed=True, source=SourceKind.TOPIC, durability=Durability.NONE, user=ANN)
    assert not request.may_use_others


def test_decision_16_ending_another_users_needs_a_permission() -> None:
    decision = decide_detach(detaching(user=BOB), there(identity(), user=ANN), 0)
    assert reason(decision) == (Reason.OTHER_USER, "amqp:unauthorized-access")
    allowed = decide_detach(detaching(user=BOB, may_use_others=True), there(identity(), user=ANN), 0)
    assert isinstance(allowed, EndSubscription)
