"""What a page of a QUERY costs, counted: by its rows and by what changed, whatever else there is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, cast

import pytest
from broker.management.test_slices import finish, manager
from proton import Message
from support.stepped_broker import SteppedBroker

from penstock_amqp.messages import message_codec
from penstock_amqp.types.decoder import decode_one
from penstock_amqp.types.values import Value
from penstock_api.management import EntityType, SubscriptionDeclaration
from penstock_broker.access.connection import Connection
from penstock_broker.management import declare, entity_states, pages, requests
from penstock_broker.management.replies import ManagementReply, to_value
from penstock_broker.topology import entity_list
from penstock_broker.topology.records import Subscription

if TYPE_CHECKING:
    from _typeshed import TraceFunction


@pytest.fixture
def site() -> Iterator[SteppedBroker]:
    broker = SteppedBroker()
    yield broker
    broker.close()


def traced(site: SteppedBroker, asking: Connection, request: message_codec.Message) -> tuple[int, ManagementReply]:
    """How many lines of ours the request goes through, and its answer: a loop over everything shows in the number."""
    count = 0

    def look(frame: FrameType, _event: str, _arg: object) -> TraceFunction | None:
        nonlocal count
        if "penstock_" not in frame.f_code.co_filename:
            return None  # such as a callback of the garbage collector
        count += 1
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        _, reply = finish(requests.answer(site.broker, asking, request))
    finally:
        sys.settrace(before)
    return count, reply


def declare_many(site: SteppedBroker, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        body = SubscriptionDeclaration(subscription_name=f"s{number * 7919 % 100_003:06}", exchange="amq.topic")
        declare.declare(site.broker, EntityType.SUBSCRIPTION, None, to_value(body), update=False)


def asked_for(attributes: list[str], **properties: Value) -> message_codec.Message:
    """A QUERY of subscriptions."""
    asked: dict[str, Value] = {"operation": "QUERY", "entityType": "penstock.subscription", **properties}
    return message_codec.Message(application_properties=asked, body={"attributeNames": cast(Value, attributes)})


def rows_of(reply: ManagementReply) -> list[list[object]]:
    assert reply.encoded_body is not None
    return cast(dict[str, list[list[object]]], decode_one(b"".join(reply.encoded_body)))["results"]


@pytest.mark.parametrize("changed", [0, 3])
def test_what_changed_costs_the_same_beside_ten_times_as_many_subscriptions(site: SteppedBroker, changed: int) -> None:
    """That is what the operator asks each few seconds."""
    asking, costs = manager(site), list[int]()
    for count in (100, 1000):
        declare_many(site, count - len(site.broker.topology.subscriptions), len(site.broker.topology.subscriptions))
        request = asked_for(["queueName", "owner", "revision"], changedSince=site.broker.topology.revision)
        for subscription in list(site.broker.topology.subscriptions.values())[:changed]:
            site.broker.topology.changed(subscription)
        cost, reply = traced(site, asking, request)
        costs.append(cost)
        assert len(rows_of(reply)) == changed
        assert reply.properties["totalCount"] == count
    assert costs[0] == costs[1]


@pytest.mark.parametrize("attributes", [["queueName", "owner", "revision"], ["queueName", "depth"], []])
def test_a_page_costs_by_its_rows(site: SteppedBroker, attributes: list[str]) -> None:
    asking, costs = manager(site), list[int]()
    for count in (100, 1000):
        declare_many(site, count - len(site.broker.topology.subscriptions), len(site.broker.topology.subscriptions))
        request = asked_for(attributes, offset=50, count=20)
        finish(requests.answer(site.broker, asking, request))  # what is kept encoded is encoded now
        cost, reply = traced(site, asking, request)
        costs.append(cost)
        names = sorted(each.name for each in site.broker.topology.subscriptions.values())[50:70]
        assert [row[0] for row in rows_of(reply)] == names
    assert costs[0] == costs[1]


@pytest.mark.parametrize("attributes", [["owner", "revision", "queueName"], []])
def test_what_a_subscription_was_declared_with_is_encoded_once(
    site: SteppedBroker, monkeypatch: pytest.MonkeyPatch, attributes: list[str]
) -> None:
    declare_many(site, 30)
    asking, made = manager(site), list[str]()
    declared = entity_states.declared

    def counted(subscription: Subscription) -> entity_states.StateDocument:
        made.append(subscription.name)
        return declared(subscription)

    monkeypatch.setattr(entity_states, "declared", counted)
    first = rows_of(finish(requests.answer(site.broker, asking, asked_for(attributes)))[1])
    assert len(made) == 30
    assert rows_of(finish(requests.answer(site.broker, asking, asked_for(attributes)))[1]) == first
    assert len(made) == 30
    one = next(iter(site.broker.topology.subscriptions.values()))
    site.broker.topology.changed(one)
    rows_of(finish(requests.answer(site.broker, asking, asked_for(attributes)))[1])
    assert made[30:] == [one.name]


def test_a_page_looks_at_deliveries_of_its_own_queues_alone(site: SteppedBroker) -> None:
    """There may be a million of another one."""
    declare_many(site, 10)
    site.make_queue("jobs", durable=False)
    peer = site.connect("busy")
    peer.receive("jobs", credit=200)
    asking, costs = manager(site), list[int]()
    finish(requests.answer(site.broker, asking, asked_for([])))  # what is kept encoded is encoded now
    for _ in range(2):
        costs.append(traced(site, asking, asked_for([]))[0])
        peer.send("jobs", *[Message(body=number) for number in range(90)])
        peer.pump()
    assert costs[0] == costs[1]


def test_many_that_changed_are_found_a_few_at_a_time_and_one_that_ends_leaves_no_gap(
    site: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that is short is the last one for its reader."""
    monkeypatch.setattr(entity_list, "SORTED_AT_ONCE", 10)
    monkeypatch.setattr(pages, "NAMED_PER_STEP", 10)
    declare_many(site, 25)
    topology = site.broker.topology
    since, asking = topology.revision, manager(site)
    in_order = sorted(topology.subscriptions.values(), key=lambda each: each.name)
    for each in in_order[:20]:
        topology.changed(each)
    task = requests.answer(site.broker, asking, asked_for(["queueName"], changedSince=since, count=15))
    assert not isinstance(task, ManagementReply)
    assert [task.step(0) for _ in range(3)] == [None] * 3  # 10, 10 and 5 names are looked at
    topology.end(in_order[3])
    steps, reply = finish(task)
    assert steps == 1
    assert [row[0] for row in rows_of(reply)] == [each.name for each in in_order[:15]]


