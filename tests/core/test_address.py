"""Addresses (docs/reference/addresses.md)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.address import (
    PREDEFINED,
    AnonymousRelay,
    CreateNode,
    ExchangeAddress,
    ManagementAddress,
    NodeKind,
    QueueAddress,
    SourceAddress,
    SubscriptionQueue,
    check_exchange_name,
    check_queue_name,
    has_prefix,
    parse_source,
    parse_target,
)
from penstock_core.auto_creation import ANYTHING, NOTHING, AutoCreation, CreationRule
from penstock_core.identity import GLOBAL, Identity
from penstock_core.reason import ErrorCondition, Reason, Refuse
from penstock_core.terms import ExchangeType

TOPIC = ExchangeType.TOPIC


@dataclass
class Names:
    """A directory for tests."""

    queues: set[str] = field(default_factory=set[str])
    exchanges: dict[str, ExchangeType] = field(default_factory=lambda: dict(PREDEFINED))

    def has_queue(self, name: str) -> bool:
        return name in self.queues

    def exchange_type(self, name: str) -> ExchangeType | None:
        return self.exchanges.get(name)


NAMES = Names(
    queues={"jobs", "both", "orders/eu"},
    exchanges={**PREDEFINED, "orders": TOPIC, "both": TOPIC, "o": TOPIC},
)


def source(address: str | None, *capabilities: str, auto_create: bool = False) -> SourceAddress:
    return parse_source(address, capabilities, NAMES, auto_create=ANYTHING if auto_create else NOTHING)


def reason(found: object) -> Reason:
    assert isinstance(found, Refuse)
    return found.reason


@pytest.mark.parametrize(
    ("address", "capabilities", "found"),
    [
        ("orders", (), ExchangeAddress("orders", TOPIC, None)),
        ("orders/us.#", (), ExchangeAddress("orders", TOPIC, "us.#")),
        ("orders/a/b", (), ExchangeAddress("orders", TOPIC, "a/b")),
        ("o/x", (), ExchangeAddress("o", TOPIC, "x")),
        ("orders/", (), ExchangeAddress("orders", TOPIC, "")),
        ("orders/eu", (), QueueAddress("orders/eu")),
        ("orders/eu", ("topic",), ExchangeAddress("orders", TOPIC, "eu")),
        ("jobs", (), QueueAddress("jobs")),
        ("both", (), QueueAddress("both")),
        ("both", ("queue",), QueueAddress("both")),
        ("both", ("topic",), ExchangeAddress("both", TOPIC, None)),
        ("both", ("shared",), ExchangeAddress("both", TOPIC, None)),
        ("topic://both", (), ExchangeAddress("both", TOPIC, None)),
        ("topic://both/x", ("topic",), ExchangeAddress("both", TOPIC, "x")),
        ("queue://both", (), QueueAddress("both")),
        ("jobs", ("temporary-queue",), QueueAddress("jobs")),
        ("orders", ("temporary-topic",), ExchangeAddress("orders", TOPIC, None)),
        ("amq.topic", (), ExchangeAddress("amq.topic", TOPIC, None)),
        ("amq.direct/k", (), ExchangeAddress("amq.direct", ExchangeType.DIRECT, "k")),
        ("amq.fanout", (), ExchangeAddress("amq.fanout", ExchangeType.FANOUT, None)),
        ("psub:durable:global:a", (), SubscriptionQueue(Identity(GLOBAL, "a", True))),
        ("$management", (), ManagementAddress()),
    ],
)
def test_what_an_address_means(address: str, capabilities: tuple[str, ...], found: SourceAddress) -> None:
    assert parse_source(address, capabilities, NAMES) == found
    assert parse_target(address, capabilities, NAMES) == found


@pytest.mark.parametrize(
    ("address", "capabilities", "why"),
    [
        ("nothing", (), Reason.ADDRESS_NOT_FOUND),
        ("nothing", ("topic",), Reason.EXCHANGE_NOT_FOUND),
        ("nothing/x", ("topic", "shared", "global"), Reason.EXCHANGE_NOT_FOUND),
        ("topic://jobs", (), Reason.EXCHANGE_NOT_FOUND),
        ("nothing", ("queue",), Reason.QUEUE_NOT_FOUND),
        ("queue://orders", (), Reason.QUEUE_NOT_FOUND),
        ("/orders", (), Reason.ADDRESS_NOT_FOUND),
        ("topic://psub:durable:global:a", (), Reason.EXCHANGE_NOT_FOUND),
    ],
)
def test_decision_12_what_is_missing_is_not_found(address: str, capabilities: tuple[str, ...], why: Reason) -> None:
    found = source(address, *capabilities)
    assert reason(found) is why
    assert why.condition is ErrorCondition.NOT_FOUND


@pytest.mark.parametrize(
    ("address", "capabilities"),
    [("queue://jobs", ("topic",)), ("topic://orders", ("queue",)), ("jobs", ("queue", "shared"))],
)
def test_contradictions_are_refused(address: str, capabilities: tuple[str, ...]) -> None:
    assert reason(source(address, *capabilities)) is Reason.INVALID_ADDRESS


@pytest.mark.parametrize("address", [None, ""])
def test_no_address(address: str | None) -> None:
    assert reason(source(address)) is Reason.INVALID_ADDRESS
    assert parse_target(address, (), NAMES) == AnonymousRelay()


@pytest.mark.parametrize(
    ("address", "capabilities", "made"),
    [
        ("new", (), CreateNode(NodeKind.QUEUE, "new")),
        ("new", ("queue",), CreateNode(NodeKind.QUEUE, "new")),
        ("queue://new/a", (), CreateNode(NodeKind.QUEUE, "new/a")),
        ("new", ("topic",), CreateNode(NodeKind.TOPIC, "new")),
        ("topic://new/a/b", (), CreateNode(NodeKind.TOPIC, "new")),
        ("orders/us", (), ExchangeAddress("orders", TOPIC, "us")),
    ],
)
def test_auto_creation(address: str, capabilities: tuple[str, ...], made: SourceAddress) -> None:
    assert source(address, *capabilities, auto_create=True) == made


@pytest.mark.parametrize(
    ("address", "capabilities", "told"),
    [
        ("jobs", ("topic",), "capability queue, or queue://jobs"),
        ("topic://jobs", (), "capability queue, or queue://jobs"),
        ("jobs/eu", ("topic", "shared"), "capability queue, or queue://jobs"),
        ("jobs", ("shared", "global"), "topic://jobs"),
        ("o", ("queue",), "capability topic, or topic://o"),
        ("queue://o", (), "capability topic, or topic://o"),
        ("queue://o/us", (), "the topic 'o' with the key 'us'"),
        ("amq.topic", ("queue",), "capability topic, or topic://amq.topic"),
    ],
)
def test_decision_78_a_name_is_one_kind_of_node(address: str, capabilities: tuple[str, ...], told: str) -> None:
    for found in (
        source(address, *capabilities, auto_create=True),
        parse_target(address, capabilities, NAMES, auto_create=ANYTHING),
    ):
        assert isinstance(found, Refuse)
        assert found.reason is Reason.OTHER_KIND_OF_NODE
        assert found.condition is ErrorCondition.NOT_FOUND
        assert told in found.description


def test_decision_78_what_resources_declare_may_be_both() -> None:
    assert source("both", "topic", auto_create=True) == ExchangeAddress("both", TOPIC, None)
    assert source("both", "queue", auto_create=True) == QueueAddress("both")


def test_decision_78_without_auto_creation_the_name_is_just_not_there() -> None:
    assert reason(source("jobs", "topic")) is Reason.EXCHANGE_NOT_FOUND
    assert reason(source("o", "queue")) is Reason.QUEUE_NOT_FOUND


@pytest.mark.parametrize(
    ("address", "capabilities", "why"),
    [
        ("topic://PRICE.STOCK.NYSE.*", (), Reason.EXCHANGE_NOT_FOUND),
        ("PRICE.#", ("topic",), Reason.EXCHANGE_NOT_FOUND),
        ("*", (), Reason.ADDRESS_NOT_FOUND),
        ("new.#/a", (), Reason.ADDRESS_NOT_FOUND),
        ("new/*/a", ("queue",), Reason.QUEUE_NOT_FOUND),
    ],
)
@pytest.mark.parametrize("auto_create", [True, False])
def test_decision_19_no_name_with_a_wildcard_is_made(
    address: str, capabilities: tuple[str, ...], why: Reason, auto_create: bool
) -> None:
    found = source(address, *capabilities, auto_create=auto_create)
    assert isinstance(found, Refuse)
    assert (found.reason, "'orders/eu.*'" in found.description) == (why, True)


@pytest.mark.parametrize(
    ("address", "made"),
    [
        ("new/eu.*", CreateNode(NodeKind.TOPIC, "new")),
        ("topic://new/#", CreateNode(NodeKind.TOPIC, "new")),
        ("a*b.#c", CreateNode(NodeKind.QUEUE, "a*b.#c")),
    ],
)
def test_decision_19_wildcards_are_words_of_a_key(address: str, made: CreateNode) -> None:
    assert source(address, auto_create=True) == made


def test_what_is_missing_without_a_wildcard_gets_no_hint_on_them() -> None:
    found = source("new/eu.*")
    assert isinstance(found, Refuse)
    assert "orders/eu" not in found.description


def test_nothing_is_created_unless_that_is_on() -> None:
    assert reason(parse_source("new", (), NAMES)) is Reason.ADDRESS_NOT_FOUND
    assert reason(parse_target("new", (), NAMES)) is Reason.ADDRESS_NOT_FOUND


def test_the_refusal_names_the_characters_to_leave_out() -> None:
    refused = check_exchange_name("a/b")
    assert refused is not None
    assert refused.description.endswith("holds a character that it can't have; leave out / and |.")


@pytest.mark.parametrize("address", ["topic:///x", "topic://", "queue://", "$other", "queue://topic://x"])
def test_auto_creation_makes_no_invalid_name(address: str) -> None:
    assert reason(source(address, auto_create=True)) is Reason.INVALID_NAME


@pytest.mark.parametrize("name", ["", "a/b", "a|b", "$a", "psub:a", "topic://a", "queue://a", "a\n", "a" * 256])
def test_names_that_no_exchange_has(name: str) -> None:
    assert reason(check_exchange_name(name)) is Reason.INVALID_NAME


@pytest.mark.parametrize("name", ["", "$a", "psub:a", "topic://a", "queue://a", "a\x00", "a" * 256])
def test_names_that_no_queue_has(name: str) -> None:
    assert reason(check_queue_name(name)) is Reason.INVALID_NAME


@pytest.mark.parametrize("name", ["orders", "a", "amq.topic", "Bücher", "a b", "a" * 255])
def test_names_that_both_may_have(name: str) -> None:
    assert check_exchange_name(name) is None
    assert check_queue_name(name) is None


def test_a_queue_may_have_a_slash_and_a_bar() -> None:
    assert check_queue_name("a/b|c") is None


@given(
    st.text() | st.text(alphabet="orders/jbt:|$psu", max_size=20),
    st.sets(st.sampled_from(["topic", "queue", "shared", "global", "x"])),
    st.booleans(),
)
def test_every_address_gets_an_answer(address: str, capabilities: set[str], auto_create: bool) -> None:
    found = parse_source(address, capabilities, NAMES, auto_create=ANYTHING if auto_create else NOTHING)
    if isinstance(found, CreateNode):
        after = Names(set(NAMES.queues), dict(NAMES.exchanges))
        if found.kind is NodeKind.QUEUE:
            after.queues.add(found.name)
        else:
            after.exchanges[found.name] = TOPIC
        again = parse_source(address, capabilities, after, auto_create=ANYTHING if auto_create else NOTHING)
        assert isinstance(again, QueueAddress | ExchangeAddress)


@pytest.mark.parametrize(
    ("address", "says"), [("topic://x", True), ("queue://x", True), ("x", False), ("x/topic://", False), ("", False)]
)
def test_whether_an_address_says_its_kind_itself(address: str, says: bool) -> None:
    assert has_prefix(address) is says


BY_NAME = AutoCreation(CreationRule(("app.*", "jobs/*")), CreationRule(("app.*", "news")))


@pytest.mark.parametrize(
    ("address", "capabilities", "made"),
    [
        ("app.a", (), CreateNode(NodeKind.QUEUE, "app.a")),
        ("app.a", ("topic",), CreateNode(NodeKind.TOPIC, "app.a")),
        ("topic://app.a/key", (), CreateNode(NodeKind.TOPIC, "app.a")),
        ("jobs/eu", (), CreateNode(NodeKind.QUEUE, "jobs/eu")),
        ("news/eu", (), CreateNode(NodeKind.TOPIC, "news")),  # no queue may have that name
        ("jobs/eu", ("topic",), Reason.EXCHANGE_NOT_FOUND),
        ("app.b", ("topic",), CreateNode(NodeKind.TOPIC, "app.b")),
        ("news", ("queue",), Reason.QUEUE_NOT_FOUND),
        ("other", (), Reason.ADDRESS_NOT_FOUND),
    ],
)
def test_rules_of_auto_creation(address: str, capabilities: tuple[str, ...], made: CreateNode | Reason) -> None:
    found = parse_target(address, capabilities, NAMES, auto_create=BY_NAME)
    assert (reason(found) if isinstance(found, Refuse) else found) == made
