"""The observer process beside a real broker process: what HTTP shows, a broker that is killed, an orderly end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import has_dualstack_ipv6
from typing import Any, TypeVar

import aiohttp
import pytest
from proton import Message
from proton.utils import BlockingConnection
from support.broker_process import BrokerProcess
from support.volumes import make_read_only, make_writable, small_volume

from penstock_amqp.client.management import ManagementClient
from penstock_api.failure import CannotRun, Misuse
from penstock_api.ledger_format import SegmentName
from penstock_api.management import ExchangeDeclaration, SubscriptionDeclaration
from penstock_observer.main import run
from penstock_observer.settings import ObserverSettings

T = TypeVar("T")

DEADLINE_SECONDS = 300.0
ORDERS = "psub:durable:global:orders"


@dataclass(frozen=True)
class ObserverProcess:
    """A running `penstock observer`."""

    process: asyncio.subprocess.Process
    session: aiohttp.ClientSession
    base: str

    async def get(self, path: str) -> tuple[int, Any]:
        """Status and body, JSON if it is."""
        async with self.session.get(f"{self.base}{path}") as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await (answer.json() if is_json else answer.text())

    async def until(self, path: str, condition: Callable[[int, Any], bool]) -> Any:
        """Ask until the answer fits."""
        return await within_deadline(self._asking(path, condition))

    async def _asking(self, path: str, condition: Callable[[int, Any], bool]) -> Any:
        while True:
            status, body = await self.get(path)
            if condition(status, body):
                return body
            await asyncio.sleep(0.05)


async def within_deadline(waiting: Awaitable[T]) -> T:
    """Not for ever."""
    return await asyncio.wait_for(waiting, DEADLINE_SECONDS)


@asynccontextmanager
async def observing(folder: Path, socket: Path, listen: str = "127.0.0.1:0") -> AsyncGenerator[ObserverProcess, None]:
    """An observer that polls and seals every second, its token `s3cret`."""
    token = folder / "token"
    token.write_text("s3cret\n")
    options = {
        "--broker-socket": socket,
        "--ledger": folder / "ledger",
        "--listen": listen,
        "--token-file": token,
        "--broker": "main",
        "--namespace": "shop",
        "--interval": 1,
        "--segment-seconds": 1,
    }
    words = [str(word) for pair in options.items() for word in pair]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock_cli", "observer", *words, stdout=asyncio.subprocess.PIPE, env={**os.environ}
    )
    try:
        assert process.stdout is not None
        line = (await within_deadline(process.stdout.readline())).decode()
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer s3cret"}) as session:
            yield ObserverProcess(process, session, line.split()[-1])
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def declare(management: str) -> None:
    """A topic exchange and a durable subscription to all of it."""
    client = await ManagementClient.connect(management)
    await client.create(ExchangeDeclaration(exchange_type="Topic"), "events")
    await client.create(SubscriptionDeclaration(subscription_name="orders", exchange="events"))
    await client.close()


def publish(url: str, count: int) -> None:
    """Durable messages to the exchange, each accepted."""
    connection = BlockingConnection(url)
    sender = connection.create_sender("events")
    for number in range(count):
        sender.send(Message(body=f"m{number}", durable=True))
    connection.close()


async def test_a_broker_is_observed_through_its_death(tmp_path: Path) -> None:
    """Its backlog, its absence, its return with another epoch; at the end the ledger is sealed without a gap."""
    socket = tmp_path / "observer.sock"
    broker = BrokerProcess(tmp_path / "data", settings={"observerSocket": str(socket)})
    with broker:
        await declare(broker.management)
        await asyncio.to_thread(publish, broker.url, 5)
        async with observing(tmp_path, socket) as observer:
            scale = await observer.until(f"/v1/subscriptions/{ORDERS}/scale", lambda status, _: status == 200)
            assert (scale["lag"], scale["ready"], scale["inFlight"]) == (5, 5, 0)
            await observer.until("/v1/ledger/segments", lambda _, body: len(body["segments"]) > 0)

            broker.kill()
            gone = await observer.until("/v1/subscriptions", lambda status, _: status == 503)
            assert gone["error"] == "BrokerAway"
            _, metrics = await observer.get("/metrics")
            assert "penstock_broker_reachable 0.0" in metrics
            labels = f'exchange="events",namespace="shop",subscription="{ORDERS}"'
            assert f"penstock_subscription_depth_messages{{{labels}}} 5\n" in metrics
            listing = await observer.until("/v1/ledger/segments", lambda _, body: not body["reachable"])
            assert listing["epoch"] == 1

            broker.start()
            back = await observer.until("/v1/subscriptions", lambda status, _: status == 200)
            assert [(state["queueName"], state["depth"]) for state in back] == [(ORDERS, 5)]
            await observer.until(
                "/v1/ledger/segments", lambda _, body: body["segments"][-1]["name"][:10] == "0000000002"
            )

            observer.process.send_signal(signal.SIGTERM)
            assert await within_deadline(observer.process.wait()) == 0
    names = sorted(filter(None, (SegmentName.parse(path.name) for path in (tmp_path / "ledger").iterdir())))
    assert [before.last + 1 for before in names[:-1]] == [after.first for after in names[1:]]
    assert {name.epoch for name in names} == {1, 2}
    assert list((tmp_path / "ledger").glob(".*.parquet")) == []


async def test_an_observer_starts_on_a_volume_that_cannot_be_written(tmp_path: Path) -> None:
    """Autoscalers need it. Nobody restarts it when the volume is mended: the ledger begins then."""
    socket = tmp_path / "observer.sock"
    with (
        small_volume(tmp_path / "ledger", 16),
        BrokerProcess(tmp_path / "data", settings={"observerSocket": str(socket)}) as broker,
    ):
        await declare(broker.management)
        make_read_only(tmp_path / "ledger")
        async with observing(tmp_path, socket) as observer:
            await observer.until(f"/v1/subscriptions/{ORDERS}/scale", lambda status, _: status == 200)
            listing = await observer.until("/v1/ledger/segments", lambda _, body: "problem" in body)
            assert listing["segments"] == []
            assert "Read-only file system" in listing["problem"]
            assert "tries again with each poll" in listing["problem"]
            _, metrics = await observer.get("/metrics")
            assert "penstock_ledger_write_failures_total 0.0" not in metrics
            assert "penstock_ledger_dropped_rows_total 0.0" not in metrics
            assert (await observer.get("/v1/lag/live"))[0] == 200

            make_writable(tmp_path / "ledger")
            listing = await observer.until("/v1/ledger/segments", lambda _, body: len(body["segments"]) > 0)
            assert "problem" not in listing
            observer.process.send_signal(signal.SIGTERM)
            assert await within_deadline(observer.process.wait()) == 0


@pytest.mark.skipif(not has_dualstack_ipv6(), reason="this machine has no IPv6")
async def test_all_addresses_are_those_of_both_families(tmp_path: Path) -> None:
    async with observing(tmp_path, tmp_path / "absent.sock", "[::]:0") as observer:
        port = observer.base.rpartition(":")[2]
        for host in ("127.0.0.1", "[::1]"):
            async with observer.session.get(f"http://{host}:{port}/metrics") as answer:
                assert answer.status == 200


async def test_an_observer_without_a_broker_serves(tmp_path: Path) -> None:
    """Its own health, metrics and the ledger; live state is unavailable. The broker may come later."""
    async with observing(tmp_path, tmp_path / "observer.sock") as observer:
        assert await observer.get("/healthz") == (200, "ok\n")
        status, body = await observer.get("/v1/subscriptions")
        assert (status, body["error"]) == (503, "BrokerAway")
        assert (await observer.get("/v1/ledger/segments"))[1]["segments"] == []
        observer.process.send_signal(signal.SIGTERM)
        assert await within_deadline(observer.process.wait()) == 0


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_answered_and_no_traceback(
    tmp_path: Path, request_bytes: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whoever reaches the port could fill the log with it."""
    async with observing(tmp_path, tmp_path / "observer.sock") as observer:
        host, _, port = observer.base.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request_bytes)
        assert (await within_deadline(reader.readline())).startswith(b"HTTP/1.0 400 ")
        writer.close()
        observer.process.send_signal(signal.SIGTERM)
        assert await within_deadline(observer.process.wait()) == 0
    said = capfd.readouterr().err
    assert ("observing " in said, "Traceback" in said) == (True, False), said