@pytest.mark.parametrize("limit", [500, 10])
@pytest.mark.parametrize("changed", [0, 30])
def test_what_is_there_all_the_time_is_on_a_page_though_another_is_removed_between_the_pages(
    site: SteppedBroker, monkeypatch: pytest.MonkeyPatch, limit: int, changed: int
) -> None:
    """With `offset` the row behind the first page would move into it, and be on none."""
    monkeypatch.setattr(entity_list, "SORTED_AT_ONCE", limit)
    topology = site.broker.topology
    declare_many(site, 30)
    since = topology.revision
    asked: dict[str, Value] = {"count": 10, "changedSince": since if changed else -1}
    asking, in_order = manager(site), sorted(topology.subscriptions.values(), key=lambda each: each.name)
    for each in in_order[:changed]:
        topology.changed(each)
    found = rows_of(finish(requests.answer(site.broker, asking, asked_for(["queueName"], **asked)))[1])
    topology.end(in_order[3])
    for _ in range(2):
        page = asked_for(["queueName"], offset=len(found), after=str(found[-1][0]), **asked)
        found += rows_of(finish(requests.answer(site.broker, asking, page))[1])
    assert [row[0] for row in found] == [each.name for each in in_order]


def test_after_is_a_name(site: SteppedBroker) -> None:
    reply = requests.answer(site.broker, manager(site), asked_for(["queueName"], after=3))
    assert isinstance(reply, ManagementReply)
    assert (reply.status, reply.description) == (
        400, "after must be a string: the name in the last row of the page before."
    )  # fmt: skip


def test_connections_have_no_names_and_are_listed_by_offset(site: SteppedBroker) -> None:
    asking = manager(site)
    for name in "abc":
        site.connect(name)
    asked: dict[str, Value] = {"operation": "QUERY", "entityType": "penstock.connection", "offset": 2, "after": "zzz"}
    query = message_codec.Message(application_properties=asked, body={"attributeNames": ["containerId"]})
    assert rows_of(finish(requests.answer(site.broker, asking, query))[1]) == [["b"], ["c"]]
