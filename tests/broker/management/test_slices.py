"""How much of a request is done in one step, counted in what is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from proton import Delivery, Message
from support.stepped_broker import SteppedBroker

from penstock_amqp.endpoint.events import Entry, Held
from penstock_amqp.endpoint.unsettled_deliveries import UnsettledDeliveries
from penstock_amqp.messages import message_codec
from penstock_amqp.types.decoder import decode_one
from penstock_amqp.types.values import Value
from penstock_api.management import (
    DeliveryPolicy,
    EntityType,
    Operation,
    QueueDeclaration,
    QueueLimits,
    SubscriptionDeclaration,
)
from penstock_api.message_operations import PeekRequest
from penstock_broker.access.connection import Connection
from penstock_broker.management import declare, in_flight, pages, queries, queue_messages, requests
from penstock_broker.management.in_flight import EXAMINED_PER_STEP, InFlightSearch
from penstock_broker.management.logged_operations import Caller
from penstock_broker.management.replies import ManagementReply, to_value
from penstock_broker.messages import move
from penstock_broker.settings.settings import Role
from penstock_broker.state.broker import Broker


@pytest.fixture
def site() -> Iterator[SteppedBroker]:
    broker = SteppedBroker()
    yield broker
    broker.close()


def manager(site: SteppedBroker) -> Connection:
    """A connection that may manage."""
    site.connect("manager")
    (connection,) = [each for each in site.broker.clients.connections.values() if each.client.container_id == "manager"]
    connection.listener.role = Role.MANAGEMENT
    return connection


def finish(task: ManagementReply | requests.Task) -> tuple[int, ManagementReply]:
    """The steps that a task takes, and its reply."""
    assert not isinstance(task, ManagementReply)
    steps = 1
    while (reply := task.step(0)) is None:
        steps += 1
    return steps, reply


def test_an_unchanged_declaration_looks_at_no_delivery(site: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    site.make_queue("jobs", durable=False)
    peer = site.connect()
    peer.receive("jobs")
    peer.send("jobs", Message(body="held"))
    assert len(peer.bodies()) == 1

    def looked_at(_unsettled: UnsettledDeliveries, *_: int) -> list[Held]:
        raise AssertionError("a declaration looks at deliveries in flight")

    monkeypatch.setattr(UnsettledDeliveries, "walk", looked_at)
    monkeypatch.setattr(UnsettledDeliveries, "all_held", looked_at)
    body = to_value(QueueDeclaration(durable=False))
    for outcome in ("Updated", "Unchanged"):
        answer = declare.declare(site.broker, EntityType.QUEUE, "jobs", body, update=False).body
        assert isinstance(answer, dict)
        assert (answer["outcome"], answer["inFlight"], answer.get("oldestAvailableMs")) == (outcome, 1, None)
    subscription = to_value(SubscriptionDeclaration(subscription_name="s", exchange="amq.topic"))
    for outcome in ("Created", "Unchanged"):
        answer = declare.declare(site.broker, EntityType.SUBSCRIPTION, None, subscription, update=False).body
        assert isinstance(answer, dict)
        assert answer["outcome"] == outcome


def test_a_list_of_declarations_is_done_a_few_at_a_time(site: SteppedBroker) -> None:
    entries = [
        {
            "type": EntityType.SUBSCRIPTION.value,
            "body": to_value(SubscriptionDeclaration(subscription_name=f"s{number}", exchange="amq.topic")),
        }
        for number in range(10)
    ]
    request = message_codec.Message(
        application_properties={"operation": "CREATE", "type": "penstock.subscription"}, body=cast(list[Value], entries)
    )
    steps, reply = finish(requests.answer(site.broker, manager(site), request))
    assert steps == 3  # four, four, two
    assert reply.encoded_body is not None
    items = cast(list[dict[str, object]], decode_one(b"".join(reply.encoded_body)))
    assert [item["statusCode"] for item in items] == [201] * 10


def test_an_entry_of_a_list_is_freed_when_it_is_done(site: SteppedBroker) -> None:
    """All together would be freed in the last step, which has the answer to make as well."""
    entries: list[Value] = ["no map"] * 10
    request = message_codec.Message(
        application_properties={"operation": "CREATE", "type": "penstock.subscription"}, body=entries
    )
    task = requests.answer(site.broker, manager(site), request)
    assert isinstance(task, requests.ChangesTask)
    left: list[int] = []
    while task.step(0) is None:
        left.append(len(task.entries))
    assert left == [6, 2]
    assert not task.entries


def test_a_query_tells_a_few_at_a_time(site: SteppedBroker) -> None:
    for number in range(25):
        body = to_value(SubscriptionDeclaration(subscription_name=f"{number * 7 % 25:02}", exchange="amq.topic"))
        declare.declare(site.broker, EntityType.SUBSCRIPTION, None, body, update=False)
    asked: dict[str, Value] = {
        "operation": Operation.QUERY.value,
        "entityType": "penstock.subscription",
        "offset": 3,
        "count": 20,
    }
    request = message_codec.Message(
        application_properties=asked, body={"attributeNames": ["subscriptionName", "depth"]}
    )
    steps, reply = finish(requests.answer(site.broker, manager(site), request))
    assert steps == 2 + 1  # two times ten rows, the reply
    assert reply.encoded_body is not None
    answered = cast(dict[str, list[list[object]]], decode_one(b"".join(reply.encoded_body)))
    assert answered["results"] == [[f"{number:02}", 0] for number in range(3, 23)]
    assert reply.properties["totalCount"] == 25


def test_a_search_looks_at_a_bounded_number_of_deliveries(site: SteppedBroker) -> None:
    queue = site.make_queue("jobs", durable=False)
    peer = site.connect()
    peer.receive("jobs")
    peer.send("jobs", Message(body="held"))
    peer.pump()
    (connection,) = site.broker.clients.connections.values()
    (held,) = connection.endpoint.unsettled.held_now()
    looked_at: list[int] = []

    class Many:
        transactions = None
        endpoint: Many
        unsettled: Many

        def walk(self, most: int) -> Iterator[list[Held]]:
            for _ in range(2 * EXAMINED_PER_STEP // most):
                looked_at.append(most)
                yield [held] * most

    many = Many()
    many.endpoint = many.unsettled = many
    search = InFlightSearch([cast(Connection, many)])
    so_far: list[int] = []
    while not search.step():
        so_far.append(sum(looked_at))
    assert so_far == [EXAMINED_PER_STEP, 2 * EXAMINED_PER_STEP]
    assert search.found == {queue: (site.now_ms * 1000, site.now_ms * 1000)}


@pytest.mark.parametrize("ending", [0, 1], ids=["looked at in part", "not looked at yet"])
def test_a_query_goes_on_when_a_connection_ends_between_two_steps(
    site: SteppedBroker, monkeypatch: pytest.MonkeyPatch, ending: int
) -> None:
    monkeypatch.setattr(in_flight, "EXAMINED_PER_STEP", 5)
    jobs = site.make_queue("jobs", durable=False)
    asking = manager(site)
    peers = [site.connect(f"c{number}") for number in range(3)]
    for peer in peers:
        peer.receive("jobs")
    peers[0].send("jobs", *[Message(body=number) for number in range(30)])
    assert all(peer.bodies() for peer in peers)
    request = message_codec.Message(
        application_properties={"operation": Operation.QUERY.value, "entityType": "penstock.queue"},
        body={"attributeNames": ["depth", "inFlight"]},
    )
    task = requests.answer(site.broker, asking, request)
    assert isinstance(task, queries.QueryTask)
    assert [task.step(0) for _ in range(3)] == [None] * 3  # some of the first connection's deliveries are looked at
    peers[ending].drop()
    _, reply = finish(task)
    assert reply.encoded_body is not None
    answered = cast(dict[str, list[list[object]]], decode_one(b"".join(reply.encoded_body)))
    assert answered["results"] == [[30, jobs.in_flight]]


def test_a_move_that_an_error_interrupts_loses_nothing(site: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, other = site.make_queue("jobs"), site.make_queue("other")
    site.connect().send("jobs", *[Message(body=body, durable=True) for body in "abcd"])
    renew = move._renewed  # pyright: ignore[reportPrivateUsage]

    def fail_at_third(broker: Broker, entry: Entry, expires_us: int, without: tuple[str, ...]) -> bytes:
        if other.depth == 2:
            raise RuntimeError("injected")
        return renew(broker, entry, expires_us, without)

    monkeypatch.setattr(move, "_renewed", fail_at_third)
    caller = Caller("user", "peer", "listener")
    task = queue_messages.handle(
        site.broker, caller, Operation.MOVE, EntityType.QUEUE, "jobs", {"destination": "other"}
    )
    with pytest.raises(RuntimeError, match="injected"):
        finish(task)
    assert (jobs.depth, jobs.totals.moved, other.depth) == (2, 2, 2)
    peer = site.connect()
    peer.receive("jobs")
    assert peer.bodies() == ["c", "d"]


@pytest.mark.parametrize("operation", [Operation.MOVE, Operation.REDRIVE])
def test_a_stranded_message_that_has_to_stay_stays_stranded(site: SteppedBroker, operation: Operation) -> None:
    """Else consumers would get again what they rejected."""
    jobs = site.make_queue("jobs", DeliveryPolicy(dead_letter="nowhere"))
    site.make_queue("full", limits=QueueLimits(max_messages=1, overflow="Reject"))
    peer = site.connect()
    peer.send("full", Message(body="m", durable=True))
    peer.send("jobs", Message(body="rejected", durable=True))
    peer.receive("jobs")
    peer.take(Delivery.REJECTED)
    assert len(jobs.stranded) == 1
    body: Value = {"destination": "full"} if operation is Operation.MOVE else {}
    caller = Caller("user", "peer", "listener")
    _, reply = finish(queue_messages.handle(site.broker, caller, operation, EntityType.QUEUE, "jobs", body))
    assert isinstance(reply.body, dict)
    assert (reply.body["messages"], reply.body["left"]) == (0, 1)
    assert (len(jobs.stranded), jobs.depth, peer.bodies()) == (1, 1, [])


def test_a_long_list_is_decoded_in_slices_before_anything_is_changed(site: SteppedBroker) -> None:
    body = to_value(SubscriptionDeclaration(subscription_name="s", exchange="amq.topic"))
    entry: dict[str, object] = {"type": EntityType.SUBSCRIPTION.value, "body": body}
    request = message_codec.Message(
        application_properties={"operation": "CREATE", "type": "penstock.subscription"},
        body=cast(list[Value], [entry] * (2 * requests.DECODED_PER_STEP)),
    )
    data = message_codec.encode_message(request)
    whole = message_codec.decode_message(data, longest_list=1000)
    assert whole.body is None
    connection = manager(site)
    steps, reply = finish(requests.answer(site.broker, connection, whole))
    assert steps == 2 + 2 * requests.DECODED_PER_STEP // requests.CHANGES_PER_STEP
    assert reply.status == 200
    assert len(site.broker.topology.subscriptions) == 1
    site.broker.topology.end(next(iter(site.broker.topology.subscriptions.values())))
    cut = message_codec.decode_message(data[:-1] + b"\xff", longest_list=1000)  # the last entry is no value
    _, reply = finish(requests.answer(site.broker, connection, cut))
    assert (reply.status, len(site.broker.topology.subscriptions)) == (400, 0)
    assert reply.description.endswith("Nothing was changed.")


def test_very_many_connections_are_listed_and_looked_for_a_few_at_a_time(
    site: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "NAMED_PER_STEP", 2)
    asking = manager(site)
    for number in range(4):
        site.connect(f"c{number}")
    asked: dict[str, Value] = {"operation": Operation.QUERY.value, "entityType": "penstock.connection"}
    request = message_codec.Message(application_properties=asked, body={"attributeNames": ["containerId"]})
    steps, reply = finish(requests.answer(site.broker, asking, request))
    assert steps == 3 + 1  # five connections in three parts, the rows and the reply
    assert reply.encoded_body is not None
    answered = cast(dict[str, list[list[object]]], decode_one(b"".join(reply.encoded_body)))
    assert [row[0] for row in answered["results"]] == ["manager", "c0", "c1", "c2", "c3"]
    last = max(site.broker.clients.connections)
    steps, reply = finish(queries.read(site.broker, asking, EntityType.CONNECTION, str(last)))
    assert steps == 3
    assert isinstance(reply.body, dict)
    assert reply.body["containerId"] == "c3"
    steps, reply = finish(queries.read(site.broker, asking, EntityType.CONNECTION, "no number"))
    assert (steps, reply.status) == (3, 404)


def test_messages_are_examined_and_dropped_until_the_slice_has_taken_its_time(site: SteppedBroker) -> None:
    """Each look at the clock takes a second: one part of a slice is done per step, and nothing twice."""
    queue = site.make_queue("jobs", durable=False)
    numbers = site.broker.log.next_messages(120)
    queue.ready.extend((numbers + each, b"", site.broker.clock.now_us, 0, 0) for each in range(120))
    caller, all_of_them = Caller("admin", "here", "local"), queue_messages.everything
    site.step_seconds = 1.0
    peek = queue_messages.PeekTask(site.broker, queue, PeekRequest(), lambda _: False)
    assert finish(peek)[0] == 3  # 50, 50 and 20
    task = queue_messages.MessagesTask(site.broker, caller, Operation.PURGE, queue, None, all_of_them, None, None)
    left: list[int] = []
    while (reply := task.step(0)) is None:
        left.append(queue.depth)
    assert (left, queue.depth) == ([70, 20], 0)
    assert reply.body == {"messages": 120, "left": 0}


def test_the_log_is_told_of_unread_messages_until_the_slice_has_taken_its_time(site: SteppedBroker) -> None:
    queue = site.make_queue("jobs", durable=False)
    caller = Caller("admin", "here", "local")
    task = queue_messages.MessagesTask(
        site.broker, caller, Operation.PURGE, queue, None, queue_messages.everything, None, None
    )
    told: list[int] = []

    def forgotten() -> Iterator[None]:
        for number in range(1600):
            told.append(number)
            yield

    task.entries, task.forgotten = iter(()), forgotten()
    site.step_seconds = 1.0
    assert task.step(0) is None
    assert len(told) == 250
    site.step_seconds = 0.0
    assert task.step(0) is None
    assert len(told) == 1250
    assert task.step(0) is not None
    assert len(told) == 1600
