"""Connections that come and go in any way leave nothing behind, and need no collector of cycles for that."""

from __future__ import annotations

import gc
from collections import Counter
from typing import cast

from support.garbage import without_collection
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream

from penstock_amqp.frames.performatives import Close, Source, Target, Transfer
from penstock_amqp.types.values import Described, Symbol
from penstock_broker.attach import close
from penstock_core.reason import Reason, Refuse

SELECTOR = {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), "color = 'red'")}
MESSAGE = b"\x00\x53\x75\xa0\x01x"


def come_and_go(timed: SteppedBroker, number: int) -> None:
    """A session, two links, a message; then a Close, a word cut off, or nothing, before the socket goes."""
    stream = SteppedStream(timed)
    with RawClient(0, f"client-{number}", stream=stream) as client:
        client.begin()
        client.attach_receiver("r", Source(address="amq.topic/x"))
        client.attach_sender("s", Target(address="amq.topic/x"))
        client.flow(0, credit=10)
        client.send(Transfer(handle=1, delivery_id=0, delivery_tag=b"t", message_format=0), payload=MESSAGE)
        match number % 3:
            case 0:
                client.send(Close())
            case 1:
                client.send_bytes(b"\x00\x00\x00")
            case _:
                pass
        for _ in range(3):
            timed.turn()
    for _ in range(2):
        timed.turn()
    timed.loop.connections.half_closed.look(timed.now_ms)  # as each sweep does, of which there is none here


def ours() -> Counter[str]:
    """Objects of the broker's own classes, by class."""
    kinds: list[type[object]] = [type(each) for each in cast("list[object]", gc.get_objects())]
    return Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("penstock_"))


def test_clients_that_come_and_go_leave_nothing_behind() -> None:
    timed = SteppedBroker()
    with without_collection():
        for number in range(30):
            come_and_go(timed, number)
        before = ours()
        for number in range(150):
            come_and_go(timed, number)
        assert ours() - before == Counter()
        assert not timed.broker.clients.connections
    timed.close()


def test_clients_queues_and_subscriptions_that_end_leave_no_reference_cycles() -> None:
    """The loop collects young objects only: a cycle that comes with a client would never be freed."""
    timed = SteppedBroker()
    come_and_go(timed, 0)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for number in range(3, 9):
            come_and_go(timed, number)
            queue = timed.make_queue(f"q{number}")
            with RawClient(0, f"user-{number}", stream=SteppedStream(timed)) as client:
                client.begin()
                client.attach_receiver("c", Source(address=queue.name, filter=SELECTOR if number % 2 else None))
                client.attach_receiver("b", Source(address=queue.name, distribution_mode=Symbol("copy")))
                client.attach_receiver(
                    f"sub{number}|global",
                    Source(
                        address="amq.topic/x",
                        durable=2,
                        expiry_policy=Symbol("never"),
                        capabilities=(Symbol("topic"), Symbol("shared"), Symbol("global")),
                    ),
                )
                timed.turn()
            timed.turn()
            topology = timed.broker.topology
            for subscription in list(topology.subscriptions.values()):
                close.end_subscription(timed.broker, subscription)
            close.end_queue(timed.broker, topology.queues[queue.name], Refuse(Reason.QUEUE_NOT_FOUND, "It ends."))
            del queue, topology, client
            for _ in range(3):
                timed.turn()
        gc.collect()
        kinds = [type(each) for each in cast("list[object]", gc.garbage)]
        found = Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("penstock_"))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    timed.close()
    assert found == Counter()
