"""How the socket to a broker is opened: an address that says nothing, one that refuses, one that has two families."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
from support.silent_address import silent_address

from penstock_amqp.client.address import Address
from penstock_amqp.client.errors import NoAnswer


async def test_an_address_that_does_not_answer_is_given_up_in_time() -> None:
    with silent_address() as (host, port):
        begun = time.monotonic()
        with pytest.raises(NoAnswer) as raised:
            await Address(host=host, port=port, answer_seconds=0.2).connect()
        assert 0.2 <= time.monotonic() - begun < 60, "the system gives up after about two minutes"
    assert str(raised.value) == f"nothing answers at 127.0.0.1:{port} within 0.2 seconds"


async def test_a_refusal_is_told_at_once_and_is_no_lack_of_an_answer() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            await Address(host="127.0.0.1", port=unused.getsockname()[1], answer_seconds=60).connect()


async def test_each_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that means the silent address first, and a listener then."""
    loop = asyncio.get_running_loop()
    with silent_address() as silent, socket.create_server(("127.0.0.1", 0)) as listener:
        answers = [silent, listener.getsockname()]

        async def known(host: str, *_: object, **__: object) -> list[object]:
            assert host == "broker"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", where) for where in answers]

        monkeypatch.setattr(loop, "getaddrinfo", known)
        _, writer = await Address(host="broker", port=1, answer_seconds=1).connect()
        assert writer.get_extra_info("peername") == listener.getsockname()
        writer.close()
