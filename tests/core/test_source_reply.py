"""The reply's source: decisions 2, 7, 8, 11, 14 and 17 (docs/decisions)."""

from __future__ import annotations

import pytest
from core.factories import asked, attaching, identity, resource, there

from penstock_core.attach import AskedSource, AttachRequest, Create, FoundSubscription, Join, Rebind, decide, look_up
from penstock_core.binding import Binding, Filter
from penstock_core.existing_subscription import ExistingSubscription
from penstock_core.header_bindings import HeaderMatch, header_binding
from penstock_core.source_reply import SourceReply, binding_address, source_reply
from penstock_core.terms import ClientOverrides, DistributionMode, Durability, ExchangeType, ExpiryPolicy, Lifetime

EU = Filter(selector="region = 'eu'")


def reply_to(request: AttachRequest, existing: ExistingSubscription | None = None) -> SourceReply:
    decision = decide(request, existing, None)
    assert isinstance(decision, Create | Join | Rebind)
    return source_reply(request, decision)


@pytest.mark.parametrize(
    ("asked_for", "told"),
    [(0, Durability.NONE), (1, Durability.CONFIGURATION), (2, Durability.CONFIGURATION)],
)
def test_decision_02_durability_1_for_1_or_2(asked_for: int, told: Durability) -> None:
    assert reply_to(attaching(shared=True, durability=asked_for)).durability is told


def test_decision_02_and_11_distribution_mode_move_on_a_topic() -> None:
    assert reply_to(attaching()).distribution_mode is DistributionMode.MOVE


@pytest.mark.parametrize(
    ("expiry", "told"),
    [(None, ExpiryPolicy.SESSION_END), *((each, each) for each in ExpiryPolicy)],
)
def test_decision_07_a_new_one_is_told_as_asked(expiry: ExpiryPolicy | None, told: ExpiryPolicy) -> None:
    assert reply_to(attaching(expiry=expiry)).expiry is told


def test_decision_07_an_existing_one_is_told_as_it_is() -> None:
    existing = there(identity("sub", durable=False), lifetime=Lifetime.SESSION_END)
    request = attaching(shared=True, global_=True, durability=0, expiry=ExpiryPolicy.LINK_DETACH)
    assert reply_to(request, existing).expiry is ExpiryPolicy.SESSION_END


def test_decision_07_a_rebound_one_keeps_its_lifetime_and_says_so() -> None:
    existing = there(identity("sub"), lifetime=Lifetime.CONNECTION_CLOSE)
    reply = reply_to(attaching(shared=True, global_=True, durability=2, source=asked(filter=EU)), existing)
    assert reply.expiry is ExpiryPolicy.CONNECTION_CLOSE
    assert reply.filter == EU


def test_decision_08_a_null_source_is_told_the_real_one() -> None:
    existing = there(identity("sub"), keys=frozenset({"eu.#"}), filter=EU, consumers=2)
    request = attaching("sub|global", null_source=True)
    found = look_up(request, {existing.identity: existing})
    assert isinstance(found, FoundSubscription)
    assert source_reply(request, found) == SourceReply(
        address="orders/eu.#",
        durability=Durability.CONFIGURATION,
        expiry=ExpiryPolicy.NEVER,
        distribution_mode=DistributionMode.MOVE,
        capabilities=("topic", "shared", "global"),
        filter=EU,
        binding_keys=("eu.#",),
        keys_beyond_address=(),
        header_bindings=(),
        exchange_type=ExchangeType.TOPIC,
        offered_capabilities=("SHARED-SUBS",),
    )


@pytest.mark.parametrize("source", [asked(), asked(exchange="invoices", filter=Filter(selector="x = 1"))])
def test_decision_14_the_reply_shows_the_declared_binding_and_filter(source: AskedSource) -> None:
    existing = there(
        identity("sub"),
        keys=frozenset({"eu.#"}),
        filter=EU,
        user=None,
        managed=resource(ClientOverrides.IGNORE),
    )
    reply = reply_to(attaching(shared=True, global_=True, durability=2, source=source), existing)
    assert reply.address == "orders/eu.#"
    assert reply.filter == EU


def test_decision_17_no_local_of_a_shared_source_is_not_echoed() -> None:
    no_local = asked(filter=Filter(no_local=True))
    assert reply_to(attaching(shared=True, source=no_local)).filter == Filter()
    assert reply_to(attaching(shared=False, source=no_local)).filter == Filter(no_local=True)


@pytest.mark.parametrize("address", ["orders", "orders/#", "topic://orders"])
def test_a_client_recognises_its_own_address(address: str) -> None:
    keys = frozenset({"#"}) if address == "orders/#" else None
    assert reply_to(attaching(source=asked(keys=keys, address=address))).address == address


@pytest.mark.parametrize(
    ("exchange_type", "keys", "address"),
    [
        (ExchangeType.TOPIC, {"#"}, "x"),
        (ExchangeType.TOPIC, {"a.*"}, "x/a.*"),
        (ExchangeType.TOPIC, {"a", "b"}, "x"),
        (ExchangeType.DIRECT, {""}, "x"),
        (ExchangeType.DIRECT, {"a"}, "x/a"),
        (ExchangeType.FANOUT, {""}, "x"),
    ],
)
def test_the_address_of_a_binding(exchange_type: ExchangeType, keys: set[str], address: str) -> None:
    assert binding_address(Binding("x", frozenset(keys)), exchange_type) == address


def test_several_keys_are_told_in_order() -> None:
    existing = there(identity("sub"), keys=frozenset({"b", "a"}), user=None, managed=resource())
    reply = reply_to(attaching(shared=True, global_=True, durability=2), existing)
    assert reply.address == "orders"
    assert reply.binding_keys == ("a", "b")
    assert reply.keys_beyond_address == ("a", "b")


def test_keys_that_filters_of_the_client_name_are_told_by_those() -> None:
    reply = reply_to(attaching(source=asked(keys=frozenset({"a", "b"}), address="topic://orders")))
    assert (reply.address, reply.binding_keys, reply.keys_beyond_address) == ("topic://orders", ("a", "b"), ())


def test_header_bindings_are_told_as_they_are() -> None:
    binding = header_binding(HeaderMatch.ANY, {"a": 1, "b": None})
    source = AskedSource(
        address="match", exchange="match", exchange_type=ExchangeType.HEADERS, keys=None, headers=frozenset({binding})
    )
    assert reply_to(attaching(source=source)).header_bindings == (binding,)
