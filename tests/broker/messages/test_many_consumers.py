"""Queues with many consumers: a message costs by the consumers that have credit, not by those that are busy."""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Message, Receiver, symbol
from support.broker_site import HeldSyncer
from support.stepped_broker import Peer, SteppedBroker

from penstock_broker.log import FileLayer
from penstock_broker.queue import consumer as consumer_module
from penstock_broker.queue.consumer import ReceivingLink
from penstock_core.dispatch_order import tiers

PRIORITY = symbol("priority")


def attached(peer: Peer, count: int, *, credit: int) -> list[Receiver]:
    return [peer.receive("work", credit, name=f"r{number}") for number in range(count)]


def body_of(message: Message) -> str:
    return str(message.body)  # pyright: ignore[reportUnknownArgumentType]


def got_by(peer: Peer) -> list[str]:
    """The links that got what came, in order."""
    peer.pump()
    return [delivery.link.name for _, delivery in peer.got]


class Asked(OrderedDict[ReceivingLink, None]):
    """Counts how often one of them is asked."""

    count = 0

    def move_to_end(self, key: ReceivingLink, last: bool = True) -> None:
        self.count += 1
        super().move_to_end(key, last)


def test_consumers_without_credit_are_not_asked(timed: SteppedBroker) -> None:
    timed.make_queue("work")
    peer, producer = timed.connect("consumers"), timed.connect("producer")
    receivers = attached(peer, 30, credit=0)
    producer.send("work", Message(body="nobody has credit"))
    links = timed.queue("work").links
    assert links.with_credit is not None
    asked = links.with_credit = Asked(links.with_credit)
    for number in range(5):
        producer.send("work", Message(body=number))
    assert asked.count == 0
    receivers[20].flow(2)
    receivers[7].flow(4)
    assert sorted(got_by(peer)) == ["r20"] * 2 + ["r7"] * 4
    assert asked.count <= 8, "six messages, and each of the two once more without credit"


def test_those_with_credit_get_messages_in_turn(timed: SteppedBroker) -> None:
    timed.make_queue("work")
    peer, producer = timed.connect("consumers"), timed.connect("producer")
    receivers = attached(peer, 12, credit=0)
    for receiver in receivers[::3]:
        receiver.flow(2)
    peer.pump()
    for number in range(9):
        producer.send("work", Message(body=number))
    peer.pump()
    by_message = {body_of(message): delivery.link.name for message, delivery in peer.got}
    order = [by_message[str(number)] for number in range(8)]
    assert sorted(order[:4]) == ["r0", "r3", "r6", "r9"]
    assert order[4:] == order[:4]
    assert timed.queue("work").waiting == 1
    receivers[1].flow(1)
    assert got_by(peer)[-1] == "r1"


