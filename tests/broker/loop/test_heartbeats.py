"""A peer that names an idle time-out hears from the broker in time. Source: AMQP 1.0 part 2, 2.4.5."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream

from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import Flow

HEARTBEAT = encode_frame(None)
ECHO = Flow(next_incoming_id=0, incoming_window=100, next_outgoing_id=0, outgoing_window=100, echo=True)
STEP_MS = 5


@pytest.fixture
def timed() -> Iterator[SteppedBroker]:
    broker = SteppedBroker()
    broker.loop.time_outs.sweep()  # it sets its next timer itself
    yield broker
    broker.close()


@pytest.mark.parametrize("before_ms", [0, 60, 130, 245])
@pytest.mark.parametrize("idle_ms", [250, 400, 500, 1000, 2000])
def test_a_peer_hears_something_within_its_idle_time_out(timed: SteppedBroker, idle_ms: int, before_ms: int) -> None:
    """Whenever its Open comes between two looks at the connections, which are 250 ms apart."""
    timed.pass_ms(before_ms)
    stream = SteppedStream(timed)
    with RawClient(0, "hasty", stream=stream, idle_time_out=idle_ms):
        heard = [timed.now_ms]
        while timed.now_ms < heard[0] + 10_000:
            timed.pass_ms(STEP_MS)
            came = stream.take()
            assert came == HEARTBEAT * (len(came) // len(HEARTBEAT))
            if came:
                heard.append(timed.now_ms)
        pauses = [later - earlier for earlier, later in pairwise([*heard, timed.now_ms])]
        assert max(pauses) <= idle_ms
        assert min(pauses[1:-1]) >= idle_ms // 2  # the first may be early


def test_a_connection_that_ends_leaves_no_timer_that_harms(timed: SteppedBroker) -> None:
    stream = SteppedStream(timed)
    with RawClient(0, "hasty", stream=stream, idle_time_out=400):
        timed.pass_ms(250)
        assert stream.take() == HEARTBEAT
    witness = timed.connect()
    timed.pass_ms(200)
    assert [each.client.container_id for each in timed.broker.clients.connections.values()] == ["peer"]
    witness.close()


@pytest.mark.parametrize("behind_ms", [0, 5, 100, 245])
@pytest.mark.parametrize("idle_ms", [250, 400, 1000, 1900, 2000, 30_000])
def test_what_a_peer_hears_in_between_makes_no_later_pause_longer(
    timed: SteppedBroker, idle_ms: int, behind_ms: int
) -> None:
    """2.4.5: "Each peer has its own (independent) idle timeout", and an answer that left just behind a look at the
    connection is as good as an empty frame, but no better.
    """
    stream = SteppedStream(timed)
    with RawClient(0, "hasty", stream=stream, idle_time_out=idle_ms) as client:
        client.begin()
        pauses: list[int] = []
        for _ in range(3):
            while not stream.take():
                timed.pass_ms(STEP_MS)
            timed.pass_ms(behind_ms)
            stream.take()
            client.send(ECHO)
            timed.pass_ms(0)
            assert len(stream.take()) > len(HEARTBEAT)
            asked = timed.now_ms
            while not stream.take():
                timed.pass_ms(STEP_MS)
            pauses.append(timed.now_ms - asked)
        assert max(pauses) <= idle_ms


def number_of(timed: SteppedBroker) -> list[str]:
    return sorted(each.client.container_id for each in timed.broker.clients.connections.values())


@pytest.mark.parametrize("idle_ms", [0, 900])
def test_a_broker_that_stood_still_takes_nobody_for_silent_whom_it_did_not_read(
    timed: SteppedBroker, idle_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that was stopped for a minute goes on with its timers, before it has read what came meanwhile."""
    streams = {name: SteppedStream(timed) for name in ("alive", "silent")}
    for name, stream in streams.items():
        RawClient(0, name, stream=stream, idle_time_out=idle_ms or None)
    timed.pass_ms(1_000)
    streams["alive"].sendall(HEARTBEAT)
    timed.now_ms += 61_000
    timed.turn()
    assert "The process stood still for 61 s" in caplog.text
    assert number_of(timed) == ["alive", "silent"]
    for _ in range(8):
        timed.pass_ms(250)
    assert number_of(timed) == ["alive"], "one was not heard of for more than 60 s, with nothing unread"
    for _ in range(4 * 57):
        timed.pass_ms(250)
    assert number_of(timed) == ["alive"]
    for _ in range(4 * 3):
        timed.pass_ms(250)
    assert number_of(timed) == []
    for stream in streams.values():
        stream.close()


def test_a_login_is_not_late_while_the_broker_stood_still(timed: SteppedBroker) -> None:
    sock = timed.connect_socket()
    timed.pass_ms(1_000)
    timed.now_ms += 61_000
    timed.turn()
    timed.pass_ms(250)
    assert len(timed.broker.clients.connections) == 1
    for _ in range(4):
        timed.pass_ms(250)
    assert len(timed.broker.clients.connections) == 0
    sock.close()
