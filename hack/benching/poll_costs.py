"""`hack/bench polls`: what it costs to watch subscriptions: a real broker that is polled, the observer's work on each
poll, and a scrape of its metrics.

Processor time is that of each process (`/proc/PID/schedstat`), without what others took. Busy means that every
subscription gets one message between two polls. Source: docs/reference/performance.md, "What a poll costs".
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.broker_process import BrokerProcess

    from penstock_observer.live_view import LiveView

TESTS = Path(__file__).resolve().parent.parent.parent / "tests"
ROUNDS = 4
"""Polls of each kind; the figures are those of the cheapest, because other work only adds to them."""
POLLS_A_MINUTE = 6


@dataclass(frozen=True)
class PollCost:
    """Seconds of processor time of one poll."""

    broker: float
    reading: float
    judging: float

    def __str__(self) -> str:
        observer = f"observer {self.reading:6.3f} s to read and {self.judging:6.3f} s to judge a poll"
        return f"broker {self.broker * POLLS_A_MINUTE:6.3f} CPU-s a minute; {observer}"


def polls(subscriptions: int, scraped: int) -> int:
    """Print the costs of so many idle and busy subscriptions, and of a scrape of `scraped`."""
    sys.path.insert(0, str(TESTS))
    from support.broker_process import BrokerProcess

    for count in sorted({subscriptions, scraped}):
        with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder) / "data") as broker:
            asyncio.run(_measure(broker, count, Path(folder), scrapes=count == scraped))
    return 0


async def _measure(broker: BrokerProcess, count: int, folder: Path, *, scrapes: bool) -> None:
    from penstock_amqp.client.management import ListedEntity, ManagementClient
    from penstock_api.management import EntityType, SubscriptionDeclaration
    from penstock_lag_rules.thresholds import Thresholds
    from penstock_observer.broker_client import ManagementConnection, PolledBroker
    from penstock_observer.live_lag import LiveLag
    from penstock_observer.live_view import LiveView

    administrator = await ManagementClient.connect(broker.management)
    bodies = [SubscriptionDeclaration(subscription_name=f"s{number}", exchange="amq.fanout") for number in range(count)]
    await administrator.create_all([ListedEntity(EntityType.SUBSCRIPTION, None, body) for body in bodies])
    await administrator.close()

    async def connect() -> ManagementConnection:
        return await ManagementClient.connect(broker.management)

    polled, live, view = PolledBroker(connect), LiveLag(0, 10_000, Thresholds()), LiveView()

    async def poll() -> PollCost:
        before, started = _cpu_seconds(broker.pid), time.process_time()
        found = await polled.poll()
        read, spent = time.process_time(), _cpu_seconds(broker.pid) - before
        live.observe(found)
        view.answered(found, tuple(live.lags()))
        return PollCost(spent, read - started, time.process_time() - read)

    whole = await poll()
    print(f"{count:6,} subscriptions, all read     {whole}", flush=True)
    for _ in range(3):
        await poll()  # an idle subscription is Unknown for three polls
    print(f"{count:6,} subscriptions, idle         {_least([await poll() for _ in range(ROUNDS)])}", flush=True)
    costs: list[PollCost] = []
    for _ in range(ROUNDS):
        await asyncio.to_thread(_publish, broker.url)
        costs.append(await poll())
    print(f"{count:6,} subscriptions, busy         {_least(costs)}", flush=True)
    await polled.close()
    if scrapes:
        _scrape(view, folder, count)


def _least(costs: list[PollCost]) -> PollCost:
    return PollCost(
        min(each.broker for each in costs), min(each.reading for each in costs), min(each.judging for each in costs)
    )


def _publish(url: str) -> None:
    """One message into every subscription."""
    from support.proton_client import connected, publish

    with connected(url) as client:
        publish(client.create_sender("amq.fanout"), ["x" * 100], durable=False)


def _scrape(view: LiveView, folder: Path, count: int) -> None:
    from penstock_observer.ledger import Ledger, SealLimits
    from penstock_observer.metrics import exposition
    from penstock_observer.results import BrokerPod, ResultStore
    from penstock_observer.retention import RetentionLimits
    from penstock_observer.rows import RowOrigin

    ledger = Ledger(
        folder / "ledger", RowOrigin("main", 0, 10_000), SealLimits(60, 1, 1), RetentionLimits(age_ms=1, bytes=1)
    )
    results = ResultStore(folder / "results", BrokerPod("main", "bench", 0), 1)
    for is_compressed, name in ((False, "plain"), (True, "gzip ")):
        spent: list[float] = []
        size = 0
        for _ in range(ROUNDS):
            started = time.process_time()
            size = len(exposition(view, ledger, results, "bench", is_compressed=is_compressed))
            spent.append(time.process_time() - started)
        print(f"{count:6,} subscriptions, a scrape     {name} {min(spent):6.3f} CPU-s, {size:12,} bytes", flush=True)
    ledger.close()


def _cpu_seconds(pid: int) -> float:
    """Processor time that the broker's main thread has used."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
