"""`hack/bench many`: what a broker pays for many that do little: idle connections, and durable subscriptions of one
exchange: memory of each, what a message costs beside them, and the time of a restart.

Processor time is that of the broker's main thread (`/proc/PID/schedstat`), memory is what is resident. Source:
docs/reference/performance.md, "What many idle clients cost".
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.broker_process import BrokerProcess

TESTS = Path(__file__).resolve().parent.parent.parent / "tests"
PUBLISHED = 2_000
"""Messages of 100 B, durable, that each reach one subscription at most; the next is sent after the accept."""
TO_ALL = 5
"""Messages that each reach every subscription."""


def many(subscriptions: int, connections: int) -> int:
    """Print the costs of so many of each."""
    sys.path.insert(0, str(TESTS))
    from support.broker_process import BrokerProcess

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < connections + 100:
        print(f"only {hard} descriptors are allowed: raise `ulimit -Hn`, or give --connections", file=sys.stderr)
        return 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, object] = {"log": {"segmentBytes": 64 << 20}, "limits": {"connections": connections + 10}}
        with BrokerProcess(Path(folder) / "data", settings=settings) as broker:
            _connections(broker, connections)
        with BrokerProcess(Path(folder) / "subscriptions", settings=settings) as broker:
            _subscriptions(broker, subscriptions)
    return 0


def _connections(broker: BrokerProcess, count: int) -> None:
    from support.raw_client import RawClient

    with RawClient(broker.port, "first"):
        before, spent = resident_bytes(broker.pid), cpu_seconds(broker.pid)
        clients = [RawClient(broker.port, f"idle-{number}") for number in range(count)]
        spent = cpu_seconds(broker.pid) - spent
        each = (resident_bytes(broker.pid) - before) / count
        print(f"{count:7,} idle connections      {each / 1024:6.1f} KiB and {spent / count * 1e6:5.0f} us each to open")
        spent = cpu_seconds(broker.pid)
        time.sleep(10)  # what they cost while they say nothing
        print(f"{'':7} while they are idle   {(cpu_seconds(broker.pid) - spent) / 10:6.1%} of a core", flush=True)
        for client in clients:
            client.socket.close()


def _subscriptions(broker: BrokerProcess, count: int) -> None:
    asyncio.run(_declare(broker.management, 0))
    before = _publish_cost(broker, "news/of-nobody")
    resident, spent = resident_bytes(broker.pid), cpu_seconds(broker.pid)
    asyncio.run(_declare(broker.management, count))
    spent = cpu_seconds(broker.pid) - spent
    each = (resident_bytes(broker.pid) - resident) / count
    print(f"{count:7,} durable subscriptions {each / 1024:6.1f} KiB and {spent / count * 1e6:5.0f} us each to declare")
    one = _publish_cost(broker, "news/of-7")
    print(f"{'':7} a message for one     {one * 1e6:6.1f} us, {before * 1e6:.1f} us for none before they were declared")
    spent = cpu_seconds(broker.pid)
    _publish(broker.url, "news/all", TO_ALL)
    copies = (cpu_seconds(broker.pid) - spent) / TO_ALL / count
    print(f"{'':7} a message for all     {copies * 1e6:6.2f} us for each copy")
    size = sum(path.stat().st_size for path in (broker.data / "log").glob("segment-*"))
    print(f"{'':7} the log has           {size >> 20:6} MiB of segments")
    broker.kill()
    began = time.monotonic()
    broker.start()
    print(f"{'':7} start after kill -9   {time.monotonic() - began:6.2f} s", flush=True)


async def _declare(management: str, count: int) -> None:
    from penstock_amqp.client.management import ListedEntity, ManagementClient
    from penstock_api.management import EntityType, ExchangeDeclaration, SubscriptionDeclaration

    administrator = await ManagementClient.connect(management)
    exchange = ExchangeDeclaration(exchange_type="Topic")
    await administrator.create_all([ListedEntity(EntityType.EXCHANGE, "news", exchange)])
    bodies = [
        SubscriptionDeclaration(subscription_name=f"s{number}", exchange="news", binding_keys=(f"of-{number}", "all"))
        for number in range(count)
    ]
    await administrator.create_all([ListedEntity(EntityType.SUBSCRIPTION, None, body) for body in bodies])
    await administrator.close()


def _publish_cost(broker: BrokerProcess, address: str) -> float:
    spent = cpu_seconds(broker.pid)
    _publish(broker.url, address, PUBLISHED)
    return (cpu_seconds(broker.pid) - spent) / PUBLISHED


def _publish(url: str, address: str, count: int) -> None:
    from support.proton_client import connected, publish

    with connected(url) as client:
        publish(client.create_sender(address), ["x" * 100] * count)


def resident_bytes(pid: int) -> int:
    """Bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def cpu_seconds(pid: int) -> float:
    """Processor time that the broker's main thread has used."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
