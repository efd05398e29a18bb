"""A client that is sending when the broker closes its connection reads why. Source: AMQP 1.0 part 2, 2.4.3."""

from __future__ import annotations

import select
import socket
from pathlib import Path

from support.broker_process import BrokerProcess
from support.raw_client import RawClient

from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import Close, End
from penstock_broker.access.half_closed import HalfClosed
from penstock_broker.access.transport import Transport

HEARTBEAT = encode_frame(None)


def test_a_client_that_goes_on_sending_reads_the_close(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data") as broker,
        socket.create_connection(("127.0.0.1", broker.port)) as sock,
        RawClient(broker.port, "sends", stream=sock) as client,
    ):
        client.begin()
        client.send(End(), channel=9)  # of no session: an error of the connection
        for _ in range(8):
            sock.sendall(HEARTBEAT * 16_384)  # 128 KiB, which nobody reads as frames any more
        poll = select.poll()
        poll.register(sock, select.POLLRDHUP)
        assert poll.poll(30_000), "the broker has closed its side"
        sock.sendall(HEARTBEAT)
        error = client.expect(Close).error
        assert error is not None
        assert error.condition == "amqp:not-allowed"
        assert sock.recv(100) == b""


def pair() -> tuple[Transport, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(10)
    return Transport(ours, "peer", None), theirs


def test_a_socket_is_closed_when_its_peer_closes_it_or_after_a_second() -> None:
    half_closed = HalfClosed()
    (leaving, peer), (staying, other) = pair(), pair()
    half_closed.add(leaving, 5_000)
    half_closed.add(staying, 5_000)
    assert peer.recv(1) == other.recv(1) == b""  # nothing more comes
    other.sendall(b"more")
    half_closed.look(5_500)
    assert len(half_closed) == 2
    peer.close()
    half_closed.look(5_999)
    assert (leaving.sock.fileno(), len(half_closed)) == (-1, 1)
    half_closed.look(6_000)
    assert (staying.sock.fileno(), len(half_closed)) == (-1, 0)
    other.close()


def test_a_socket_that_is_broken_is_closed_at_once() -> None:
    half_closed = HalfClosed()
    with socket.socket() as never_connected:
        transport = Transport(never_connected, "peer", None)
        half_closed.add(transport, 0)
        assert (transport.sock.fileno(), len(half_closed)) == (-1, 0)


def test_so_many_are_kept_and_no_more() -> None:
    half_closed = HalfClosed()
    pairs = [pair() for _ in range(1_001)]
    for transport, _ in pairs:
        half_closed.add(transport, 0)
    assert [transport.sock.fileno() == -1 for transport, _ in pairs] == [True] + [False] * 1_000
    half_closed.close()
    assert all(transport.sock.fileno() == -1 for transport, _ in pairs)
    for _, peer in pairs:
        peer.close()
