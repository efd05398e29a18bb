"""Declarations and deletions of subscriptions and exchanges: decisions 4, 14, 53 and 55 (docs/decisions)."""

from __future__ import annotations

import pytest
from core.factories import CONTAINER, identity, resource, there

from penstock_core.binding import Binding, Filter
from penstock_core.declaration_rules import (
    DeclaredSubscription,
    DeleteExisting,
    DropAndRebind,
    Keep,
    Make,
    NothingToDelete,
    RebindInPlace,
    SameBinding,
    Wait,
    decide_declaration,
    decide_deletion,
    decide_exchange_declaration,
    decide_exchange_deletion,
    decide_rebind,
)
from penstock_core.existing_subscription import OwnerMark
from penstock_core.identity import LinkKey
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import Adoption, ExchangeType, Exclusivity, Lifetime, RebindPolicy


def declared(
    name: str = "sub",
    *,
    container_id: str | None = None,
    durable: bool = True,
    exclusivity: Exclusivity = Exclusivity.SHARED,
    keys: frozenset[str] = frozenset({"#"}),
    filter: Filter = Filter(),  # noqa: B008 - a frozen value
    rebind_policy: RebindPolicy = RebindPolicy.IN_PLACE,
    managed: OwnerMark | None = None,
    adoption: Adoption = Adoption.UNMARKED,
) -> DeclaredSubscription:
    return DeclaredSubscription(
        identity=identity(name, container_id=container_id, durable=durable),
        exclusivity=exclusivity,
        lifetime=Lifetime.PERMANENT,
        binding=Binding("orders", keys, filter),
        rebind_policy=rebind_policy,
        managed=managed or resource(),
        adoption=adoption,
    )


def reason(decision: object) -> Reason:
    assert isinstance(decision, Refuse)
    return decision.reason


def test_what_is_absent_is_made() -> None:
    assert decide_declaration(declared(), None, 0) == Make()


def test_declaring_again_changes_nothing() -> None:
    existing = there(identity(), consumers=3, user=None, managed=resource())
    assert decide_declaration(declared(), existing, 5) == Keep(adopts=False, rebinding=SameBinding())


def test_a_clients_subscription_is_adopted_with_its_backlog() -> None:
    existing = there(identity(), consumers=3)
    assert decide_declaration(declared(), existing, 5) == Keep(adopts=True, rebinding=SameBinding())


def test_another_uid_of_the_same_name_is_the_same_owner() -> None:
    existing = there(identity(), user=None, managed=OwnerMark("shop/orders-eu", uid="old", cluster_id="c1"))
    assert decide_declaration(declared(), existing, 0) == Keep(adopts=False, rebinding=SameBinding())


@pytest.mark.parametrize(
    "other",
    [OwnerMark("hidden/other", uid="u2", cluster_id="c1"), OwnerMark("shop/orders-eu", uid="u1", cluster_id="c2")],
)
def test_of_two_resources_the_first_wins_and_is_not_named(other: OwnerMark) -> None:
    existing = there(identity(), user=None, managed=other)
    decision = decide_declaration(declared(), existing, 0)
    assert reason(decision) is Reason.DUPLICATE_SUBSCRIPTION
    assert isinstance(decision, Refuse)
    assert "hidden" not in decision.description


OTHER_NAME = OwnerMark("hidden/other", uid="u2", cluster_id="c1")
OTHER_CLUSTER = OwnerMark("shop/orders-eu", uid="u1", cluster_id="c2")
BOTH = OwnerMark("hidden/other", uid="u2", cluster_id="c2")


@pytest.mark.parametrize(
    ("other", "adoption", "taken"),
    [
        (OTHER_NAME, Adoption.UNMARKED, False),
        (OTHER_CLUSTER, Adoption.UNMARKED, False),
        (OTHER_NAME, Adoption.OTHER_CLUSTER, False),
        (OTHER_CLUSTER, Adoption.OTHER_CLUSTER, True),
        (BOTH, Adoption.OTHER_CLUSTER, False),
        (OTHER_NAME, Adoption.ORPHANS, True),
        (OTHER_CLUSTER, Adoption.ORPHANS, True),
        (BOTH, Adoption.ORPHANS, True),
    ],
)
def test_what_another_resource_declared_is_taken_over_as_far_as_it_is_allowed(
    other: OwnerMark, adoption: Adoption, taken: bool
) -> None:
    """With its backlog and its consumers."""
    existing = there(identity(), consumers=2, user=None, managed=other)
    decision = decide_declaration(declared(adoption=adoption), existing, 5)
    if taken:
        assert decision == Keep(adopts=True, rebinding=SameBinding())
    else:
        assert reason(decision) is Reason.DUPLICATE_SUBSCRIPTION


def test_what_the_same_name_in_another_cluster_declared_is_refused_with_the_cure() -> None:
    decision = decide_declaration(declared(), there(identity(), user=None, managed=OTHER_CLUSTER), 0)
    assert isinstance(decision, Refuse)
    assert "allow the adoption of OtherCluster" in decision.description


def test_an_administrator_does_not_change_what_a_resource_declares() -> None:
    existing = there(identity(), user=None, managed=resource())
    plain = DeclaredSubscription(
        identity=identity(),
        exclusivity=Exclusivity.SHARED,
        lifetime=Lifetime.PERMANENT,
        binding=Binding("orders", frozenset({"#"})),
        rebind_policy=RebindPolicy.IN_PLACE,
        managed=None,
    )
    assert reason(decide_declaration(plain, existing, 0)) is Reason.MANAGED
    assert decide_declaration(plain, there(identity()), 0) == Keep(adopts=False, rebinding=SameBinding())


