"""Links that end with very many deliveries: these go back a slice per turn, and whoever looks in between finds nothing
lost, nothing twice and nothing out of order.
"""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

import pytest
from proton import Delivery, Message, Receiver
from support.proton_transactions import ProtonTransactionClient
from support.stepped_broker import DeliveryPolicy, Peer, SteppedBroker

from penstock_broker.attach import close
from penstock_broker.management.in_flight import connections_of, in_flight
from penstock_broker.messages import delivery_returns, settle
from penstock_broker.queue.queue import Queue
from penstock_core.reason import Reason, Refuse

SLICE = 10


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Iterator[SteppedBroker]:
    monkeypatch.setattr(delivery_returns, "AT_ONCE", SLICE)
    made = SteppedBroker()
    yield made
    made.close()


def leave(timed: SteppedBroker, peer: Peer, link: Receiver) -> Queue:
    """Detach, and have the broker begin; returns the queue, of which nothing has come back yet."""
    queue = timed.queue("q")
    link.close()
    peer.flush()
    timed.turn()
    assert timed.broker.work.delivery_returns
    return queue


def hold(timed: SteppedBroker, count: int, name: str = "q", **policy: int) -> tuple[Peer, Receiver]:
    """A client that has `count` messages in flight, numbered from 0."""
    timed.make_queue(name, DeliveryPolicy.model_validate(policy) if policy else None)
    sender = timed.connect("sender")
    peer = timed.connect("leaving")
    link = peer.receive(name, credit=count)
    sender.send(name, *(Message(number, durable=True) for number in range(count)))
    assert len(peer.bodies()) == count
    return peer, link


def settle_all(peer: Peer) -> list[object]:
    """Accept what came, until nothing more comes; the bodies."""
    bodies: list[object] = []
    while came := peer.bodies():
        bodies += came
        for _ in came:
            peer.take()
    return bodies


def turns_until_back(timed: SteppedBroker) -> int:
    turns = 0
    while timed.broker.work.delivery_returns:
        timed.turn()
        turns += 1
    return turns


def test_deliveries_go_back_a_slice_per_turn_and_the_detach_is_answered_behind_the_last(timed: SteppedBroker) -> None:
    peer, link = hold(timed, 35)
    queue = leave(timed, peer, link)
    back: list[int] = []
    while timed.broker.work.delivery_returns:
        peer.read()
        assert not link.state & link.REMOTE_CLOSED
        timed.turn()
        back.append(len(queue.returned))
        assert queue.in_flight + len(queue.returned) == 35
    peer.read()
    assert back == [10, 20, 30, 35]
    assert link.state & link.REMOTE_CLOSED
    assert queue.depth == 35