def test_consumers_of_equal_rank_come_and_go_without_a_look_at_the_others(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed.make_queue("work")
    ranked: list[int] = []

    def counted(priorities: list[int]) -> tuple[tuple[int, ...], ...]:
        ranked.append(len(priorities))
        return tiers(priorities)

    monkeypatch.setattr(consumer_module, "tiers", counted)
    peer = timed.connect("consumers")
    receivers = attached(peer, 12, credit=1)
    receivers[5].close()
    peer.pump()
    assert ranked == []
    first = peer.session.receiver("first")
    first.source.address = "work?consumer-priority=5"
    first.open()
    first.flow(1)
    peer.pump()
    assert ranked == [12]
    timed.connect("producer").send("work", Message(body="x"), Message(body="y"))
    assert got_by(peer)[0] == "first"
    first.close()
    peer.pump()
    assert ranked == [12, 11]


def test_a_consumer_that_goes_with_credit_gets_nothing_more(timed: SteppedBroker) -> None:
    timed.make_queue("work")
    peer, producer = timed.connect("consumers"), timed.connect("producer")
    receivers = attached(peer, 12, credit=0)
    producer.send("work", Message(body="asked all"))
    receivers[3].flow(1)
    peer.pump()
    receivers[4].flow(5)
    receivers[3].flow(5)
    peer.pump()
    receivers[3].close()
    peer.pump()
    peer.got.clear()
    producer.send("work", Message(body="x"), Message(body="y"))
    assert got_by(peer) == ["r4", "r4"]


def test_after_an_internal_error_the_consumers_of_that_connection_get_nothing(timed: SteppedBroker) -> None:
    queue = timed.make_queue("work")
    failing, other = timed.connect("failing"), timed.connect("other")
    attached(failing, 10, credit=0)[0].flow(5)
    failing.pump()
    attached(other, 12, credit=0)[0].flow(5)
    other.pump()
    producer = timed.connect("producer")
    for name in ("for one", "for the other"):
        producer.send("work", Message(body=name))
    assert queue.links.with_credit is not None
    assert got_by(failing) == ["r0"]
    served = next(iter(timed.broker.clients.connections.values()))
    timed.broker.fail_connection(served)
    timed.turn()
    for number in range(4):
        producer.send("work", Message(body=number))
    assert got_by(other) == ["r0"] * 5, "as many as it has credit for"
    assert {each.connection for each in queue.links.with_credit or ()} <= {
        each.connection for each in queue.links.consumers
    }


class Held:
    """A broker whose log syncs when `catch_up` says so, with a queue of which all consumers are busy."""

    def __init__(self) -> None:
        self._syncers: list[HeldSyncer] = []
        self.stepped = SteppedBroker(syncer=self._made)
        self.stepped.make_queue("work", durable=False)
        self.catch_up()
        self.peer, self.producer = self.stepped.connect("consumers"), self.stepped.connect("producer")
        self.receivers = attached(self.peer, 12, credit=0)
        self.producer.send("work", Message(body="all are busy"))

    def _made(self, files: FileLayer) -> HeldSyncer:
        self._syncers.append(HeldSyncer(files))
        return self._syncers[-1]

    def attach_late(self) -> Receiver:
        """A receiver whose attach waits for the log."""
        self.stepped.make_queue("another")
        self.stepped.turn()
        return self.peer.receive("work", 2, name="late")

    def catch_up(self) -> None:
        for _ in range(4):
            self._syncers[-1].complete()
            self.stepped.pass_ms(10)


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.stepped.close()


def test_a_consumer_whose_attach_waited_for_the_log_gets_what_came_before_its_answer(held: Held) -> None:
    held.attach_late()
    held.producer.send("work", Message(body="too"))
    assert got_by(held.peer) == []
    held.catch_up()
    assert got_by(held.peer) == ["late", "late"]


def test_a_consumer_that_leaves_before_its_attach_is_answered_gets_nothing(held: Held) -> None:
    held.attach_late().close()
    held.peer.pump()
    held.catch_up()
    assert got_by(held.peer) == []
    held.receivers[3].flow(1)
    assert got_by(held.peer) == ["r3"]


STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 5)),
    st.tuples(st.just("flow"), st.integers(0, 7)),
    st.tuples(st.just("attach"), st.integers(0, 7)),
    st.tuples(st.just("high"), st.integers(0, 7)),
    st.tuples(st.just("close"), st.integers(0, 7)),
    st.tuples(st.just("release"), st.integers(0, 7)),
)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEPS, max_size=30))
def test_no_message_waits_while_a_consumer_has_credit(steps: list[tuple[str, int]]) -> None:
    """Whatever comes and goes: three consumers are many here, so that the ways of finding them alternate."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consumer_module, "MANY", 2)
        timed = SteppedBroker()
        timed.make_queue("work")
        peer, producer = timed.connect("consumers"), timed.connect("producer")
        links: dict[int, Receiver] = {}
        for at, (what, number) in enumerate(steps):
            _step(peer, producer, links, what, number, f"l{at}")
            for link in links.values():
                timed_link = next(each for each in timed.queue("work").links.consumers if each.link.name == link.name)
                assert not (timed.queue("work").waiting and timed_link.link.credit > 0), (what, number)
        timed.close()


def _step(peer: Peer, producer: Peer, links: dict[int, Receiver], what: str, number: int, name: str) -> None:
    if what == "send":
        producer.send("work", *(Message(body=each) for each in range(number)))
    elif what == "flow" and number in links:
        links[number].flow(2)
    elif what in ("attach", "high") and number not in links:
        address = "work?consumer-priority=3" if what == "high" else "work"
        links[number] = peer.receive(address, credit=number % 3, name=name)
    elif what == "close" and number in links:
        link = links.pop(number)
        peer.got = [each for each in peer.got if each[1].link.name != link.name]
        link.close()
    elif what == "release" and peer.got:
        _, delivery = peer.got.pop(0)
        delivery.update(delivery.RELEASED)
        delivery.settle()
    peer.pump()