def settings(folder: Path, **changes: Any) -> ObserverSettings:
    """Settings that work, with changes."""
    (folder / "token").write_text("x")
    values: dict[str, Any] = {
        "broker_socket": folder / "socket",
        "ledger": folder / "ledger",
        "host": "127.0.0.1",
        "port": 0,
        "token_file": folder / "token",
        "broker": "main",
        "namespace": "shop",
    }
    return ObserverSettings(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"interval_seconds": 0.5}, "interval"),
        ({"ordinal": -1}, "ordinal"),
        ({"port": 65536}, "listen"),
        ({"broker": ""}, "broker and namespace"),
        ({"tls_cert": Path("x")}, "tls-cert and tls-key"),
        ({"retain_bytes": 0}, "retain-bytes"),
        ({"interval_seconds": float("inf")}, "interval"),
        ({"segment_seconds": float("nan")}, "segment-seconds"),
        ({"retain_seconds": float("inf")}, "retain-seconds"),
    ],
)
def test_settings_that_cannot_work_are_named(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    """Before anything is tried."""
    with pytest.raises(Misuse, match=told):
        settings(tmp_path, **changes)


def test_all_settings_that_cannot_work_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(Misuse) as told:
        settings(tmp_path, interval_seconds=0.5, ordinal=-1, tls_key=Path("x"))
    assert told.value.cause.splitlines() == [
        "3 observer settings can't be used:",
        "  interval must be from 1 second to a year",
        "  ordinal must be 0 to 999",
        "  tls-cert and tls-key must be both set, or neither",
    ]


def test_an_address_in_use_is_a_clear_failure(tmp_path: Path) -> None:
    """203.0.113.0/24 belongs to no machine."""
    with pytest.raises(CannotRun, match=r"can't listen on 203\.0\.113\.1:0") as told:
        run(settings(tmp_path, host="203.0.113.1"))
    assert told.value.cause.endswith(": Cannot assign requested address.")
    assert told.value.cure == "Name an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them."
