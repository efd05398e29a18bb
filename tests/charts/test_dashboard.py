"""The dashboard: expressions that parse and name metrics that the observer exposes, in panels that Grafana can show."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from charts.expressions import ROOT, documented_metrics, selectors
from observer.samples import START_MS, a_poll, a_result, a_subscription
from prometheus_client.parser import text_string_to_metric_families

from penstock_api.lag_result import LagState
from penstock_lag_rules.rules import Thresholds
from penstock_observer.http import Api, make_app
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.live_lag import LiveLag
from penstock_observer.live_view import LiveView
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import RowOrigin
from penstock_observer.secrets import TokenFile

TestServer.__test__ = False  # pytest would collect it by its name

DASHBOARD = json.loads((ROOT / "helm/penstock-operator/files/dashboard.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES: dict[str, Any] = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
LABELS = {"broker", "broker_namespace", "namespace", "exchange", "subscription", "state"}


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_shows_metrics_that_exist(panel: dict[str, Any]) -> None:
    for expression in expressions(panel):
        found = selectors(expression)
        assert found
        for selector in found:
            assert selector.metric in documented_metrics()
            assert {label for label, _, _ in selector.matchers} <= LABELS
            states = [value.split("|") for label, _, value in selector.matchers if label == "state"]
            assert {state for words in states for state in words} <= set(LagState)
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]


def test_every_panel_obeys_the_choices_above_it() -> None:
    """Of brokers at least; of subscriptions wherever one is shown."""
    for panel in PANELS:
        for expression in expressions(panel):
            for selector in selectors(expression):
                chosen = {value for _, _, value in selector.matchers if value.startswith("$")}
                wanted = {"$broker", "$broker_namespace"}
                if selector.metric.startswith("penstock_subscription_"):
                    wanted |= {"$namespace", "$subscription"}
                assert chosen == wanted, (panel["title"], selector)
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_variables_come_from_metrics_that_exist() -> None:
    assert set(VARIABLES) == {"datasource", "broker_namespace", "broker", "namespace", "subscription"}
    for variable in VARIABLES.values():
        if variable["type"] == "query":
            inner = variable["definition"].removeprefix("label_values(").rpartition(",")[0]
            assert {selector.metric for selector in selectors(inner)} <= documented_metrics()


def test_ten_thousand_subscriptions_are_no_ten_thousand_lines() -> None:
    """A graph of single subscriptions shows the largest ones; the others add up."""
    for panel in PANELS:
        if panel["type"] == "timeseries":
            for expression in expressions(panel):
                if "penstock_subscription_" in expression:
                    assert expression.startswith(("topk(20,", "sum(", "count by (state)"))


def test_panels_have_a_place_of_their_own() -> None:
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken = set[tuple[int, int]]()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert max(x for x, _ in cells) < 24
        assert not taken & cells, panel["title"]
        taken |= cells


async def test_the_documented_metrics_are_those_that_the_observer_exposes(tmp_path: Path) -> None:
    """Both ways: so what alerts and panels name is there."""
    (tmp_path / "token").write_text("t")
    place = BrokerPod("main", "shop", 0)
    ledger = Ledger(
        tmp_path / "ledger",
        RowOrigin("main", 0, 1000),
        SealLimits(60, 1000, 10**9),
        RetentionLimits(10**12, 10**12),
    )
    results = ResultStore(tmp_path / "results", place, keep=3)
    results.put("run-1", a_result(), datetime(2026, 1, 1, 13, tzinfo=UTC))
    live, lag = LiveView(), LiveLag(0, 10_000, Thresholds())
    sizes: dict[str, Any] = {"volume_bytes": 10**9, "volume_used_bytes": 10**6}
    sizes |= {"memory_bytes": 10**8, "memory_used_bytes": 10**5}
    for step in range(30):
        poll = a_poll(START_MS + 10_000 * step, a_subscription(), **sizes)
        lag.observe(poll)
        live.answered(poll, tuple(lag.lags()))
    api = Api(live, ledger, results, place, TokenFile(tmp_path / "token"), lambda: datetime(2026, 1, 1, tzinfo=UTC))
    async with (
        TestServer(make_app(api)) as server,
        aiohttp.ClientSession(headers={"Authorization": "Bearer t"}) as session,
        session.get(server.make_url("/metrics")) as answer,
    ):
        families = list(text_string_to_metric_families(await answer.text()))
    ledger.close()
    exposed = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    assert exposed == documented_metrics()
