"""Which live link an attach takes over: decisions 5 and 16 (docs/decisions)."""

from __future__ import annotations

import pytest
from core.factories import ANN, BOB, identity, live

from penstock_core.existing_subscription import LinkKind, LiveLink, QueueLink, TopicLink
from penstock_core.link_stealing import STOLEN, NothingLive, Steal, decide_steal
from penstock_core.reason import ErrorCondition, Reason, Refuse

SHARED = TopicLink(shared=True, global_=True, durable=True)


def test_decision_05_nothing_live() -> None:
    assert decide_steal(SHARED, None, ANN, False) == NothingLive()


@pytest.mark.parametrize("kind", [SHARED, QueueLink("q")])
def test_decision_05_the_same_kind_is_stolen(kind: LinkKind) -> None:
    assert decide_steal(kind, LiveLink(kind=kind, identity=None, user=ANN), ANN, False) == Steal()


@pytest.mark.parametrize(
    ("asks", "words"),
    [
        (TopicLink(shared=False, global_=True, durable=True), "not shared, global, durable"),
        (TopicLink(shared=True, global_=False, durable=True), "shared, container, durable"),
        (TopicLink(shared=True, global_=True, durable=False), "shared, global, volatile"),
        (QueueLink("q"), "a consumer of queue 'q'"),
    ],
)
def test_decision_05_another_kind_is_locked_and_says_which(asks: LinkKind, words: str) -> None:
    decision = decide_steal(asks, live(identity(), shared=True, global_=True, durable=True), ANN, True)
    assert isinstance(decision, Refuse)
    assert decision.reason is Reason.LINK_LIVE_FOR_OTHER_KIND
    assert decision.condition is ErrorCondition.RESOURCE_LOCKED
    assert f"attached as shared, global, durable, and this attach asks for {words};" in decision.description


def test_decision_16_another_users_link_needs_a_permission() -> None:
    link = live(identity(), shared=True, global_=True, durable=True, user=ANN)
    decision = decide_steal(SHARED, link, BOB, False)
    assert isinstance(decision, Refuse)
    assert decision.condition is ErrorCondition.UNAUTHORIZED_ACCESS
    assert decide_steal(SHARED, link, BOB, True) == Steal()


def test_the_loser_is_told() -> None:
    assert STOLEN.condition.value == "amqp:link:stolen"
