"""The dashboards: expressions that parse and name metrics that exist, in panels that Grafana can show."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp.test_utils import TestServer
from charts.expressions import ROOT, documented_metrics, operator_metrics, selectors
from observer.samples import START_MS, a_poll, a_result, a_subscription
from prometheus_client.parser import text_string_to_metric_families

from penstock_api.lag_result import LagState
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer.http import Api, make_app
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.live_lag import LiveLag
from penstock_observer.live_view import LiveView
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import RowOrigin
from penstock_observer.secrets import TokenFile

TestServer.__test__ = False  # pytest would collect it by its name

FOLDER = ROOT / "helm/penstock-operator/files/dashboards"
DASHBOARDS: dict[str, Any] = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}
PANELS: list[tuple[str, dict[str, Any]]] = [
    (name, panel)
    for name, dashboard in sorted(DASHBOARDS.items())
    for panel in dashboard["panels"]
    if panel["type"] != "row"
]
PER_PANEL = pytest.mark.parametrize(("name", "panel"), PANELS, ids=[f"{name}: {it['title']}" for name, it in PANELS])
OF_BROKERS = {"container", "broker", "broker_namespace", "namespace", "exchange", "subscription", "state"}
OF_THE_OPERATOR = {"kind", "type", "status", "result"}
CHOICES = {
    "broker": {"datasource", "broker_namespace", "broker"},
    "subscriptions": {"datasource", "broker_namespace", "broker", "namespace", "subscription"},
    "operator": {"datasource", "kind"},
}


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def known_metrics() -> set[str]:
    """Those that the pages of observer and operator list; the series of a histogram have names of their own."""
    listed = documented_metrics() | operator_metrics()
    return {"up"} | listed | {f"{name}_bucket" for name in listed if name.endswith("_seconds")}


def test_there_are_three() -> None:
    assert set(DASHBOARDS) == set(CHOICES)
    assert len({dashboard["uid"] for dashboard in DASHBOARDS.values()}) == 3


@PER_PANEL
def test_a_panel_shows_metrics_that_exist(name: str, panel: dict[str, Any]) -> None:
    for expression in expressions(panel):
        found = selectors(expression)
        assert found
        for selector in found:
            assert selector.metric in known_metrics()
            labels = OF_THE_OPERATOR if name == "operator" else OF_BROKERS
            assert {label for label, _, _ in selector.matchers} <= labels
            states = [value.split("|") for label, _, value in selector.matchers if label == "state"]
            assert {state for words in states for state in words} <= set(LagState)
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@PER_PANEL
def test_every_panel_obeys_the_choices_above_it(name: str, panel: dict[str, Any]) -> None:
    """Of brokers at least; of subscriptions wherever one is shown; of the operator wherever a kind is."""
    for expression in expressions(panel):
        for selector in selectors(expression):
            chosen = {value for _, _, value in selector.matchers if value.startswith("$")}
            if name == "operator":
                asks_for_one = any(label == "kind" and value == "Subscription" for label, _, value in selector.matchers)
                has_kinds = selector.metric not in WITHOUT_KIND and not asks_for_one
                assert chosen == ({"$kind"} if has_kinds else set())
                continue
            wanted = {"$broker", "$broker_namespace"}
            if name == "subscriptions" and selector.metric.startswith("penstock_subscription_"):
                wanted |= {"$namespace", "$subscription"}
            assert chosen == wanted, selector


WITHOUT_KIND = {"penstock_operator_list_timestamp_seconds", "penstock_operator_queue_keys"}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_variables_come_from_metrics_that_exist(name: str) -> None:
    variables = {variable["name"]: variable for variable in DASHBOARDS[name]["templating"]["list"]}
    assert set(variables) == CHOICES[name]
    for variable in variables.values():
        if variable["type"] == "query":
            inner = variable["definition"].removeprefix("label_values(").rpartition(",")[0]
            assert {selector.metric for selector in selectors(inner)} <= known_metrics()


@PER_PANEL
def test_ten_thousand_subscriptions_are_no_ten_thousand_lines(name: str, panel: dict[str, Any]) -> None:
    """A graph of single subscriptions shows the largest ones; the others add up."""
    if panel["type"] == "timeseries":
        for expression in expressions(panel):
            if "penstock_subscription_" in expression or "penstock_resource_condition{" in expression:
                adds = ("topk(20,", "sum(", "count by (state)", "sum by (broker_namespace, broker)", "count by (type)")
                assert expression.startswith(adds), name


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
@pytest.mark.parametrize("name", ["broker", "subscriptions"])
def test_brokers_that_do_not_answer_are_counted_once_and_none_that_is_not_meant_to_run(
    name: str, tmp_path: Path
) -> None:
    """After ten minutes `away` has not answered for two, `never` not once, and the node of `lost` is lost: three. A pod
    of `moved` was replaced five minutes ago. `deleted` and `stopped` (no replicas) had a pod until then, which did not
    answer at the end. After twenty minutes all answer, and after thirty there are no pods any more.
    """
    (panel,) = [it for it in DASHBOARDS[name]["panels"] if it["title"] == "Brokers that do not answer"]
    (expression,) = expressions(panel)
    for variable in ("$broker_namespace", "$broker"):
        expression = expression.replace(f'"{variable}"', '".*"')
    reached = {
        "away-0": "1x8 0x10 1x10 stale", "never-0": "0x18 1x10 stale", "lost-0": "1x4 stale _x13 1x10 stale",
        "moved-0": "1x4 stale", "moved-0b": "1x28 stale", "deleted-0": "1x3 0 stale", "stopped-0": "1x3 0 stale",
    }  # fmt: skip
    scraped = {
        "away-0": "1x28 stale", "never-0": "1x28 stale", "lost-0": "1x4 0x13 1x10 stale", "moved-0": "1x4 0x1 stale",
        "moved-0b": "1x28 stale", "deleted-0": "1x4 stale", "stopped-0": "1x4 stale",
    }  # fmt: skip
    labels = 'broker_namespace="hub", broker="{}", pod="{}"'
    series = [
        {"series": f"{metric}{{{labels.format(pod.partition('-')[0], pod)}{more}}}", "values": values}
        for metric, more, found in (
            ("penstock_broker_reachable", "", reached),
            ("up", ', container="observer"', scraped),
        )
        for pod, values in found.items()
    ]
    expected: dict[str, list[dict[str, Any]]] = {
        "3m": [{"labels": "{}", "value": 1}],
        "10m": [{"labels": "{}", "value": 3}],
        "20m": [{"labels": "{}", "value": 0}],
        "35m": [],
    }
    asked = [{"expr": expression, "eval_time": time, "exp_samples": samples} for time, samples in expected.items()]
    test = {"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": asked}]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    done = subprocess.run(["promtool", "test", "rules", str(tmp_path / "test.yaml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_a_place_of_their_own(name: str) -> None:
    panels = DASHBOARDS[name]["panels"]
    numbers = [panel["id"] for panel in panels]
    assert len(set(numbers)) == len(numbers)
    taken = set[tuple[int, int]]()
    for panel in panels:
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


@PER_PANEL
def test_no_panel_shows_0_while_nobody_reports(name: str, panel: dict[str, Any]) -> None:
    """A green 0 would call an outage of all brokers, or of the operator, calm. That there is no operator is a red 0."""
    invented = any("vector(" in expression for expression in expressions(panel))
    assert invented == ((name, panel["title"]) == ("operator", "Operators"))
