"""Commands of docs/reference/lag-compared.md that need closed hours, on a result that has them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiohttp.test_utils import TestServer
from e2e.compared_page import HOURLY, PAGE, fault
from observer.samples import END, a_result
from support.page_commands import shown

from penstock_api.lag_result import LagState, PaceLag, SubscriptionLag
from penstock_observer.http import Api, make_app
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.live_view import LiveView
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import RowOrigin
from penstock_observer.secrets import TokenFile

TestServer.__test__ = False  # pytest would collect it by its name

ENTRY = SubscriptionLag(
    queue_name="psub:durable:global:hourly",
    owner_name="hourly",
    observed_time=END,
    state=LagState.OK,
    message="all is well",
    arrival_per_minute=480,
    past_hour=PaceLag(
        end=END - timedelta(minutes=5), seconds=3590, arrival_per_minute=120, settled_per_minute=120, lost=0
    ),
    changes=("4 times as many messages arrive as before",),
)


async def test_the_commands_show_what_the_page_says(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "token").write_text("t")
    place = BrokerPod("main", "shop", 0)
    ledger = Ledger(
        tmp_path / "ledger", RowOrigin("main", 0, 1000), SealLimits(60, 1000, 10**9), RetentionLimits(10**12, 10**12)
    )
    results = ResultStore(tmp_path / "results", place, keep=3)
    results.put("run-1", a_result(subscriptions=(ENTRY,)), END + timedelta(minutes=1))
    api = Api(
        LiveView(), ledger, results, place, TokenFile(tmp_path / "token"), lambda: datetime(2026, 1, 1, tzinfo=UTC)
    )
    commands = [each for each in shown(PAGE) if each.command.startswith(HOURLY)]
    assert commands
    async with TestServer(make_app(api)) as server:
        address = str(server.make_url("")).rstrip("/")
        for each in commands:
            assert await asyncio.to_thread(fault, each, address, tmp_path / "token", told.append) is None
    ledger.close()
