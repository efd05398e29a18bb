"""The alerts of the chart: expressions that parse and name metrics that exist, and a page for each.

`hack/soak/alerts` also runs Prometheus' own unit tests of the rules (tests/charts/alerts_test.yaml), and fires each
alert on a real node.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from charts.expressions import RECORDED, ROOT, documented_metrics, operator_metrics, selectors
from support.alert_causes import BROKER_ALERTS
from support.alerts_run import NOT_CAUSED, hurried
from support.operator_alert_causes import OPERATOR_CAUSES

from penstock_api.lag_result import LagState

RULES = yaml.safe_load((ROOT / "helm/penstock-operator/files/rules.yaml").read_text(encoding="utf-8"))
ALERTS: dict[str, Any] = {
    rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule
}
RECORDS: dict[str, Any] = {
    rule["record"]: rule for group in RULES["groups"] for rule in group["rules"] if "record" in rule
}
RUNBOOKS = ROOT / "docs/how-to/runbooks"
HEALTHY = {LagState.OK, LagState.IDLE, LagState.RECOVERING, LagState.BACKLOG_STEADY}
"""States that nobody is called for; a steady backlog that is too old is called for by its age."""
SIZES = {"depth_messages", "ready_messages", "in_flight_messages", "scheduled_messages", "depth_bytes"}


def page_of(alert: dict[str, Any]) -> str:
    """The name of the runbook."""
    base, _, name = alert["annotations"]["runbook_url"].partition("/")
    assert base == "RUNBOOKS"
    return str(name)


@pytest.mark.parametrize("name", [*ALERTS, *RECORDS])
def test_every_expression_parses_and_names_what_exists(name: str) -> None:
    found = selectors((ALERTS | RECORDS)[name]["expr"])
    known = documented_metrics() | {"up", RECORDED} | operator_metrics()
    assert found
    assert {selector.metric for selector in found} <= known


def test_what_is_recorded_is_used_under_this_name() -> None:
    assert set(RECORDS) == {RECORDED}
    assert any(RECORDED in alert["expr"] for alert in ALERTS.values())


def test_every_state_that_is_not_healthy_has_an_alert_and_no_other_has_one() -> None:
    matched = [
        value
        for alert in ALERTS.values()
        for selector in selectors(alert["expr"])
        if selector.metric == "penstock_subscription_state"
        for label, _, value in selector.matchers
        if label == "state"
    ]
    assert sorted(state for value in matched for state in value.split("|")) == sorted(
        state.value for state in LagState if state not in HEALTHY
    )


def test_no_alert_looks_at_the_number_of_messages() -> None:
    metrics = {selector.metric for alert in ALERTS.values() for selector in selectors(alert["expr"])}
    assert metrics & {f"penstock_subscription_{size}" for size in SIZES} == set()


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_bad_it_is_and_what_to_do(name: str) -> None:
    alert = ALERTS[name]
    assert re.fullmatch(r"\d+m", alert["for"])
    assert alert["labels"]["severity"] in ("warning", "critical")
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["description"].endswith(".")
    page = (RUNBOOKS / page_of(alert)).read_text(encoding="utf-8")
    assert f"`{name}`" in page
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == ["What it means", "What to check", "How to mend it"]
    checks = page.partition("## What to check")[2].partition("## How")[0]
    assert re.search(r"^\$ kubectl ", checks, re.MULTILINE)


def test_every_page_is_that_of_an_alert_or_of_a_condition() -> None:
    of_alerts = {page_of(alert) for alert in ALERTS.values()}
    # reasons.md has a line for every reason, and a test of its own.
    others = [path for path in RUNBOOKS.glob("*.md") if path.name not in {*of_alerts, "reasons.md"}]
    assert of_alerts <= {path.name for path in RUNBOOKS.glob("*.md")}
    known = set(re.findall(r"`([A-Z][A-Za-z]+)`", (ROOT / "docs/reference/operator.md").read_text(encoding="utf-8")))
    for path in others:
        named = re.findall(r"^Conditions?: `([A-Za-z]+)`", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert named, f"{path.name} is the page of no alert and of no condition"
        assert set(named) <= known


def test_the_page_about_monitoring_lists_them() -> None:
    page = (ROOT / "docs/how-to/monitoring.md").read_text(encoding="utf-8")
    listed = re.findall(
        r"^\| (Penstock\w+) \| (\w+) \| (\d+) min \| \[[a-z-]+\]\(runbooks/([a-z-]+\.md)\) \|", page, re.M
    )
    assert {name: (severity, f"{minutes}m", file) for name, severity, minutes, file in listed} == {
        name: (alert["labels"]["severity"], alert["for"], page_of(alert)) for name, alert in ALERTS.items()
    }


def test_every_alert_is_caused_on_a_cluster_or_it_is_known_why_not() -> None:
    assert sorted([*BROKER_ALERTS, *OPERATOR_CAUSES, *NOT_CAUSED]) == sorted(ALERTS)


def test_a_hurried_rule_keeps_what_is_no_duration() -> None:
    rules = [
        {"record": "lost", "expr": "rate(lost_total[5m])"},
        {"alert": "Old", "expr": "max by (pod) (age_seconds)\n> 900", "for": "5m"},
        {"alert": "Filling", "expr": "used / size > 0.7\nand used / size <= 0.85", "for": "15m"},
        {"alert": "Refuses", "expr": "increase(refused_total[5m]) > 0", "for": "1m"},
    ]
    assert hurried({"groups": [{"name": "all", "rules": rules}]}, 5)["groups"] == [
        {
            "name": "all",
            "interval": "5s",
            "rules": [
                {"record": "lost", "expr": "rate(lost_total[5m])"},
                {"alert": "Old", "expr": "max by (pod) (age_seconds)\n> 180", "for": "60s"},
                {"alert": "Filling", "expr": "used / size > 0.7\nand used / size <= 0.85", "for": "180s"},
                {"alert": "Refuses", "expr": "increase(refused_total[5m]) > 0", "for": "12s"},
            ],
        }
    ]
