"""What each container got of a queue, as management tells it, with real clients."""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

from typing import Any

from proton import Message
from support.stepped_broker import SteppedBroker

from penstock_broker.management.entity_states import queue_state
from penstock_broker.queue.queue import Queue

START = 1_000_000  # the clock of a new SteppedBroker, milliseconds


def told(timed: SteppedBroker, queue: Queue) -> Any:
    return queue_state(timed.broker.topology.queues[queue.name], {})["consumerTotals"]


def test_deliveries_of_all_links_of_a_container_since_it_connected(timed: SteppedBroker) -> None:
    """Those that are not settled yet, too. Who leaves is listed no more."""
    jobs = timed.make_queue("jobs")
    assert told(timed, jobs) == []
    first = timed.connect()
    timed.pass_ms(5_000)
    first.receive("jobs", credit=1, name="one")
    first.receive("jobs", credit=1, name="two")
    container = jobs.links.consumers[0].connection.client.container_id
    assert told(timed, jobs) == [{"container": container, "links": 2, "delivered": 0, "sinceMs": START}]
    timed.connect().send("jobs", *(Message(body=number) for number in range(5)))
    first.pump()
    assert told(timed, jobs) == [{"container": container, "links": 2, "delivered": 2, "sinceMs": START}]
    first.drop()
    timed.turn()
    assert told(timed, jobs) == []


def test_the_eight_that_got_most_are_listed(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs")
    for number in range(9):
        peer = timed.connect(f"c-{number}")
        peer.receive("jobs", credit=number)
    timed.connect().send("jobs", *(Message(body=number) for number in range(40)))
    assert [(each["container"], each["delivered"]) for each in told(timed, jobs)] == [
        (f"c-{number}", number) for number in range(8, 0, -1)
    ]
