"""Turns that are over before everybody had theirs, by a clock that moves when it is looked at, and only then."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream

from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import Detach, Source, Target, Transfer
from penstock_broker.access.connection import Connection
from penstock_broker.access.read_progress import READ_BYTES
from penstock_broker.attach import temporary_nodes
from penstock_broker.clock import Timers
from penstock_broker.messages import dispatch
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.topology.records import PointToPointQueue, Temporary
from penstock_core.temporary_nodes import LifetimePolicy, Use, is_over

HEARTBEAT = encode_frame(None)
MESSAGE = b"\x00\x53\x75\xa0\x01x"


@contextmanager
def clients(timed: SteppedBroker, count: int) -> Generator[list[SteppedStream]]:
    """The streams of connections that are open, each with a session."""
    with ExitStack() as stack:
        streams = [SteppedStream(timed) for _ in range(count)]
        for number, stream in enumerate(streams):
            stack.enter_context(RawClient(0, f"client-{number}", stream=stream)).begin()
        yield streams
        timed.step_seconds = 0.0


def test_who_did_not_get_their_turn_are_the_first_in_the_next(timed: SteppedBroker) -> None:
    """One connection uses a turn up. Three have more to say than a read takes: the poll names the first of them first
    again, which says more than the others get, and the witness last.
    """
    queue = timed.make_queue("work", durable=False)
    with clients(timed, 3) as busy, RawClient(0, "witness", stream=SteppedStream(timed)) as witness:
        witness.begin()
        witness.attach_sender("s", Target(address="work"))
        for _ in range(2):  # the poll forgets who was ready
            timed.turn()
        timed.step_seconds = 0.003
        for stream in busy:
            stream.sendall(HEARTBEAT * (2 * READ_BYTES // len(HEARTBEAT)))
        witness.send(
            Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, settled=True), payload=MESSAGE
        )
        timed.turn()
        assert queue.depth == 0  # else somebody else was the first
        for _ in range(3):
            timed.turn()
        assert queue.depth == 1


def test_queues_get_a_millisecond_of_a_turn_however_much_there_is_to_read(timed: SteppedBroker) -> None:
    """Each look at the clock takes 0.3 ms: reading from eight connections uses a turn up, and four queues fit into the
    millisecond that is theirs.
    """
    with clients(timed, 8) as busy, RawClient(0, "consumer", stream=SteppedStream(timed)) as consumer:
        consumer.begin()
        for number in range(12):
            queue = timed.make_queue(f"q{number}", durable=False)
            queue.ready.extend([(timed.broker.log.next_messages(1), MESSAGE, timed.broker.clock.now_us, 0, 0)])
            consumer.attach_receiver(f"r{number}", Source(address=f"q{number}"))
        timed.turn()
        timed.step_seconds = 0.0003
        for number in range(12):
            consumer.flow(number, credit=1)
        waiting = 12
        for _ in range(6):
            for stream in busy:
                stream.sendall(HEARTBEAT)
            timed.turn()
            waiting = sum(len(timed.queue(f"q{number}").ready) for number in range(12))
            if not waiting:
                break
        assert not waiting, f"{waiting} of 12 queues wait after 6 turns"


def test_long_messages_of_many_connections_share_turns(timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes 1.1 ms, so that a turn has time for a part of one long message."""
    turns: list[list[Connection]] = []

    def advance(_broker: Broker, connection: Connection) -> None:
        turns[-1].append(connection)

    monkeypatch.setattr(dispatch, "advance_streams", advance)
    with clients(timed, 5):
        connections = list(timed.broker.clients.connections.values())
        for connection in connections:
            timed.broker.work.streaming[connection] = None
        timed.step_seconds = 0.0011
        for _ in range(5):
            turns.append([])
            timed.turn()
    assert turns == [[each] for each in connections]
    assert not timed.broker.work.streaming


