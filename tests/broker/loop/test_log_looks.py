"""How often a turn looks whether the log has idle work: short turns that follow each other at once share a look."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.stepped_broker import SteppedBroker

from penstock_broker.log import Log

HEARTBEAT = b"\x00\x00\x00\x08\x02\x00\x00\x00"


class Busy:
    """A broker one of whose clients always has something to say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.timed = SteppedBroker()
        self.socket = self.timed.connect_socket()
        self.socket.sendall(b"AMQP\x00\x01\x00\x00")
        self.looks = 0
        wants = Log.__dict__["wants_maintenance"].fget

        def counted(log: Log) -> bool:
            self.looks += 1
            return bool(wants(log))

        for _ in range(200):  # until the spare segments are filled
            self.timed.pass_ms(1)
        monkeypatch.setattr(Log, "wants_maintenance", property(counted))

    def turns(self, count: int) -> int:
        """So many turns that follow each other at once; how often they looked."""
        before = self.looks
        for _ in range(count):
            self.timed.loop.after(0, lambda: None)
            self.event()
            self.timed.turn()
        return self.looks - before

    def event(self) -> None:
        """The next poll has something."""
        self.socket.sendall(HEARTBEAT)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Busy]:
    found = Busy(monkeypatch)
    yield found
    found.socket.close()
    found.timed.close()


def test_turns_of_the_same_millisecond_share_a_look_but_not_for_ever(busy: Busy) -> None:
    busy.timed.now_ms += 1
    assert busy.turns(1) == 1
    assert 1 <= busy.turns(32) <= 3, "one in sixteen"


def test_the_next_millisecond_looks_again(busy: Busy) -> None:
    for _ in range(5):
        busy.timed.now_ms += 1
        assert busy.turns(1) == 1


def test_a_turn_without_an_event_looks(busy: Busy) -> None:
    busy.timed.now_ms += 1
    busy.turns(3)
    before = busy.looks
    for _ in range(3):
        busy.timed.turn()
    assert busy.looks - before >= 2


def test_a_turn_that_did_not_look_is_followed_by_one_that_does_within_two_milliseconds(
    busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []

    def wait_ms(_timers: object, _now: int, most: int) -> int:
        waits.append(most)
        return 0

    monkeypatch.setattr("penstock_broker.clock.Timers.wait_ms", wait_ms)
    busy.timed.now_ms += 1
    busy.turns(1)
    for _ in range(3):  # the last turn did not look, whichever of sixteen it was
        if busy.turns(1) == 0:
            break
    busy.timed.loop.turn()
    assert waits[-1] == 2
    busy.timed.loop.turn()
    busy.timed.loop.turn()
    assert waits[-1] == 1000