def test_exclusivity_never_changes() -> None:
    existing = there(identity(container_id=CONTAINER), exclusivity=Exclusivity.LINK, owner=LinkKey(CONTAINER, "sub"))
    assert reason(decide_declaration(declared(container_id=CONTAINER), existing, 0)) is Reason.EXCLUSIVITY_MISMATCH


@pytest.mark.parametrize(
    ("policy", "consumers", "depth", "outcome"),
    [
        (RebindPolicy.IN_PLACE, 0, 0, RebindInPlace()),
        (RebindPolicy.IN_PLACE, 2, 9, RebindInPlace()),
        (RebindPolicy.WHEN_IDLE, 0, 9, DropAndRebind()),
        (RebindPolicy.WHEN_IDLE, 1, 0, Wait(Reason.CONSUMERS_ACTIVE)),
        (RebindPolicy.WHEN_IDLE_AND_EMPTY, 0, 0, DropAndRebind()),
        (RebindPolicy.WHEN_IDLE_AND_EMPTY, 0, 1, Wait(Reason.NOT_EMPTY)),
        (RebindPolicy.WHEN_IDLE_AND_EMPTY, 1, 0, Wait(Reason.CONSUMERS_ACTIVE)),
        (RebindPolicy.NEVER, 0, 0, Wait(Reason.REBIND_NOT_ALLOWED)),
    ],
)
def test_rebind_policies(policy: RebindPolicy, consumers: int, depth: int, outcome: object) -> None:
    assert decide_rebind(policy, consumers, depth) == outcome
    existing = there(identity(), consumers=consumers, user=None, managed=resource())
    changed = declared(keys=frozenset({"eu.#"}), rebind_policy=policy)
    decision = decide_declaration(changed, existing, depth)
    assert isinstance(decision, Keep)
    assert decision.rebinding == outcome


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (declared(keys=frozenset()), Reason.INVALID_BINDING_KEY),
        (declared(name=""), Reason.INVALID_NAME),
        (declared(name="a|b"), Reason.INVALID_NAME),
        (declared(filter=Filter(no_local=True)), Reason.INVALID_REQUEST),
        (declared(exclusivity=Exclusivity.LINK, durable=False), Reason.INVALID_REQUEST),
    ],
)
def test_what_can_not_be_declared(wrong: DeclaredSubscription, why: Reason) -> None:
    assert reason(decide_declaration(wrong, None, 0)) is why


@pytest.mark.parametrize(
    "right",
    [
        declared(name="|a"),
        declared(name="a|b", exclusivity=Exclusivity.LINK),
        declared(exclusivity=Exclusivity.LINK, filter=Filter(no_local=True)),
        declared(durable=False),
    ],
)
def test_what_can(right: DeclaredSubscription) -> None:
    assert decide_declaration(right, None, 0) == Make()


def test_deleting_what_is_absent_succeeds() -> None:
    assert decide_deletion(None, 0) == NothingToDelete()


@pytest.mark.parametrize(
    ("consumers", "depth", "if_unused", "if_empty", "why"),
    [
        (0, 9, True, False, None),
        (1, 0, True, False, Reason.CONSUMERS_ACTIVE),
        (1, 0, False, False, None),
        (0, 0, True, True, None),
        (0, 1, True, True, Reason.NOT_EMPTY),
        (1, 1, True, True, Reason.CONSUMERS_ACTIVE),
    ],
)
def test_deletion(consumers: int, depth: int, if_unused: bool, if_empty: bool, why: Reason | None) -> None:
    existing = there(identity(), consumers=consumers, user=None, managed=resource())
    decision = decide_deletion(existing, depth, if_unused=if_unused, if_empty=if_empty, owner_uid="u1")
    if why is None:
        assert decision == DeleteExisting()
    else:
        assert reason(decision) is why


def test_deletion_spares_consumers_unless_told_otherwise() -> None:
    assert reason(decide_deletion(there(identity(), consumers=1), 0)) is Reason.CONSUMERS_ACTIVE
    assert decide_deletion(there(identity()), 9) == DeleteExisting()


def test_deletion_by_a_resource_that_lost_it() -> None:
    existing = there(identity(), user=None, managed=resource())
    assert reason(decide_deletion(existing, 0, owner_uid="other")) is Reason.MANAGED
    assert decide_deletion(there(identity()), 0, owner_uid="other") == DeleteExisting()


@pytest.mark.parametrize("exchange_type", list(ExchangeType))
def test_every_type_can_be_declared(exchange_type: ExchangeType) -> None:
    assert decide_exchange_declaration("orders", exchange_type, None) is None
    assert decide_exchange_declaration("orders", exchange_type, exchange_type) is None


def test_a_type_never_changes() -> None:
    refused = decide_exchange_declaration("orders", ExchangeType.DIRECT, ExchangeType.TOPIC)
    assert refused is not None
    assert refused.reason is Reason.IMMUTABLE


def test_names_are_checked() -> None:
    temporary = decide_exchange_declaration("temporary-topic:x", ExchangeType.FANOUT, ExchangeType.FANOUT)
    assert temporary is not None
    assert temporary.reason is Reason.INVALID_NAME
    refused = decide_exchange_declaration("a/b", ExchangeType.TOPIC, None)
    assert refused is not None
    assert refused.reason is Reason.INVALID_NAME


@pytest.mark.parametrize(
    ("name", "bound", "if_unused", "why"),
    [
        ("orders", 0, True, None),
        ("orders", 2, True, Reason.BINDINGS_EXIST),
        ("orders", 2, False, None),
        ("amq.topic", 0, False, Reason.NOT_ALLOWED),
    ],
)
def test_deletion_of_an_exchange(name: str, bound: int, if_unused: bool, why: Reason | None) -> None:
    refused = decide_exchange_deletion(name, bound, if_unused=if_unused)
    assert (None if refused is None else refused.reason) is why