def test_a_slice_ends_when_it_has_taken_its_time(timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three deliveries go back before the clock is looked at, which takes a second each time."""
    monkeypatch.setattr(delivery_returns, "LOOKED_AT", 3)
    peer, link = hold(timed, 14)
    queue = leave(timed, peer, link)
    timed.step_seconds = 1.0
    back: list[int] = []
    for _ in range(2):
        timed.turn()
        back.append(len(queue.returned))
    timed.step_seconds = 0.0
    timed.turn()
    back.append(len(queue.returned))
    assert back == [3, 6, 14]
    assert not timed.broker.work.delivery_returns


def test_a_small_delivery_return_is_over_in_its_turn(timed: SteppedBroker) -> None:
    peer, link = hold(timed, SLICE)
    link.close()
    peer.flush()
    timed.turn()
    assert not timed.broker.work.delivery_returns
    assert len(timed.queue("q").returned) == SLICE


def test_who_attaches_in_between_gets_everything_in_order_after_the_last_is_back(timed: SteppedBroker) -> None:
    peer, link = hold(timed, 35)
    sender = timed.connect("another")
    assert sender.send("q", Message(35)) == ["accepted"]
    leave(timed, peer, link)
    timed.turn()
    heir = timed.connect_socket()  # attaches in the turns in which the deliveries come back
    heir_peer = Peer(heir, timed.turn, "heir")
    heir_peer.receive("q", credit=100)
    assert heir_peer.bodies() == list(range(36))
    heir_peer.close()


def test_nobody_gets_a_later_message_while_earlier_ones_are_on_their_way(timed: SteppedBroker) -> None:
    peer, link = hold(timed, 35)
    other = timed.connect("other")
    other.receive("q", credit=100)
    queue = leave(timed, peer, link)
    timed.turn()
    queue_was = len(queue.returned)
    other.read()
    assert (queue_was, other.got) == (10, [])
    turns_until_back(timed)
    assert other.bodies() == list(range(35))


def test_a_drain_waits_for_what_is_on_its_way(timed: SteppedBroker) -> None:
    peer, link = hold(timed, 35)
    other = timed.connect("other")
    drained = other.receive("q", credit=0)
    leave(timed, peer, link)
    drained.drain(50)
    other.flush()
    timed.turn()
    other.read()
    assert drained.credit == 50
    turns_until_back(timed)
    assert other.bodies() == list(range(35))
    assert drained.credit == 0


def test_of_a_lost_link_the_oldest_delivery_alone_counts_an_attempt(timed: SteppedBroker) -> None:
    peer, _ = hold(timed, 35)
    peer.drop()
    assert turns_until_back(timed) == 4
    queue = timed.queue("q")
    first = next(iter(queue))[0]
    assert queue.redelivery.attempts == {first: 1}
    assert queue.redelivery.seen.count() == 35
    other = timed.connect("other")
    other.receive("q", credit=100)
    assert [(message.body, message.delivery_count) for message, _ in other.got] == [(each, 1) for each in range(35)]


def test_the_oldest_delivery_of_a_lost_link_leaves_if_that_was_one_attempt_too_many(timed: SteppedBroker) -> None:
    timed.make_queue("dead")
    timed.make_queue("q", DeliveryPolicy(max_deliveries=1, dead_letter="dead"))
    peer = timed.connect("leaving")
    peer.receive("q", credit=25)
    timed.connect("sender").send("q", *(Message(number) for number in range(25)))
    peer.pump()
    peer.drop()
    turns_until_back(timed)
    other = timed.connect("other")
    other.receive("q", credit=100)
    assert other.bodies() == list(range(1, 25))
    assert timed.queue("dead").depth == 1


def test_a_kill_in_between_loses_nothing(timed: SteppedBroker) -> None:
    peer, link = hold(timed, 35)
    leave(timed, peer, link)
    timed.turn()
    timed.restart()
    other = timed.connect("other")
    other.receive("q", credit=100)
    assert [(message.body, message.delivery_count) for message, _ in other.got] == [(each, 1) for each in range(35)]
    assert settle_all(other) == list(range(35))
    timed.restart()
    assert timed.queue("q").depth == 0


@pytest.mark.parametrize("state", [Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED])
def test_what_the_client_settles_after_its_detach_goes_back_all_the_same(timed: SteppedBroker, state: int) -> None:
    peer, link = hold(timed, 35)
    queue = leave(timed, peer, link)
    for _, delivery in (peer.got[3], peer.got[34]):
        delivery.update(state)
        delivery.settle()
    peer.flush()
    turns_until_back(timed)
    assert (queue.in_flight, queue.depth, queue.totals.acked) == (0, 35, 0)
    other = timed.connect("other")
    other.receive("q", credit=100)
    assert settle_all(other) == list(range(35))


def test_what_the_client_says_something_of_without_settling_it_is_not_overlooked(timed: SteppedBroker) -> None:
    peer, link = hold(timed, 35)
    queue = leave(timed, peer, link)
    timed.turn()
    for _, delivery in (peer.got[3], peer.got[34]):
        delivery.update(Delivery.RECEIVED)
    peer.flush()
    turns_until_back(timed)
    assert (queue.in_flight, len(queue.returned)) == (0, 35)


def test_other_links_of_the_connection_keep_their_deliveries(timed: SteppedBroker) -> None:
    peer, link = hold(timed, 35)
    timed.make_queue("r")
    peer.got.clear()
    peer.receive("r", credit=100)
    timed.connect("another").send("r", *(Message(number) for number in range(15)))
    kept = peer.bodies()
    leave(timed, peer, link)
    assert timed.queue("r").in_flight == 15
    timed.turn()
    _, first = peer.got.pop(0)
    first.update(Delivery.ACCEPTED)
    first.settle()
    peer.flush()
    timed.turn()
    assert timed.broker.work.delivery_returns
    assert timed.queue("r").totals.acked == 1
    turns_until_back(timed)
    assert settle_all(peer) == kept[1:]
    assert (timed.queue("r").depth, timed.queue("q").depth) == (0, 35)
    assert timed.queue("r").totals.acked == 15


def test_links_that_end_during_a_pass_are_found_by_the_next(timed: SteppedBroker) -> None:
    peer, link = hold(timed, 35)
    timed.make_queue("r")
    second = peer.receive("r", credit=100)
    timed.connect("another").send("r", *(Message(number) for number in range(25)))
    peer.pump()
    leave(timed, peer, link)
    timed.turn()
    second.close()
    peer.flush()
    turns_until_back(timed)
    assert (timed.queue("q").in_flight, timed.queue("r").in_flight) == (0, 0)
    assert [len(timed.queue(name).returned) for name in "qr"] == [35, 25]
    peer.read()
    assert second.state & second.REMOTE_CLOSED


def test_the_connection_may_be_lost_while_a_link_of_it_is_leaving(timed: SteppedBroker) -> None:
    peer, link = hold(timed, 35)
    leave(timed, peer, link)
    timed.turn()
    peer.drop()
    turns_until_back(timed)
    queue = timed.queue("q")
    assert (queue.in_flight, len(queue.returned), queue.redelivery.attempts) == (0, 35, {})
    assert len(timed.broker.clients.connections) == 1


def test_a_session_ends_when_the_deliveries_of_its_links_are_back(timed: SteppedBroker) -> None:
    peer, _ = hold(timed, 35)
    peer.session.close()
    peer.flush()
    timed.turn()
    peer.read()
    assert not peer.session.state & peer.session.REMOTE_CLOSED
    turns_until_back(timed)
    peer.pump()
    assert peer.session.state & peer.session.REMOTE_CLOSED
    assert timed.queue("q").depth == len(timed.queue("q").returned) == 35


def test_a_queue_that_ends_in_between_takes_everything_with_it(timed: SteppedBroker) -> None:
    peer, link = hold(timed, 35)
    queue = leave(timed, peer, link)
    timed.turn()
    close.end_queue(timed.broker, timed.broker.topology.queues["q"], Refuse(Reason.NODE_DELETED, "deleted"))
    turns_until_back(timed)
    peer.pump()
    assert link.state & link.REMOTE_CLOSED
    assert (queue.depth_bytes, len(queue.backlog)) == (0, 0)
    timed.restart()
    assert "q" not in timed.broker.topology.queues


def test_an_error_in_between_costs_the_connection_and_no_message(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    peer, link = hold(timed, 35)
    leave(timed, peer, link)
    timed.turn()
    lost = settle.lost

    def fails(*given: object, **named: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        broken.setattr(settle, "lost", fails)
        timed.turn()
    assert settle.lost is lost
    assert not timed.broker.work.delivery_returns
    queue = timed.queue("q")
    assert (queue.in_flight, len(queue.backlog), queue.links.returning, queue.links.tiers) == (0, 35, 0, None)
    other = timed.connect("other")
    other.receive("q", credit=100)
    assert settle_all(other) == list(range(35))


def test_what_a_group_reserved_for_its_owner_goes_back_in_slices_too(timed: SteppedBroker) -> None:
    timed.make_queue("q")
    queue = timed.queue("q")
    peer = timed.connect("leaving")
    link = peer.receive("q", credit=3)
    other = timed.connect("other")
    other.receive("q", credit=100)
    timed.connect("sender").send("q", *(Message(number, group_id="a") for number in range(40)))
    assert (len(peer.bodies()), other.bodies(), queue.waiting) == (3, [], 37)
    link.close()
    peer.flush()
    timed.turn()
    left = [len(queue.returned)]
    while timed.broker.work.delivery_returns:
        timed.turn()
        left.append(len(queue.returned))
        assert queue.depth == 40
    assert left == [13, 23, 33, 0]  # in the turn in which the last is back, the other consumer gets them
    assert settle_all(other) == list(range(40))


def test_a_browser_with_many_copies_leaves_in_slices(timed: SteppedBroker) -> None:
    timed.make_queue("q")
    timed.connect("sender").send("q", *(Message(number) for number in range(35)))
    peer = timed.connect("leaving")
    link = peer.session.receiver("browser")
    link.source.address = "q"
    link.source.distribution_mode = link.source.DIST_MODE_COPY
    link.open()
    link.flow(100)
    assert len(peer.bodies()) == 35
    leave(timed, peer, link)
    assert turns_until_back(timed) == 4
    peer.read()
    assert link.state & link.REMOTE_CLOSED
    assert (timed.queue("q").depth, timed.queue("q").in_flight) == (35, 0)


@pytest.mark.parametrize("settled", [True, False])
def test_what_a_transaction_has_settled_stays_with_it(timed: SteppedBroker, settled: bool) -> None:
    timed.make_queue("q")
    timed.connect("sender").send("q", *(Message(str(number), durable=True) for number in range(35)))
    client = ProtonTransactionClient(timed.connect_socket(), ("q",))

    def pump(turns: int = 6) -> None:
        for _ in range(turns):
            client.flush()
            timed.turn()
            with suppress(BlockingIOError):
                client.receive()

    client.attach("q", credit=100)
    pump()
    declared = client.declare()
    pump()
    name = client.name_in(declared)
    for body in ("3", "34"):
        client.accept(body, name, settled=settled)
    pump(2)
    client.detach("q")
    client.flush()
    timed.turn()
    assert timed.broker.work.delivery_returns
    turns_until_back(timed)
    queue = timed.queue("q")
    assert (queue.in_flight, len(queue.returned)) == (2, 33)
    client.discharge(name, fail=False)
    pump()
    assert (queue.in_flight, queue.depth, queue.totals.acked) == (0, 33, 2)
    client.cut()
    timed.restart()
    assert timed.queue("q").depth == 33


def test_the_oldest_delivery_in_flight_is_known_in_between(timed: SteppedBroker) -> None:
    peer, _ = hold(timed, 35)
    queue = timed.queue("q")
    peer.close()
    timed.turn()
    assert timed.broker.work.delivery_returns
    assert not [each for each in timed.broker.clients.connections.values() if each.client.container_id == "leaving"]
    found = in_flight(connections_of(timed.broker, (queue,)))
    assert found[queue] == (1_000_000_000, 1_000_000_000)
