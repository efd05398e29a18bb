"""The asyncio shell that both clients share, at a broker that keeps silent or hangs up. Time is virtual."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
from support.virtual_time import run_in_virtual_time

from penstock_amqp.client.client import Client
from penstock_amqp.client.connected_client import LoggedIn
from penstock_amqp.client.errors import TransportError
from penstock_amqp.client.message_client import MessageClient
from penstock_amqp.client.message_session import MessageSession, Sender, Subscriber
from penstock_amqp.client.request_session import RequestSession, SessionSettings
from penstock_amqp.frames.frames import AMQP_HEADER, encode_frame
from penstock_amqp.frames.performatives import Attach, Begin, Open, Source, Target

SETTINGS = SessionSettings(container_id="c", node="$management", reply_to="me")


@asynccontextmanager
async def peer() -> AsyncGenerator[tuple[LoggedIn, socket.socket]]:
    """Our end of a connection, and the broker's, which does nothing."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            yield LoggedIn(reader, writer, b""), theirs
        finally:
            writer.close()


def attached(name: str) -> bytes:
    """The broker's opening for a link of ours that sends. It wants a heartbeat each two seconds."""
    return AMQP_HEADER + b"".join(
        encode_frame(body)
        for body in (
            Open(container_id="broker", idle_time_out=4000),
            Begin(remote_channel=0, next_outgoing_id=0, incoming_window=9, outgoing_window=9),
            Attach(name=name, handle=0, role=True, source=Source(), target=Target(address="letters")),
        )
    )


def received(theirs: socket.socket) -> bytes:
    try:
        return theirs.recv(1 << 20)
    except BlockingIOError:
        return b""


def requests(socket: LoggedIn) -> Client:
    return Client(socket, RequestSession(SETTINGS))


def messages(socket: LoggedIn) -> MessageClient:
    return MessageClient(socket, MessageSession(Sender("x"), "c"))


@pytest.mark.parametrize(("made", "seconds"), [(requests, 30), (messages, 60)])
def test_a_silent_broker_ends_the_connection_after_twice_the_idle_time_out(
    made: Callable[[LoggedIn], Client | MessageClient], seconds: int
) -> None:
    async def script() -> float:
        async with peer() as (ours, _):
            client = made(ours)
            with pytest.raises(TransportError, match=f"nothing came from the broker for {seconds} seconds"):
                await client.ready()
            return asyncio.get_running_loop().time()

    assert run_in_virtual_time(script()) == pytest.approx(seconds, abs=0.1)


def test_who_waits_for_a_message_learns_that_the_broker_hung_up() -> None:
    async def script() -> None:
        async with peer() as (ours, theirs):
            client = MessageClient(ours, MessageSession(Subscriber(address="x"), "c"))
            theirs.send(attached("c"))
            await client.ready()
            theirs.shutdown(socket.SHUT_WR)
            with pytest.raises(TransportError, match="the broker ended the connection"):
                await client.receive(None)
            await client.close()

    run_in_virtual_time(script())


def test_heartbeats_are_sent_until_it_is_closed() -> None:
    async def beats(theirs: socket.socket, seconds: float) -> int:
        received(theirs)
        await asyncio.sleep(seconds)
        return received(theirs).count(b"\x00\x00\x00\x08\x02\x00\x00\x00")

    async def script() -> tuple[int, int]:
        async with peer() as (ours, theirs):
            client = MessageClient(ours, MessageSession(Sender("x"), "c"))
            theirs.send(attached("c"))
            await client.ready()
            open_beats = await beats(theirs, 11)
            await client.close()
            return open_beats, await beats(theirs, 11)

    assert run_in_virtual_time(script()) == (5, 0)
