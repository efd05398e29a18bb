"""On a slow disk the next sync waits a moment for producers that were just answered: all of them share it then."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest
from support.held_broker import HeldBroker
from support.raw_client import RawClient
from support.stepped_broker import SteppedStream

from penstock_amqp.frames.performatives import Target, Transfer

DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xa0\x01x"


class Producers(HeldBroker):
    """Two that wait for each accept, on a disk that is done with a sync when the test says so."""

    def __init__(self, look_seconds: float) -> None:
        """`look_seconds`: what each look at the clock takes while a sync is under way."""
        super().__init__()
        self.look_seconds = look_seconds
        self.timed.make_queue("work")
        self.catch_up()
        self.streams = [SteppedStream(self.timed) for _ in range(2)]
        self.clients = [RawClient(0, f"waits-{number}", stream=stream) for number, stream in enumerate(self.streams)]
        for client in self.clients:
            client.begin()
            client.attach_sender("s", Target(address="work"))
            self.catch_up()
        for stream in self.streams:
            stream.take()
        self.sent = [0, 0]

    def send(self, number: int) -> None:
        count = self.sent[number]
        transfer = Transfer(handle=0, delivery_id=count, delivery_tag=b"%d" % count, message_format=0)
        self.sent[number] += 1
        self.clients[number].send(transfer, payload=DURABLE)
        self.timed.turn()

    def pass_looks(self, turns: int) -> None:
        self.timed.step_seconds = self.look_seconds
        for _ in range(turns):
            self.timed.turn()
        self.timed.step_seconds = 0.0

    def half_and_half(self) -> None:
        """The first is being synced while the second comes; then the first is answered."""
        self.pass_looks(1)
        self.send(0)
        self.send(1)
        self.pass_looks(4)
        assert len(self.syncer.submitted) == 1
        assert self.streams[0].take() == b""
        self.syncer.complete()
        self.timed.turn()
        assert self.streams[0].take() != b""
        assert self.streams[1].take() == b""


@contextmanager
def producers(look_seconds: float) -> Generator[Producers]:
    made = Producers(look_seconds)
    yield made
    for client in made.clients:
        client.socket.close()
    made.timed.close()


@pytest.fixture
def slow() -> Iterator[Producers]:
    with producers(0.0002) as made:
        yield made


@pytest.fixture
def fast() -> Iterator[Producers]:
    with producers(0.00001) as made:
        yield made


def test_the_next_sync_waits_for_the_one_that_was_answered(slow: Producers) -> None:
    slow.half_and_half()
    for _ in range(3):
        slow.timed.turn()
    assert slow.syncer.submitted == []
    slow.send(0)
    assert len(slow.syncer.submitted) == 1
    slow.syncer.complete()
    slow.timed.turn()
    assert slow.streams[0].take() != b""
    assert slow.streams[1].take() != b""


def test_it_waits_no_longer_than_half_of_what_the_last_one_took(slow: Producers) -> None:
    slow.half_and_half()
    slow.pass_looks(4)
    assert len(slow.syncer.submitted) == 1
    slow.syncer.complete()
    slow.timed.turn()
    assert slow.streams[1].take() != b""


def test_a_loop_that_waits_for_them_sleeps_for_a_millisecond_at_most(slow: Producers) -> None:
    log_turn = slow.timed.loop._log_turn  # pyright: ignore[reportPrivateUsage]
    assert log_turn.longest_wait_ms() > 1
    slow.half_and_half()
    assert log_turn.longest_wait_ms() == 1
    slow.send(0)
    assert log_turn.longest_wait_ms() > 1


def test_on_a_fast_disk_the_next_sync_begins_at_once(fast: Producers) -> None:
    fast.half_and_half()
    assert len(fast.syncer.submitted) == 1
