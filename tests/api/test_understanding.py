"""Operators and brokers of different releases: literal documents of 0.1 against the code of today, and the documents of
today against those of later releases.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.resources import exchange, subscription

from penstock_api import declaration, management, release_terms, state_documents
from penstock_api.lag_result import LagResult, LagState
from penstock_api.management import ManagementDocument

FIRST: dict[str, Any] = json.loads((Path(__file__).parent / "documents_0_1.json").read_text())


def model(name: str) -> type[ManagementDocument]:
    place = state_documents if hasattr(state_documents, name) else management
    found = getattr(place, name)
    assert issubclass(found, ManagementDocument)
    return found  # type: ignore[no-any-return]  # looked up by name


@pytest.mark.parametrize("name", FIRST["states"])
def test_what_a_broker_of_0_1_says_is_read_whole(name: str) -> None:
    sent = FIRST["states"][name]
    read = model(name).read(sent).to_wire()
    assert {key: read.get(key) for key in sent} == sent


@pytest.mark.parametrize("name", FIRST["states"])
def test_what_a_later_broker_says_is_read_as_far_as_it_is_known(name: str) -> None:
    sent = FIRST["states"][name]
    later = {**sent, "invented": {"later": 1}}
    if "owner" in sent:
        later["owner"] = {**sent["owner"], "invented": True}
    if "sharing" in sent:
        later["sharing"] = "Partitioned"
    read = model(name).read(later).to_wire()
    assert "invented" not in read
    assert read["owner"] == sent["owner"] if "owner" in sent else "owner" not in read
    assert read.get("sharing") == later.get("sharing")


def test_a_word_that_is_not_known_stays_a_word() -> None:
    state = state_documents.BrokerState.read({**FIRST["states"]["BrokerState"], "durableWork": "ReadOnly"})
    assert state.durable_work == "ReadOnly"


@pytest.mark.parametrize("name", FIRST["requests"])
def test_what_an_operator_of_0_1_asks_for_is_taken(name: str) -> None:
    sent = FIRST["requests"][name]
    taken = model(name).model_validate(sent).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert {key: taken.get(key) for key in sent} == sent


@pytest.mark.parametrize("name", FIRST["defaults"])
def test_what_is_left_out_means_what_it_always_meant(name: str) -> None:
    """If a default changed, a field that is left out would mean different things to a broker and an operator of two
    releases.
    """
    required = {"SubscriptionDeclaration": ("subscriptionName", "exchange"), "ExchangeDeclaration": ("exchangeType",)}
    meant = FIRST["defaults"][name]
    least = {key: meant[key] for key in required.get(name, ())}
    taken = model(name).model_validate(least)
    explicit = taken.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert {key: explicit.get(key) for key in meant} == meant
    assert taken.to_wire() == least, "what is at its default isn't sent"


def test_no_key_and_no_word_is_ever_taken_away() -> None:
    assert set(FIRST["vocabulary"]) - set(release_terms.vocabulary()) == set()


def test_a_broker_refuses_what_it_would_not_do() -> None:
    asked = {**FIRST["defaults"]["SubscriptionDeclaration"], "retention": "1d"}
    with pytest.raises(ValidationError, match="retention"):
        management.SubscriptionDeclaration.model_validate(asked)


def test_a_declaration_needs_what_it_says_and_no_default() -> None:
    made = declaration.subscription_declaration(subscription(), exchange="orders")
    assert release_terms.needs(made) == {
        "subscription.subscriptionName",
        "subscription.exchange",
        "subscription.owner",
        "subscription.owner.clusterId",
        "subscription.owner.kind",
        "subscription.owner.kind=Subscription",
        "subscription.owner.namespace",
        "subscription.owner.name",
        "subscription.owner.uid",
        "subscription.persistence",
        "subscription.persistence=Always",
    }
    other = exchange(type="Headers", unroutable="Reject")
    needed = release_terms.needs(declaration.exchange_declaration(other))
    assert {"exchange.exchangeType=Headers", "exchange.unroutable=Reject"} < needed
    assert "exchange.durable" not in needed


def test_what_is_nested_and_listed_is_needed_too_but_not_the_keys_of_maps() -> None:
    bindings = [{"match": "Any", "headers": [{"name": "amount", "integer": 5}]}]
    made = subscription(headerBindings=bindings, delivery={"deadLetter": "dead", "maxDeliveries": 3})
    needed = release_terms.needs(declaration.subscription_declaration(made, exchange="orders"))
    assert {
        "subscription.headerBindings",
        "subscription.headerBindings.match=Any",
        "subscription.headerBindings.headers",
        "subscription.delivery.deadLetter",
        "subscription.delivery.maxDeliveries",
    } < needed
    assert "subscription.delivery.expiry" not in needed
    assert not any("amount" in term for term in needed)


def test_what_is_missing_is_what_the_broker_does_not_announce() -> None:
    made = declaration.exchange_declaration(exchange(unroutable="Reject"))
    old = frozenset(release_terms.vocabulary()) - {"exchange.unroutable", "exchange.unroutable=Reject"}
    assert release_terms.missing(made, old) == ("exchange.unroutable", "exchange.unroutable=Reject")
    assert release_terms.missing(declaration.exchange_declaration(exchange()), old) == ()
    assert release_terms.missing(made, None) == ()
    assert release_terms.missing(made, frozenset(release_terms.vocabulary())) == ()


def test_lag_results_of_other_releases_are_read() -> None:
    sent = FIRST["lagResult"]
    first = LagResult.model_validate(sent)
    assert json.loads(first.to_json()) == sent
    entry = {**sent["subscriptions"][0], "state": "Draining", "invented": 1}
    later = LagResult.model_validate({**sent, "invented": 1, "subscriptions": [entry]})
    assert (later.subscriptions[0].state, later.subscriptions[0].messages) == (LagState.UNKNOWN, 1)


def test_what_a_lag_result_of_this_release_adds_is_written_and_read() -> None:
    """An entry without it is written as 0.1 wrote it, so that the bytes of a result say what is known and no more."""
    added = {
        "drainSecondsLow": 60,
        "drainSecondsHigh": 180,
        "expired": 1,
        "deadLettered": 2,
        "dropped": 3,
        "moved": 4,
        "lostAtRestart": 5,
        "stranded": 6,
        "lost": 11,
        "sinceCaughtUpSeconds": 900,
        "repeated": [{"id": "order-17", "deliveryCount": 9, "ageSeconds": 3600}],
    }
    sent = FIRST["lagResult"]
    entry = {**sent["subscriptions"][0], "state": "Losing"}
    read = LagResult.model_validate({**sent, "subscriptions": [{**entry, **added}]})
    assert read.subscriptions[0].state is LagState.LOSING
    assert {key: json.loads(read.to_json())["subscriptions"][0].get(key) for key in added} == added
    plain = LagResult.model_validate({**sent, "subscriptions": [entry]})
    assert json.loads(plain.to_json())["subscriptions"] == [entry]


@pytest.mark.parametrize(
    "repeated",
    [
        [{"id": str(number), "deliveryCount": 9, "ageSeconds": 1} for number in range(6)],
        [{"id": "x" * 256, "deliveryCount": 9, "ageSeconds": 1}],
        [{"id": "x", "deliveryCount": -1, "ageSeconds": 1}],
        [{"id": "x", "deliveryCount": 9}],
    ],
    ids=["six", "long id", "negative", "no age"],
)
def test_a_lag_result_names_at_most_five_messages_of_bounded_size(repeated: list[dict[str, Any]]) -> None:
    sent = FIRST["lagResult"]
    entry = {**sent["subscriptions"][0], "repeated": repeated}
    with pytest.raises(ValidationError, match="repeated"):
        LagResult.model_validate({**sent, "subscriptions": [entry]})
