"""What clients may hold at once: who has too much learns it, and a witness that works notices nothing."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import time
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from proton.utils import BlockingConnection
from support.broker_process import BrokerProcess
from support.certificates import Authority
from support.proton_client import connected, publish, take
from support.raw_client import RawClient
from support.waiting import found

from penstock_amqp.client.management import ManagementClient
from penstock_amqp.frames.frames import SASL_HEADER
from penstock_amqp.frames.performatives import Attach, Close, Detach, Target
from penstock_amqp.sasl.client import Login


@contextmanager
def limited(tmp_path: Path, **limits: object) -> Generator[BrokerProcess]:
    settings: dict[str, object] = {
        "limits": limits,
        "authentication": {"anonymous": True, "users": {"ann": "secret"}, "scramIterations": 4096},
        "autoCreate": True,
    }
    with BrokerProcess(tmp_path / "data", dev=False, settings=settings) as broker:
        yield broker


def refused_open(broker: BrokerProcess, container: str, login: Login | None = None) -> tuple[str, str]:
    """Condition and description of the Close that a connection gets at once."""
    with RawClient(broker.port, container, login=login) as client:
        error = client.expect(Close).error
        assert error is not None
        return str(error.condition), error.description or ""


async def test_one_connection_too_many_is_refused_and_management_gets_in(tmp_path: Path) -> None:
    with limited(tmp_path, connections=2) as broker, ExitStack() as stack:
        first = stack.enter_context(RawClient(broker.port, "a"))
        stack.enter_context(RawClient(broker.port, "b")).begin()
        condition, description = refused_open(broker, "c")
        assert condition == "amqp:resource-limit-exceeded"
        assert "The broker has 2 connections open" in description
        assert "limits.connections." in description
        client = await ManagementClient.connect(broker.management)
        await client.close()
        first.close()
        stack.enter_context(RawClient(broker.port, "d")).begin()


def test_a_user_s_connections_are_counted_apart_from_others(tmp_path: Path) -> None:
    with limited(tmp_path, connectionsPerUser=1) as broker, RawClient(broker.port, "a", login=Login("ann", "secret")):
        condition, description = refused_open(broker, "b", Login("ann", "secret"))
        assert condition == "amqp:resource-limit-exceeded"
        assert "User 'ann' has 1 connections open" in description
        with RawClient(broker.port, "c") as anonymous:
            anonymous.begin()


def test_an_address_s_connections_are_counted(tmp_path: Path) -> None:
    with limited(tmp_path, connectionsPerPeer=1) as broker, RawClient(broker.port, "a"):
        assert "Address 127.0.0.1 has 1 connections open" in refused_open(broker, "b")[1]


def half_open(broker: BrokerProcess) -> socket.socket:
    """A connection that has begun and says no more; the broker has taken it in."""
    sock = socket.create_connection(("127.0.0.1", broker.port), 20)
    try:
        sock.sendall(SASL_HEADER)
        assert sock.recv(8) == SASL_HEADER, "it was turned away"
    except BaseException:
        sock.close()
        raise
    return sock


def test_an_address_that_does_not_log_in_gets_no_more_connections(tmp_path: Path) -> None:
    with limited(tmp_path, unauthenticatedPerPeer=3) as broker, ExitStack() as stack:
        held = [stack.enter_context(contextlib.closing(half_open(broker))) for _ in range(3)]
        with pytest.raises((ConnectionError, AssertionError)):
            half_open(broker)
        assert "3 connections of its address have not logged in yet" in broker.log()
        held[0].close()
        with patient(broker) as client:
            client.begin()


def patient(broker: BrokerProcess) -> RawClient:
    """A client that comes again until there is room: the broker may not have noticed yet that another has left."""

    def come() -> RawClient | None:
        try:
            return RawClient(broker.port, "patient")
        except (ConnectionError, EOFError):
            return None

    return found(come, "room for one more")


def test_with_too_many_strangers_others_wait_until_some_have_left(tmp_path: Path) -> None:
    with limited(tmp_path, unauthenticated=3, unauthenticatedPerPeer=None) as broker, ExitStack() as stack:
        held = [stack.enter_context(contextlib.closing(half_open(broker))) for _ in range(3)]
        waiting = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 20))
        waiting.sendall(SASL_HEADER)
        waiting.settimeout(0.3)
        with pytest.raises(TimeoutError):
            waiting.recv(8)
        waiting.settimeout(60)
        held[0].close()
        assert waiting.recv(8) == SASL_HEADER
        assert "new ones wait" in broker.log()


async def test_clients_leave_descriptors_to_probes_and_management(tmp_path: Path) -> None:
    with limited(tmp_path, unauthenticatedPerPeer=None) as broker, ExitStack() as stack:
        resource.prlimit(
            broker.pid, resource.RLIMIT_NOFILE, (64, resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)[1])
        )
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 60)) for _ in range(64)]
        for sock in held:
            sock.sendall(SASL_HEADER)
        assert held[0].recv(8) == SASL_HEADER
        found(lambda: "new ones wait" in broker.log() or None, "a pause")
        client = await ManagementClient.connect(broker.management)
        await client.close()
        with urllib.request.urlopen(f"http://{broker.addresses['probes']}/livez", timeout=60) as answer:
            assert answer.status == 200
        for sock in held[:-1]:
            sock.close()
        assert held[-1].recv(8) == SASL_HEADER


async def test_management_that_waits_for_a_descriptor_is_tried_now_and_then(tmp_path: Path) -> None:
    with limited(tmp_path) as broker:
        before = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        taken = {int(each.name) for each in Path(f"/proc/{broker.pid}/fd").iterdir()}
        free = min(set(range(len(taken) + 1)) - taken)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (free, before[1]))
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.settimeout(60)
            waiting.connect(broker.management.removeprefix("unix:"))
            waiting.sendall(SASL_HEADER)
            found(lambda: "new ones wait" in broker.log() or None, "a pause")
            resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, before)
            assert waiting.recv(8) == SASL_HEADER
        assert broker.log().count("new ones wait") == 1


def test_a_start_says_that_it_has_too_few_descriptors(tmp_path: Path) -> None:
    with limited(tmp_path, connections=2**40) as broker:
        assert "limits.connections (1099511627776) is more than the process has file descriptors for" in broker.log()


def test_who_does_not_log_in_in_time_is_dropped(tmp_path: Path) -> None:
    with limited(tmp_path, loginSeconds=1) as broker, contextlib.closing(half_open(broker)) as sock:
        while sock.recv(4096):
            pass
        assert "it has not opened within 1 s" in broker.log()


def is_admitted(reply: Attach) -> bool:
    return reply.target is not None


def test_one_link_too_many_is_refused_and_the_others_stay(tmp_path: Path) -> None:
    with limited(tmp_path, linksPerConnection=2) as broker, RawClient(broker.port, "a") as client:
        client.begin()
        for name in ("one", "two"):
            assert is_admitted(client.attach_sender(name, Target(address="q")))
        assert not is_admitted(client.attach_sender("three", Target(address="q")))
        error = client.expect(Detach).error
        assert error is not None
        assert str(error.condition) == "amqp:resource-limit-exceeded"
        assert "The connection has 2 links" in (error.description or "")
        client.detach(0, closed=True)
        assert is_admitted(client.attach_sender("four", Target(address="q")))


def test_the_open_says_how_many_sessions_there_may_be(tmp_path: Path) -> None:
    with limited(tmp_path, sessionsPerConnection=2) as broker, RawClient(broker.port, "a") as client:
        assert client.open.channel_max == 1
        client.begin(0)
        client.begin(1)


def check(connection: BlockingConnection, count: int) -> None:
    """A witness: each message comes back."""
    sender = connection.create_sender("witness")
    receiver = connection.create_receiver("witness", credit=10)
    for number in range(count):
        publish(sender, [number])
        assert take(receiver, 1) == [(number, 0)]
    sender.close()  # type: ignore[no-untyped-call] # proton has no types there
    receiver.close()  # type: ignore[no-untyped-call]


def sockets(broker: BrokerProcess) -> int:
    """How many sockets the broker has open."""
    names: list[str] = []
    for path in Path(f"/proc/{broker.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            names.append(os.readlink(path))
    return sum(name.startswith("socket:") for name in names)


def hostile_bytes(seed: int) -> bytes:
    """What a stranger may send: half handshakes, garbage, headers of other protocols."""
    chosen = random.Random(seed)
    return chosen.choice(
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            SASL_HEADER + bytes.fromhex("00000010 02 01 0000 005341 c0 03 01 a3 00"),
            b"\x16\x03\x01\xff\xff" + chosen.randbytes(3000),
            chosen.randbytes(200),
            b"",
        )
    )


@pytest.mark.parametrize("listener", ["amqp", "amqps"])
def test_five_hundred_hostile_strangers_disturb_nobody(tmp_path: Path, listener: str) -> None:
    issued = Authority(tmp_path).issue("broker")
    tls = {"certificate": str(issued.certificate), "key": str(issued.key)}
    settings: dict[str, object] = {
        "listeners": [{"name": "amqps", "address": "127.0.0.1:0", "tls": tls}],
        "authentication": {"anonymous": True},
        "autoCreate": True,
    }
    with BrokerProcess(tmp_path / "data", dev=False, settings=settings) as broker, connected(broker.url) as witness:
        check(witness, 10)
        before, started = sockets(broker), time.monotonic()
        at = int(broker.addresses[listener].rpartition(":")[2])
        with ExitStack() as stack:
            for number in range(500):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", at), 20))
                with contextlib.suppress(ConnectionError):  # it may have been turned away already
                    sock.sendall(hostile_bytes(number))
                if number % 100 == 0:
                    check(witness, 5)
        check(witness, 10)
        while sockets(broker) > before:
            check(witness, 1)
        assert "internal error" not in broker.log()
        # Logs of strangers are bounded: twenty lines a second, and one that counts the others.
        seconds = time.monotonic() - started + 2
        assert broker.log().count("WARNING") <= 21 * seconds
