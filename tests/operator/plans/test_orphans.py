"""Orphans: which are deleted, which are only listed, and what is left alone. The expectations are typed by hand."""

from __future__ import annotations

from typing import Literal

from penstock_api.management import EntityType, Owner
from penstock_operator.plans.decisions import DeleteEntity
from penstock_operator.plans.orphans import MarkedEntity, Orphans, find_orphans

Policy = Literal["Delete", "DeleteWhenEmpty", "DeleteWhenUnused", "Retain"]
CLAIM = ("Subscription", "shop", "billing", "q")


def entities(
    policy: Policy = "Delete", cluster: str = "c1", kind: Literal["Exchange", "Subscription", "Queue"] = "Subscription"
) -> MarkedEntity:
    owner = Owner(cluster_id=cluster, kind=kind, namespace="shop", name="billing", uid="u1", deletion_policy=policy)
    return MarkedEntity("q", owner)


def verdict(
    entity: MarkedEntity,
    *,
    claims: tuple[tuple[str, str, str, str], ...] = (),
    since: float | None = None,
    namespaces: tuple[str, ...] = (),
    pending_removals: tuple[str, ...] = (),
    unreadable: tuple[tuple[str, str, str], ...] = (),
) -> Orphans:
    return find_orphans(
        [entity],
        claims=claims,
        missing_since={} if since is None else {entity.claim: since},
        cluster_id="c1",
        namespaces=namespaces,
        now=1000,
        pending_removals=pending_removals,
        unreadable=unreadable,
    )


def reasons(found: Orphans) -> list[object]:
    return [orphan["reason"] for orphan in found.listed]


def test_what_has_its_resource_is_no_orphan() -> None:
    assert verdict(entities(), claims=(CLAIM,), since=0) == Orphans((), (), (), {})


def test_a_resource_that_claims_another_name_does_not_keep_the_old_one() -> None:
    renamed = ("Subscription", "shop", "billing", "another-queue")
    assert reasons(verdict(entities(), claims=(renamed,), since=1000 - 600)) == ["Collecting"]


def test_it_is_listed_at_once_and_collected_after_ten_minutes() -> None:
    first = verdict(entities())
    assert (first.collect, reasons(first), first.missing_since) == ((), ["NotYetDue"], {CLAIM: 1000})
    assert verdict(entities(), since=1000 - 599).collect == ()
    due = verdict(entities(), since=1000 - 600)
    assert due.collect == (
        DeleteEntity(entity=EntityType.SUBSCRIPTION, name="q", if_unused=True, if_empty=False, owner_uid="u1"),
    )
    assert due.listed == ({"kind": "Subscription", "name": "q", "resource": "shop/billing", "reason": "Collecting"},)


def test_what_was_seen_being_deleted_is_collected_at_once() -> None:
    assert reasons(verdict(entities(), pending_removals=("u1",))) == ["Collecting"]
    assert reasons(verdict(entities(), pending_removals=("u2",))) == ["NotYetDue"]
    assert reasons(verdict(entities("Retain"), pending_removals=("u1",))) == ["Retain"]
    made_again = verdict(entities(), pending_removals=("u1",), claims=(CLAIM,))
    assert (made_again.collect, made_again.listed) == ((), ()), "a resource of that name takes over what there is"


def test_retain_is_only_ever_listed() -> None:
    found = verdict(entities("Retain"), since=0)
    assert (found.collect, reasons(found)) == ((), ["Retain"])


def test_what_is_retained_gives_no_rights_any_more_once_its_resource_has_been_missing_for_ten_minutes() -> None:
    """As it happens at once if the broker answers while the resource is deleted."""
    assert verdict(entities("Retain"), since=1000 - 599).end_rights == ()
    due = verdict(entities("Retain"), since=1000 - 600)
    assert due.end_rights == (
        DeleteEntity(
            entity=EntityType.SUBSCRIPTION, name="q", if_unused=False, if_empty=False, owner_uid="u1", rights_only=True
        ),
    )
    assert verdict(entities("Retain", kind="Queue"), since=0).end_rights == (), "a queue gives none"
    assert verdict(entities("Retain", cluster="c2"), since=0).end_rights == ()
    assert verdict(entities("Delete"), since=0).end_rights == ()
    another = (("Subscription", "shop", "other"),)
    assert verdict(entities("Retain"), since=0, unreadable=another).end_rights == ()


def test_conditions_of_the_policy_go_along() -> None:
    (entry,) = verdict(entities("DeleteWhenEmpty"), since=0).collect
    assert (entry.if_unused, entry.if_empty) == (True, True)
    (entry,) = verdict(entities("DeleteWhenUnused", kind="Exchange"), since=0).collect
    assert (entry.entity, entry.if_unused, entry.if_empty) == (EntityType.EXCHANGE, True, False)


def test_another_cluster_s_marks_are_only_listed() -> None:
    found = verdict(entities(cluster="c2"), since=0)
    assert (found.collect, reasons(found), found.missing_since) == ((), ["OtherCluster"], {})


def test_namespaces_that_the_operator_does_not_see_are_left_alone() -> None:
    assert verdict(entities(), since=0, namespaces=("elsewhere",)) == Orphans((), (), (), {})
    assert reasons(verdict(entities(), namespaces=("shop",))) == ["NotYetDue"]


def test_nothing_is_collected_while_a_resource_can_t_be_read() -> None:
    another = (("Subscription", "shop", "another"),)
    held = verdict(entities(), since=0, unreadable=another)
    assert (held.collect, reasons(held), held.missing_since) == ((), ["Held"], {CLAIM: 0})
    seen_to_go = verdict(entities(), pending_removals=("u1",), unreadable=another)
    assert (seen_to_go.collect, reasons(seen_to_go)) == ((), ["Held"])
    assert reasons(verdict(entities(), unreadable=another)) == ["NotYetDue"]
    assert reasons(verdict(entities("Retain"), since=0, unreadable=another)) == ["Retain"]


def test_what_a_resource_that_can_t_be_read_has_declared_is_no_orphan() -> None:
    itself = (("Subscription", "shop", "billing"),)
    assert verdict(entities(), since=0, unreadable=itself) == Orphans((), (), (), {})
    of_another_cluster = verdict(entities(cluster="c2"), unreadable=itself)
    assert reasons(of_another_cluster) == ["OtherCluster"]


def test_a_queue_is_collected_like_a_subscription_only_when_nobody_consumes() -> None:
    due = verdict(entities("DeleteWhenEmpty", kind="Queue"), since=0)
    assert due.collect == (
        DeleteEntity(entity=EntityType.QUEUE, name="q", if_unused=True, if_empty=True, owner_uid="u1"),
    )
    assert due.listed == ({"kind": "Queue", "name": "q", "resource": "shop/billing", "reason": "Collecting"},)
    assert verdict(entities("Retain", kind="Queue"), since=0).collect == ()
    assert verdict(entities(kind="Queue"), claims=(("Queue", "shop", "billing", "q"),)) == Orphans((), (), (), {})
