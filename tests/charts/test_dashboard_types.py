"""The dashboards have the types that Grafana's own package gives it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from charts import dashboard_types


@pytest.mark.clients
def test_the_dashboards_have_grafanas_types(tmp_path: Path) -> None:
    """And one without a title at a panel's place in the grid, or with a made-up way to draw, has not."""
    assert dashboard_types.faults(tmp_path) == []
    wrong = json.loads(dashboard_types.DASHBOARDS[-1].read_text(encoding="utf-8"))
    wrong["panels"][1]["gridPos"].pop("h")
    wrong["panels"][4]["fieldConfig"]["defaults"]["custom"]["drawStyle"] = "dots"
    said = dashboard_types.compared(tmp_path, wrong)
    assert [word in "\n".join(said) for word in ("'h' is missing", '"dots"')] == [True, True]
