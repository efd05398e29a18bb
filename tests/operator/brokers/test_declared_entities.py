"""What the operator need not declare again, and who is told when somebody else changed it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.resources import exchange, queue, subscription

from penstock_api import declaration
from penstock_api.management import EntityType, Owner
from penstock_operator.brokers.declared_entities import DeclaredEntities
from penstock_operator.brokers.management import EntityChanges, EntityVersion
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity

QUEUE = "psub:durable:global:billing"
SUBSCRIPTION, EXCHANGE = EntityType.SUBSCRIPTION, EntityType.EXCHANGE


def entry(**spec: Any) -> DeclareEntity:
    body = declaration.subscription_declaration(subscription(**spec), exchange="orders", cluster_id="c1")
    return DeclareEntity(SUBSCRIPTION, None, body)


def of_exchange() -> DeclareEntity:
    return DeclareEntity(EXCHANGE, "orders", declaration.exchange_declaration(exchange(), cluster_id="c1"))


BILLING = entry()
OWNER = Owner(cluster_id="c1", kind="Subscription", namespace="shop", name="billing", uid="uid-billing")
CREATED = BrokerReply(status=201, body={"outcome": "Created", "revision": 7, "exchange": "orders", "depth": 3})


def declared() -> DeclaredEntities:
    made = DeclaredEntities()
    made.note(BILLING, CREATED)
    return made


def changes(*there: EntityVersion, is_whole: bool = False, removed: tuple[tuple[EntityType, str], ...] = ()) -> Any:
    return EntityChanges(9, is_whole, there, removed)


def there(revision: int | None, owner: Owner | None = OWNER) -> EntityVersion:
    return EntityVersion(SUBSCRIPTION, QUEUE, owner, revision)


def test_the_same_declaration_has_the_same_reply_and_nothing_was_changed() -> None:
    reply = declared().reply_to(BILLING)
    assert reply == BrokerReply(status=200, body={"outcome": "Unchanged", "exchange": "orders"})


def test_another_declaration_has_to_be_sent() -> None:
    assert declared().reply_to(entry(bindingKeys=["a"])) is None
    assert DeclaredEntities().reply_to(BILLING) is None


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(BrokerReply(status=409, reason="Managed", body={"revision": 7}), id="refused"),
        pytest.param(BrokerReply(status=200, body={"outcome": "RebindBlocked", "revision": 7}), id="not-done"),
        pytest.param(BrokerReply(status=201, body={"outcome": "Created"}), id="no-revision"),
    ],
)
def test_what_is_not_done_is_sent_again(reply: BrokerReply) -> None:
    made = declared()
    made.note(BILLING, reply)
    assert made.reply_to(BILLING) is None


@pytest.mark.parametrize(
    ("told", "drifted"),
    [
        pytest.param(changes(), [], id="nothing-changed"),
        pytest.param(changes(there(7)), [], id="the-operator-s-own-change"),
        pytest.param(changes(there(7), removed=((SUBSCRIPTION, QUEUE),)), [], id="removed-before-and-declared-after"),
        pytest.param(changes(there(8)), [OWNER], id="somebody-changed-it"),
        pytest.param(changes(there(8, None)), [OWNER], id="somebody-made-it-anew"),
        pytest.param(changes(removed=((SUBSCRIPTION, QUEUE),)), [OWNER], id="somebody-deleted-it"),
        pytest.param(changes(removed=((EXCHANGE, QUEUE),)), [], id="another-kind-of-that-name"),
        pytest.param(changes(there(7), is_whole=True), [], id="whole-and-there"),
        pytest.param(changes(is_whole=True), [OWNER], id="whole-and-gone"),
        pytest.param(changes(there(None), is_whole=True), [OWNER], id="a-broker-without-revisions"),
    ],
)
def test_who_is_told_of_a_change(told: EntityChanges, drifted: list[Owner]) -> None:
    made = declared()
    assert made.merge(told) == drifted
    assert (made.reply_to(BILLING) is None) is bool(drifted)
    assert made.revision == 9


def test_marked_entities_follow_the_changes() -> None:
    made = DeclaredEntities()
    other = EntityVersion(EXCHANGE, "orders", OWNER, 3)
    made.merge(changes(there(7), other, is_whole=True))
    assert [it.name for it in made.marked()] == [QUEUE, "orders"]
    made.merge(changes(removed=((SUBSCRIPTION, QUEUE),)))
    assert [it.name for it in made.marked()] == ["orders"]
    made.merge(changes(EntityVersion(EXCHANGE, "orders", None, 10)))
    assert made.marked() == []


QUEUES = EntityType.QUEUE


@pytest.mark.parametrize(
    ("told", "is_told"),
    [
        pytest.param(changes(removed=((QUEUES, "dead"),)), True, id="its-queue-for-dead-letters-is-deleted"),
        pytest.param(changes(removed=((QUEUES, "other"),)), False, id="another-queue"),
        pytest.param(
            changes(EntityVersion(QUEUES, "dead", None, None), removed=((QUEUES, "dead"),)), False, id="there-again"
        ),
        pytest.param(changes(there(7), is_whole=True), True, id="whole-without-the-queue"),
        pytest.param(changes(there(7), EntityVersion(QUEUES, "dead", None, None), is_whole=True), False, id="whole"),
    ],
)
def test_a_queue_that_a_declaration_makes_is_made_again(told: EntityChanges, is_told: bool) -> None:
    made = DeclaredEntities()
    sends = entry(delivery={"deadLetter": "dead", "expiry": "late/today", "maxDeliveries": 3})
    made.note(sends, CREATED)
    assert made.merge(told) == ([OWNER] if is_told else [])
    assert (made.reply_to(sends) is None) is is_told


def test_what_the_operator_deletes_itself_is_told_to_nobody() -> None:
    made = declared()
    made.merge(changes(there(7)))
    made.forget(SUBSCRIPTION, QUEUE)
    assert made.merge(changes(removed=((SUBSCRIPTION, QUEUE),))) == []
    assert (made.marked(), made.reply_to(BILLING)) == ([], None)


def test_a_restart_of_the_broker_makes_everything_void() -> None:
    made = declared()
    made.merge(changes(there(7)))
    made.clear()
    assert made == DeclaredEntities()


def test_an_exchange_s_reply_follows_the_number_of_its_subscriptions() -> None:
    made = DeclaredEntities()
    made.note(
        of_exchange(), BrokerReply(status=201, body={"outcome": "Created", "revision": 2, "boundSubscriptions": 0})
    )
    assert [owner.name for owner in made.merge_bound({"orders": 4, "theirs": 1})] == ["orders"]
    assert made.merge_bound({"orders": 4}) == []
    reply = made.reply_to(of_exchange())
    assert reply is not None
    assert reply.body["boundSubscriptions"] == 4


def test_a_queue_is_not_declared_again_until_somebody_changed_it() -> None:
    owner = Owner(cluster_id="c1", kind="Queue", namespace="shop", name="invoices", uid="uid-invoices")
    invoices = DeclareEntity(EntityType.QUEUE, "invoices", declaration.queue_declaration(queue(), cluster_id="c1"))
    made = DeclaredEntities()
    made.note(invoices, BrokerReply(status=201, body={"outcome": "Created", "revision": 7, "name": "invoices"}))
    assert made.reply_to(invoices) == BrokerReply(status=200, body={"outcome": "Unchanged"})
    assert made.merge(changes(EntityVersion(EntityType.QUEUE, "invoices", owner, 7))) == []
    assert [each.claim for each in made.marked()] == [("Queue", "shop", "invoices", "invoices")]
    assert made.merge(changes(EntityVersion(EntityType.QUEUE, "invoices", owner, 8))) == [owner]
    assert made.reply_to(invoices) is None


def test_the_destination_of_a_queue_that_is_gone_is_declared_again_by_it() -> None:
    body = declaration.queue_declaration(queue(delivery={"deadLetter": "dead"}), cluster_id="c1")
    invoices = DeclareEntity(EntityType.QUEUE, "invoices", body)
    made = DeclaredEntities()
    made.note(invoices, BrokerReply(status=201, body={"outcome": "Created", "revision": 7}))
    assert [each.name for each in made.merge(changes(removed=((EntityType.QUEUE, "dead"),)))] == ["invoices"]


ENDING = DeleteEntity(
    entity=SUBSCRIPTION, name=QUEUE, if_unused=False, if_empty=False, owner_uid="uid-billing", rights_only=True
)
DONE = BrokerReply(status=204)
MANAGED = BrokerReply(status=409, reason="Managed")


def withdrawn(reply: BrokerReply = DONE) -> DeclaredEntities:
    made = declared()
    made.note_withdrawal(ENDING, reply)
    return made


@pytest.mark.parametrize("reply", [DONE, MANAGED], ids=["ended", "of-another-resource"])
def test_rights_that_have_ended_are_not_ended_again(reply: BrokerReply) -> None:
    made = withdrawn(reply)
    assert made.withdrawal_reply(ENDING) == reply
    assert made.withdrawal_reply(replace(ENDING, owner_uid="uid-of-a-later-one")) is None


def test_another_refusal_is_asked_for_again() -> None:
    assert withdrawn(BrokerReply(status=503, reason="StorageFull")).withdrawal_reply(ENDING) is None


def test_after_its_rights_have_ended_it_is_declared_anew_and_may_then_have_rights_again() -> None:
    made = withdrawn()
    assert made.reply_to(BILLING) is None
    made.note(BILLING, CREATED)
    assert made.withdrawal_reply(ENDING) is None


def test_a_change_that_is_told_after_it_costs_one_request_more_and_no_third() -> None:
    """It may be the change by the withdrawal itself, or somebody else's."""
    made = withdrawn()
    made.merge(changes(there(8)))
    assert made.withdrawal_reply(ENDING) is None
    made.note_withdrawal(ENDING, DONE)
    for is_whole in (False, True):
        made.merge(changes(there(8), is_whole=is_whole))
        assert made.withdrawal_reply(ENDING) == DONE
    made.merge(changes(there(9)))
    assert made.withdrawal_reply(ENDING) is None, "somebody has changed it"


def test_what_is_gone_or_in_another_life_of_the_broker_has_no_rights_that_are_known_to_have_ended() -> None:
    removed, restarted, deleted = withdrawn(), withdrawn(), withdrawn()
    removed.merge(changes(removed=((SUBSCRIPTION, QUEUE),)))
    restarted.clear()
    deleted.forget(SUBSCRIPTION, QUEUE)
    for made in (removed, restarted, deleted):
        assert made.withdrawal_reply(ENDING) is None


def test_whose_an_entity_is_says_the_last_declaration_before_the_broker_does() -> None:
    other = OWNER.model_copy(update={"namespace": "spy"})
    made = DeclaredEntities()
    assert made.owner_of(SUBSCRIPTION, QUEUE) is None
    made.merge(changes(there(3, other)))
    assert made.owner_of(SUBSCRIPTION, QUEUE) == other
    made.note(BILLING, CREATED)
    assert made.owner_of(SUBSCRIPTION, QUEUE) == BILLING.body.owner
    made.merge(changes(there(8, other)))
    assert made.owner_of(SUBSCRIPTION, QUEUE) == other
