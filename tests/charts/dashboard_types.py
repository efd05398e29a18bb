"""Compares the dashboard with Grafana's own types, which its npm package @grafana/schema has.

TypeScript compares. A dashboard is JSON, whose words are no members of an enum, so the enums of the package are made
unions of their values first.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from charts.expressions import ROOT

__all__ = ["DASHBOARDS", "compared", "faults", "program"]

DASHBOARDS: Final = sorted((ROOT / "helm/penstock-operator/files/dashboards").glob("*.json"))
VERSIONS: Final = ("@grafana/schema@13.2.2", "typescript@5.9.3")
ENUM: Final = re.compile(r"export declare enum (\w+) \{(.*?)\n\}", re.DOTALL)
COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
KINDS: Final = ("stat", "table", "timeseries")
SETTINGS: Final[dict[str, Any]] = {
    "compilerOptions": {
        "noEmit": True,
        "strict": True,
        "skipLibCheck": True,
        "module": "esnext",
        "moduleResolution": "bundler",
        "types": [],
        "paths": {"@grafana/schema": ["./plain/common/common.gen.d.ts"]},
    },
    "files": ["check.ts"],
}


def faults(work: Path) -> list[str]:
    """What does not fit, as TypeScript says it; empty if all does. Raises CalledProcessError if npm fails."""
    (work / "package.json").write_text('{"private": true}')
    install = ["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", *VERSIONS]
    subprocess.run(install, cwd=work, check=True, capture_output=True, text=True)
    package = work / "node_modules/@grafana/schema/dist/types"
    for path in package.rglob("*.d.ts"):
        plain = work / "plain" / path.relative_to(package)
        plain.parent.mkdir(parents=True, exist_ok=True)
        plain.write_text(ENUM.sub(_union, path.read_text(encoding="utf-8")), encoding="utf-8")
    (work / "tsconfig.json").write_text(json.dumps(SETTINGS))
    found: list[str] = []
    for path in DASHBOARDS:
        said = compared(work, json.loads(path.read_text(encoding="utf-8")))
        found += [f"{path.name}: {line}" for line in said]
    return found


def compared(work: Path, dashboard: dict[str, Any]) -> list[str]:
    """The same of another dashboard, in a folder that `faults` has prepared."""
    (work / "check.ts").write_text("\n".join(program(dashboard)), encoding="utf-8")
    ran = subprocess.run(["node_modules/.bin/tsc", "-p", "."], cwd=work, capture_output=True, text=True)
    return ran.stdout.splitlines() or ([] if ran.returncode == 0 else [ran.stderr])


def program(dashboard: dict[str, Any]) -> Iterator[str]:
    """A program that compiles if the dashboard, and the options of each panel, have Grafana's types."""
    yield 'import type * as raw from "./plain/raw/dashboard/x/types.gen";'
    for kind in KINDS:
        yield f'import type * as {kind} from "./plain/raw/composable/{kind}/panelcfg/x/types.gen";'
    # Grafana writes these two itself, and its own types lack them.
    for variable in dashboard["templating"]["list"]:
        variable.pop("definition", None)
        if variable.get("current") == {}:
            del variable["current"]
    yield f"export const dashboard: raw.Dashboard = {json.dumps(dashboard)};"
    for panel in dashboard["panels"]:
        number, kind = panel["id"], panel["type"]
        if kind != "row":
            yield f"export const options{number}: Partial<{kind}.Options> = {json.dumps(panel['options'])};"
            custom = panel["fieldConfig"]["defaults"].get("custom", {})
            if kind != "stat":
                yield f"export const custom{number}: Partial<{kind}.FieldConfig> = {json.dumps(custom)};"


def _union(enum: re.Match[str]) -> str:
    values = re.findall(r"=\s*([^,\n]+)", COMMENT.sub("", enum[2]))
    return f"export type {enum[1]} = {' | '.join(values)};"
