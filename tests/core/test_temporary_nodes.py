"""Temporary queues and topics (AMQP 1.0 part 3, 3.5.9 to 3.5.13)."""

from __future__ import annotations

import pytest

from penstock_core.address import NodeKind, check_exchange_name, check_queue_name, parse_source, parse_target
from penstock_core.auto_creation import ANYTHING
from penstock_core.reason import ErrorCondition, Reason, Refuse
from penstock_core.temporary_nodes import (
    LifetimePolicy,
    MakeTemporary,
    Use,
    check_consumer,
    decide_dynamic,
    is_exclusive,
    is_over,
    may_come_back,
    temporary_name,
)
from penstock_core.terms import ExchangeType, ExpiryPolicy

ON_CLOSE = LifetimePolicy.DELETE_ON_CLOSE


class Nothing:
    """A directory without names."""

    def has_queue(self, name: str) -> bool:
        return False

    def exchange_type(self, name: str) -> ExchangeType | None:
        return None


def asked(
    *kinds: NodeKind, address: str | None = None, policy: LifetimePolicy | None = None, made: int = 0
) -> MakeTemporary | Refuse:
    return decide_dynamic(address, frozenset(kinds), policy, token="t0ken", made=made, limit=3)


@pytest.mark.parametrize(
    ("kinds", "made"),
    [
        ((), MakeTemporary(NodeKind.QUEUE, "temporary-queue:t0ken", ON_CLOSE)),
        ((NodeKind.QUEUE,), MakeTemporary(NodeKind.QUEUE, "temporary-queue:t0ken", ON_CLOSE)),
        ((NodeKind.TOPIC,), MakeTemporary(NodeKind.TOPIC, "temporary-topic:t0ken", ON_CLOSE)),
    ],
)
def test_capabilities_say_which_kind_is_made(kinds: tuple[NodeKind, ...], made: MakeTemporary) -> None:
    assert asked(*kinds) == made


@pytest.mark.parametrize("policy", list(LifetimePolicy))
def test_the_policy_asked_is_put_in_place(policy: LifetimePolicy) -> None:
    assert asked(policy=policy) == MakeTemporary(NodeKind.QUEUE, "temporary-queue:t0ken", policy)


def test_what_is_refused() -> None:
    for refused, reason, condition in (
        (asked(address="mine"), Reason.INVALID_ADDRESS, ErrorCondition.INVALID_FIELD),
        (asked(NodeKind.QUEUE, NodeKind.TOPIC), Reason.INVALID_ADDRESS, ErrorCondition.INVALID_FIELD),
        (asked(made=3), Reason.LIMIT_EXCEEDED, ErrorCondition.RESOURCE_LIMIT_EXCEEDED),
    ):
        assert isinstance(refused, Refuse)
        assert (refused.reason, refused.condition) == (reason, condition)
    assert isinstance(asked(made=2), MakeTemporary)


def test_only_the_connection_that_made_it_consumes() -> None:
    assert check_consumer("temporary-queue:a", 7, 7) is None
    refused = check_consumer("temporary-queue:a", 7, 8)
    assert refused is not None
    assert (refused.reason, refused.condition) == (Reason.OTHER_CONNECTION, ErrorCondition.RESOURCE_LOCKED)


@pytest.mark.parametrize(
    ("capabilities", "exclusive"),
    [((), False), (("queue",), False), (("temporary-queue",), True), (("topic", "temporary-topic"), True)],
)
def test_only_a_terminus_that_says_temporary_asks_for_that(capabilities: tuple[str, ...], exclusive: bool) -> None:
    assert is_exclusive(capabilities) is exclusive


def test_anybody_consumes_from_a_node_that_is_not_exclusive() -> None:
    assert check_consumer("temporary-queue:a", 7, 8, exclusive=False) is None


def test_a_durable_subscription_would_outlive_it() -> None:
    refused = check_consumer("temporary-topic:a", 7, 7, durable=True)
    assert refused is not None
    assert refused.reason is Reason.OTHER_KIND_OF_NODE


# creator attached, links, messages -> gone by: close, no links, no messages, no links or messages
@pytest.mark.parametrize(
    ("use", "gone"),
    [
        (Use(True, 1, 0), (False, False, False, False)),
        (Use(True, 2, 5), (False, False, False, False)),
        (Use(False, 1, 0), (True, False, True, False)),
        (Use(False, 1, 5), (True, False, False, False)),
        (Use(False, 0, 5), (True, True, False, False)),
        (Use(False, 0, 0), (True, True, True, True)),
    ],
)
def test_when_a_node_goes(use: Use, gone: tuple[bool, bool, bool, bool]) -> None:
    assert tuple(is_over(policy, use) for policy in LifetimePolicy) == gone


@pytest.mark.parametrize(
    ("expiry", "after_detach", "after_session"),
    [
        (ExpiryPolicy.LINK_DETACH, False, False),
        (ExpiryPolicy.SESSION_END, True, False),
        (ExpiryPolicy.CONNECTION_CLOSE, True, True),
        (ExpiryPolicy.NEVER, True, True),
    ],
)
def test_when_a_link_may_come_back(expiry: ExpiryPolicy, after_detach: bool, after_session: bool) -> None:
    """3.5.6"""
    assert may_come_back(expiry, session_ended=False) is after_detach
    assert may_come_back(expiry, session_ended=True) is after_session


@pytest.mark.parametrize("kind", list(NodeKind))
def test_nobody_else_can_make_such_a_name(kind: NodeKind) -> None:
    name = temporary_name(kind, "abc")
    for check in (check_exchange_name, check_queue_name):
        refused = check(name)
        assert refused is not None
        assert refused.reason is Reason.INVALID_NAME


@pytest.mark.parametrize("kind", list(NodeKind))
def test_one_that_is_gone_is_not_made_again_by_its_name(kind: NodeKind) -> None:
    name = temporary_name(kind, "abc")
    for found in (
        parse_source(name, (), Nothing(), auto_create=ANYTHING),
        parse_target(name, (f"temporary-{kind.value}",), Nothing(), auto_create=ANYTHING),
        parse_source(name, (), Nothing()),
    ):
        assert isinstance(found, Refuse)
        assert (found.reason, found.condition) == (Reason.ADDRESS_NOT_FOUND, ErrorCondition.NOT_FOUND)
