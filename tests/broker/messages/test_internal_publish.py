"""Messages that the broker itself puts somewhere."""

from __future__ import annotations

import pytest
from proton import Message
from support.stepped_broker import SteppedBroker

from penstock_amqp.endpoint.events import AmqpError
from penstock_amqp.types.plain_values import to_wire
from penstock_api.management import EntityType, QueueDeclaration, QueueLimits
from penstock_broker.management import declare
from penstock_broker.messages.internal_publish import MOST_TARGETS, destination_of, publish_internally, put_into
from penstock_broker.queue.queue import LOGGED
from penstock_core.reason import Reason, Refuse

DURABLE = bytes(Message(body="m1", durable=True).encode())
VOLATILE = bytes(Message(body="m2").encode())


def put(timed: SteppedBroker, address: str, data: bytes, *, keep: bool = False) -> AmqpError | Refuse | None:
    target = destination_of(timed.broker, address)
    return target if isinstance(target, Refuse) else publish_internally(timed.broker, target, data, keep=keep)


def test_what_is_deposited_is_consumed(timed: SteppedBroker) -> None:
    timed.make_queue("graves")
    assert put(timed, "graves", DURABLE) is None
    peer = timed.connect()
    peer.receive("graves")
    assert peer.bodies() == ["m1"]


def test_a_message_that_was_kept_is_kept_where_it_goes(timed: SteppedBroker) -> None:
    graves = timed.make_queue("graves")
    put(timed, "graves", VOLATILE)
    put(timed, "graves", VOLATILE, keep=True)
    assert [entry[4] & LOGGED for entry in graves.ready] == [0, LOGGED]
    timed.turn()
    timed.restart()
    assert timed.queue("graves").depth == 1


def test_a_queue_that_keeps_everything_from_now_on_keeps_what_is_redriven(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs")
    assert put_into(timed.broker, jobs, VOLATILE, keep=False) is None
    body = to_wire(QueueDeclaration(persistence="Always"))
    assert declare.declare(timed.broker, EntityType.QUEUE, "jobs", body, update=True).status == 200
    assert put_into(timed.broker, jobs, VOLATILE, keep=False) is None
    assert [entry[4] & LOGGED for entry in jobs.ready] == [0, LOGGED]


@pytest.mark.parametrize(
    ("address", "reason"), [("nowhere", Reason.ADDRESS_NOT_FOUND), ("later/x", Reason.ADDRESS_NOT_FOUND)]
)
def test_what_is_not_there_takes_nothing(timed: SteppedBroker, address: str, reason: Reason) -> None:
    refused = put(timed, address, DURABLE)
    assert isinstance(refused, Refuse)
    assert refused.reason is reason


def test_a_message_that_no_queue_takes_is_refused_though_a_producer_s_would_be_accepted(timed: SteppedBroker) -> None:
    refused = put(timed, "amq.topic/x", DURABLE)
    assert isinstance(refused, AmqpError)
    assert (refused.condition, refused.info["penstock:reason"]) == ("amqp:not-found", "AddressNotFound")


def test_a_full_queue_that_rejects_rejects_this_too(timed: SteppedBroker) -> None:
    graves = timed.make_queue("graves", limits=QueueLimits(max_messages=1, overflow="Reject"))
    assert put(timed, "graves", DURABLE) is None
    refused = put(timed, "graves", DURABLE)
    assert isinstance(refused, AmqpError)
    assert refused.condition == "amqp:resource-limit-exceeded"
    assert graves.depth == 1


def test_a_destination_that_was_made_anew_is_found(timed: SteppedBroker) -> None:
    timed.make_queue("graves")
    put(timed, "graves", DURABLE)
    timed.broker.topology.delete_queue("graves")
    assert isinstance(put(timed, "graves", DURABLE), Refuse)
    graves = timed.make_queue("graves")
    assert put(timed, "graves", DURABLE) is None
    assert graves.depth == 1


def test_so_many_destinations_are_remembered(timed: SteppedBroker) -> None:
    """A script that moves messages may name another key for each of them, for months."""
    for number in range(MOST_TARGETS + 10):
        target = destination_of(timed.broker, f"amq.topic/{number}")
        assert destination_of(timed.broker, f"amq.topic/{number}") is target
    assert len(timed.broker.routes.targets) == 10