def test_compaction_uses_idle_turns_and_waits_for_no_traffic(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message of sixty is left in each of forty segments, and nobody says anything any more."""
    log, queue = timed.log, timed.make_queue("work").incarnation
    for _ in range(40):
        messages = [log.put(log.route_set((queue,)), bytes(1000), 0) for _ in range(60)]
        log.write()
        log.ack_many(queue, messages[1:])
        log.topology("exchange", "x", bytes(4000))  # so that a checkpoint is due
    log.write()
    log.sync()
    waits: list[int] = []

    def wait_ms(_timers: Timers, _now: int, most: int) -> int:
        waits.append(most)
        return 0

    monkeypatch.setattr(Timers, "wait_ms", wait_ms)
    before, in_vain = log.segments, 0
    for _ in range(1000):
        wanted, waited = log.wants_maintenance, len(waits)
        timed.now_ms += 1  # acks are synced some milliseconds later
        timed.loop.turn()
        in_vain += wanted and len(waits) > waited
        if log.segments < 10:
            break
    assert before > 35
    assert log.segments < 10
    assert in_vain <= 1, "the first turn could not know it"


def make_lingering(timed: SteppedBroker, connection: Connection, *, has_creator: bool) -> list[Temporary]:
    """250 empty temporary queues. Each stays until the link that made it is gone and it is empty (AMQP 1.0 part 3,
    3.5.12).
    """
    policy = LifetimePolicy.DELETE_ON_NO_MESSAGES
    made = [Temporary(connection.number, policy, is_exclusive=False, has_creator=has_creator) for _ in range(250)]
    for number, each in enumerate(made):
        name = f"temporary-queue:{number}"
        incarnation = timed.broker.topology.next_incarnation()
        queue = Queue(name, incarnation, is_logged=False, now_us=timed.now_ms * 1000)
        node = PointToPointQueue(name=name, durable=False, queue=queue, temporary=each)
        temporary_nodes.make(timed.broker, connection, node)
    return made


def test_many_temporary_queues_are_looked_at_in_slices(timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link ends while there are 250 that are over: they are looked at and deleted a hundred per turn."""
    looks: list[int] = []

    def counted(policy: LifetimePolicy, use: Use) -> bool:
        looks[-1] += 1
        return is_over(policy, use)

    topology = timed.broker.topology
    with RawClient(0, "maker", stream=SteppedStream(timed)) as maker:
        maker.begin()
        (connection,) = timed.broker.clients.connections.values()
        make_lingering(timed, connection, has_creator=False)
        maker.attach_sender("s", Target(address="temporary-queue:0"))
        maker.send(Detach(handle=0, closed=True))
        monkeypatch.setattr(temporary_nodes, "is_over", counted)
        while topology.queues:
            looks.append(0)
            timed.turn()
        assert [each for each in looks if each] == [100, 100, 50]


def test_a_link_that_ends_during_a_review_has_all_temporary_queues_looked_at_again(timed: SteppedBroker) -> None:
    """The review has passed by queues that still had their maker when another link ended."""
    topology = timed.broker.topology
    with RawClient(0, "maker", stream=SteppedStream(timed)) as maker:
        maker.begin()
        (connection,) = timed.broker.clients.connections.values()
        made = make_lingering(timed, connection, has_creator=True)
        temporary_nodes.links_ended(timed.broker, ())  # looks at a hundred of them
        for each in made:
            each.has_creator = False
        temporary_nodes.links_ended(timed.broker, ())
        for _ in range(20):
            timed.turn()
        assert topology.queues == {}


@pytest.mark.parametrize(("size", "turns"), [(1024, 2), (512, 2), (450, 3), (100, 3)])
def test_of_long_messages_more_is_read_at_once(timed: SteppedBroker, size: int, turns: int) -> None:
    """There are 150 KiB to read. The first turn reads 64 of them; if the messages were long, the second reads 256."""
    queue = timed.make_queue("work", durable=False)
    with RawClient(0, "producer", stream=(stream := SteppedStream(timed))) as producer:
        producer.begin()
        producer.attach_sender("s", Target(address="work"))
        for _ in range(2):
            timed.turn()
        head = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, settled=True)
        data = b"\x00\x53\x75\xb0" + size.to_bytes(4) + bytes(size)
        count = 150 * 1024 // len(encode_frame(head, 0, data))
        frames = [encode_frame(replace(head, delivery_id=number), 0, data) for number in range(count)]
        stream.sendall(b"".join(frames))
        for _ in range(turns - 1):
            timed.turn()
            assert queue.depth < count
        timed.turn()
        assert queue.depth == count
