"""Deletion does not hang on what is gone, and loses no messages against the policy. The expectations are a table, typed
by hand.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from support.resources import NOW, subscription

from penstock_api.management import EntityType
from penstock_operator.plans.decisions import (
    BrokerReply,
    BrokerView,
    DeleteEntity,
    KeepStatus,
    Reach,
    RemoveFinalizer,
    Report,
    Retry,
)
from penstock_operator.plans.deletion import DeletionView, plan_deletion, view_of

VIEW = DeletionView(
    entity=EntityType.SUBSCRIPTION,
    name="psub:durable:global:billing",
    uid="u1",
    policy="Delete",
    is_protected=False,
    is_forced=False,
    broker=BrokerView(reach=Reach.CONNECTED, problem="It is away."),
    is_duplicate=False,
    namespace_terminating=False,
    seconds=1,
    unanswered_seconds=0,
)
AWAY = replace(
    VIEW, broker=BrokerView(reach=Reach.UNREACHABLE, problem="It is away."), seconds=30, unanswered_seconds=30
)
NOT_UNDERSTOOD = replace(AWAY, broker=BrokerView(reach=Reach.NOT_UNDERSTOOD, problem="It is away."))
GONE = BrokerReply(status=204)
BUSY = BrokerReply(status=409, reason="ConsumersActive", body={"containers": ["pod-1", "pod-2"]})
FULL = BrokerReply(status=409, reason="NotEmpty", body={"depth": 17})
BOUND = BrokerReply(status=409, reason="BindingsExist")
ANOTHERS = BrokerReply(status=409, reason="Managed")


def at(reach: Reach) -> BrokerView:
    return BrokerView(reach=reach, problem="It is away.")


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(replace(VIEW, broker=at(Reach.ABSENT)), id="broker-gone"),
        pytest.param(replace(VIEW, broker=at(Reach.DELETING)), id="broker-being-deleted"),
        pytest.param(replace(VIEW, broker=at(Reach.STOPPED)), id="broker-scaled-to-zero"),
        pytest.param(AWAY, id="broker-away-for-30-s"),
        pytest.param(NOT_UNDERSTOOD, id="broker-not-understood-for-30-s"),
        pytest.param(replace(VIEW, broker=at(Reach.UNREACHABLE), is_forced=True), id="broker-away-and-forced"),
        pytest.param(
            replace(VIEW, is_forced=True, reply=BrokerReply(status=503, reason="StorageFull")), id="no-room-and-forced"
        ),
        pytest.param(replace(VIEW, policy="Retain"), id="retain"),
        pytest.param(replace(VIEW, is_duplicate=True), id="never-declared-anything"),
        pytest.param(replace(VIEW, namespace_terminating=True, seconds=30), id="namespace-terminating-for-30-s"),
        pytest.param(
            replace(VIEW, namespace_terminating=True, seconds=31, reply=BUSY), id="namespace-goes-though-busy"
        ),
        pytest.param(
            replace(VIEW, namespace_terminating=True, seconds=31, is_protected=True),
            id="namespace-goes-though-protected",
        ),
        pytest.param(replace(VIEW, reply=GONE), id="the-broker-has-removed-it"),
        pytest.param(replace(VIEW, reply=ANOTHERS), id="another-resource-declares-it-by-now"),
    ],
)
def test_released(view: DeletionView) -> None:
    assert isinstance(plan_deletion(view), RemoveFinalizer)


@pytest.mark.parametrize(
    ("view", "is_removal_pending"),
    [
        (AWAY, True),
        (replace(VIEW, broker=at(Reach.UNREACHABLE), is_forced=True), True),
        (replace(VIEW, is_forced=True, reply=BrokerReply(status=503, reason="StorageFull")), True),
        (replace(VIEW, broker=at(Reach.STOPPED)), True),
        (replace(VIEW, namespace_terminating=True, seconds=31, reply=BUSY), True),
        (replace(VIEW, reply=GONE), False),
        (replace(VIEW, reply=ANOTHERS), False),
        (replace(VIEW, policy="Retain", broker=at(Reach.UNREACHABLE), seconds=30, unanswered_seconds=30), False),
        (replace(VIEW, is_duplicate=True), False),
        (replace(VIEW, broker=at(Reach.DELETING)), False),
    ],
)
def test_what_the_broker_was_not_asked_is_owed(view: DeletionView, is_removal_pending: bool) -> None:
    decision = plan_deletion(view)
    assert isinstance(decision, RemoveFinalizer)
    assert decision.is_removal_pending is is_removal_pending


@pytest.mark.parametrize(
    ("view", "reason", "words"),
    [
        pytest.param(replace(VIEW, reply=BUSY), "ConsumersActive", ["pod-1, pod-2", "force-delete=true"], id="busy"),
        pytest.param(replace(VIEW, reply=FULL), "NotEmpty", ["17 message(s)", "lose the messages"], id="not-empty"),
        pytest.param(  # an exchange has no messages to lose
            replace(VIEW, entity=EntityType.EXCHANGE, reply=BOUND),
            "BindingsExist",
            ["Delete them", "to delete it at once."],
            id="bound",
        ),
        pytest.param(replace(VIEW, broker=at(Reach.NOT_ASKED)), "BrokerNotAsked", ["It is away."], id="not-asked"),
        pytest.param(replace(VIEW, broker=at(Reach.UNREACHABLE)), "BrokerUnreachable", ["It is away."], id="away"),
        pytest.param(replace(VIEW, broker=at(Reach.NOT_UNDERSTOOD)), "OperatorTooOld", ["It is away."], id="too-new"),
        pytest.param(
            replace(VIEW, broker=at(Reach.UNREADABLE)), "ReferenceUnreadable", ["It is away."], id="unreadable"
        ),
        pytest.param(
            replace(VIEW, broker=at(Reach.UNREACHABLE), seconds=86400, unanswered_seconds=29.9),
            "BrokerUnreachable",
            ["It is away."],
            id="waited-for-a-day-and-away-for-29.9-s",
        ),
        pytest.param(
            replace(VIEW, namespace_terminating=True, seconds=29, reply=BUSY),
            "ConsumersActive",
            [],
            id="namespace-29-s",
        ),
        pytest.param(
            replace(VIEW, reply=BrokerReply(status=503, reason="StorageFull")), "StorageFull", [], id="no-room"
        ),
    ],
)
def test_blocked_and_tried_again(view: DeletionView, reason: str, words: list[str]) -> None:
    decision = plan_deletion(view)
    assert isinstance(decision, Report)
    assert [(it.type, it.status.value, str(it.reason)) for it in decision.conditions] == [
        ("Ready", "False", reason),
        ("DeletionBlocked", "True", reason),
    ]
    assert decision.retry is Retry.BACKOFF
    for word in words:
        assert word in decision.conditions[0].message


def test_a_broker_that_was_not_asked_yet_is_not_called_silent() -> None:
    """Its Broker may wait in the queue while thousands of deletions are looked at; that is not the broker's silence."""
    awaited = BrokerView(reach=Reach.NOT_ASKED, problem="Not yet.", is_awaited=True)
    view = replace(VIEW, broker=awaited, seconds=86400, unanswered_seconds=119)
    assert plan_deletion(view) == KeepStatus(Retry.BACKOFF)
    assert isinstance(plan_deletion(replace(view, is_forced=True)), RemoveFinalizer)


def test_protection_waits_for_a_person() -> None:
    decision = plan_deletion(replace(VIEW, is_protected=True, reply=GONE))
    assert isinstance(decision, Report)
    assert str(decision.conditions[1].reason) == "ProtectedByAnnotation"
    assert decision.retry is Retry.RESYNC


@pytest.mark.parametrize(
    ("entity", "policy", "forced", "if_unused", "if_empty"),
    [
        (EntityType.SUBSCRIPTION, "Delete", False, True, False),
        (EntityType.SUBSCRIPTION, "DeleteWhenEmpty", False, True, True),
        (EntityType.SUBSCRIPTION, "DeleteWhenEmpty", True, False, False),
        (EntityType.SUBSCRIPTION, "Delete", True, False, False),
        (EntityType.EXCHANGE, "Delete", False, False, False),
        (EntityType.EXCHANGE, "DeleteWhenUnused", False, True, False),
        (EntityType.EXCHANGE, "DeleteWhenUnused", True, False, False),
    ],
)
def test_what_the_broker_is_asked(
    entity: EntityType, policy: str, forced: bool, if_unused: bool, if_empty: bool
) -> None:
    assert plan_deletion(replace(VIEW, entity=entity, policy=policy, is_forced=forced)) == DeleteEntity(
        entity=entity,
        name="psub:durable:global:billing",
        if_unused=if_unused,
        if_empty=if_empty,
        owner_uid="u1",
    )


@pytest.mark.parametrize(
    ("requested", "away_since", "waited"),
    [
        pytest.param(3600, 5, 5, id="an-old-deletion-and-a-blip"),
        pytest.param(5, 3600, 5, id="a-new-deletion-and-a-broker-that-is-down-for-long"),
        pytest.param(3600, None, 0, id="the-connection-is-lost-in-this-moment"),
    ],
)
def test_the_wait_for_a_broker_begins_with_the_later_of_both(
    requested: int, away_since: int | None, waited: float
) -> None:
    """`requested` and `away_since` in seconds before now."""
    since = None if away_since is None else NOW - timedelta(seconds=away_since)
    made = view_of(
        subscription(metadata={"deletionTimestamp": (NOW - timedelta(seconds=requested)).isoformat()}),
        broker=BrokerView(reach=Reach.UNREACHABLE, unreachable_since=since),
        is_duplicate=False,
        namespace_terminating=False,
        now=NOW,
        reply=None,
    )
    assert (made.seconds, made.unanswered_seconds) == (requested, waited)


@pytest.mark.parametrize(
    ("behind", "away_since", "counted"),
    [
        pytest.param(29, 3600, (-29, -29), id="clocks-that-are-nearly-the-same"),
        pytest.param(600, 3600, (30, 30), id="a-broker-that-is-down-for-long"),
        pytest.param(600, 5, (30, 5), id="a-blip"),
    ],
)
def test_an_operator_whose_clock_is_behind_does_not_wait_until_it_has_caught_up(
    behind: int, away_since: int, counted: tuple[float, float]
) -> None:
    """A deletion is requested now by the clock of the API server, from which the operator's differs by `behind` s."""
    made = view_of(
        subscription(metadata={"deletionTimestamp": (NOW + timedelta(seconds=behind)).isoformat()}),
        broker=BrokerView(reach=Reach.UNREACHABLE, unreachable_since=NOW - timedelta(seconds=away_since)),
        is_duplicate=False,
        namespace_terminating=False,
        now=NOW,
        reply=None,
    )
    assert (made.seconds, made.unanswered_seconds) == counted
