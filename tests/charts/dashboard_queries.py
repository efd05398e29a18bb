"""Asks a real Prometheus, which scraped a real observer, what each variable and panel of the dashboards asks."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any, Final, cast

from charts.expressions import ROOT
from e2e.local_site import LocalSite
from support.prometheus_server import ask, prometheus

__all__ = ["SCRAPE_SECONDS", "play", "put_a_result", "scraping"]

FOLDER: Final = ROOT / "helm/penstock-operator/files/dashboards"
DASHBOARDS: Final = ("subscriptions", "broker")
"""Those that a broker and its observer feed; that of the operator needs a cluster."""
SCRAPE_SECONDS: Final = 5
LABELS: Final = {"broker": "main", "broker_namespace": "shop"}
"""What the relabelings of the PodMonitor add (docs/how-to/monitoring.md)."""
ALL: Final = re.compile(r"\$(broker_namespace|broker|namespace|subscription)\b")

Say = Callable[[str], None]


def play(work: Path, seconds: float, say: Say) -> list[str]:
    """Let clients run, then ask everything; which variables and panels show nothing."""
    load = _load_of_pictures()
    manifests = work / "manifests"
    manifests.mkdir()
    subscriptions = "".join(load.SUBSCRIPTION.replace("NAME", name) for name in load.SUBSCRIPTIONS)
    (manifests / "orders.yaml").write_text(load.MANIFESTS + subscriptions)
    stop = threading.Event()
    with LocalSite(manifests, work / "data") as site:
        site.wait_until_serving()
        url = f"amqp://{site.state()['amqp']}"
        clients: list[Callable[[], None]] = [
            lambda: load.produce(url, stop),
            lambda: load.consume(url, "billing", stop, pause=0.0),
            lambda: load.consume(url, "fraud", stop, pause=0.4),
            lambda: load.consume(url, "returns", stop, pause=0.05, accepts=False),
        ]
        threads = [threading.Thread(target=client) for client in clients]
        with prometheus(work, scraping(site)) as address:
            try:
                for thread in threads:
                    thread.start()
                say(f"clients run and Prometheus scrapes for {seconds:.0f} s")
                time.sleep(seconds)
                put_a_result(site)
                time.sleep(3 * SCRAPE_SECONDS)
                return [fault for name in DASHBOARDS for fault in _empty(name, address, seconds, say)]
            finally:
                stop.set()
                for thread in threads:
                    thread.join()


def _load_of_pictures() -> Any:
    """The subscriptions and clients of hack/pictures."""
    loader = SourceFileLoader("pictures", str(ROOT / "hack/pictures"))
    spec = spec_from_loader("pictures", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def put_a_result(site: LocalSite) -> None:
    """What the observer says live, stored as if a run of the lag job had found it."""
    result = cast("dict[str, Any]", site.get("/v1/lag/live"))
    token = (site.data / "observer.token").read_text(encoding="ascii").strip()
    request = urllib.request.Request(
        f"{site.state()['observer']}/v1/lag/results/by-hand",
        data=json.dumps({**result, "runName": "by-hand"}).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        method="PUT",
    )
    urllib.request.urlopen(request, timeout=30).close()


def scraping(site: LocalSite) -> dict[str, Any]:
    """Prometheus' settings with a job that scrapes the observer."""
    observer = urllib.parse.urlsplit(str(site.state()["observer"])).netloc
    job = {
        "job_name": "penstock",
        "honor_labels": True,
        "authorization": {"credentials_file": str(site.data / "observer.token")},
        "static_configs": [{"targets": [observer], "labels": LABELS}],
    }
    return {"global": {"scrape_interval": f"{SCRAPE_SECONDS}s"}, "scrape_configs": [job]}


def _empty(name: str, address: str, seconds: float, say: Say) -> Iterator[str]:
    dashboard: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            inner, _, label = variable["definition"].removeprefix("label_values(").removesuffix(")").rpartition(",")
            values = ask(address, f"label/{label.strip()}/values", **{"match[]": _filled(inner)})
            say(f"variable {variable['name']}: {', '.join(values)}")
            if not values:
                yield f"the variable {variable['name']} has no values"
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            points = _points(address, target, seconds)
            say(f"{panel['title']}: {len(points)} series, {sum(points)} points")
            if not points:
                yield f"the panel {panel['title']!r} shows nothing for {target['expr']}"


def _points(address: str, target: dict[str, Any], seconds: float) -> list[int]:
    """How many points each series has that a query of a panel gets."""
    now = time.time()
    if target.get("instant"):
        return [1 for _ in ask(address, "query", query=_filled(target["expr"]), time=now)["result"]]
    found = ask(address, "query_range", query=_filled(target["expr"]), start=now - seconds, end=now, step=15)
    return [len(series["values"]) for series in found["result"]]


def _filled(expression: str) -> str:
    """With what Grafana puts in place of the variables, while everything is chosen."""
    return ALL.sub(".*", expression.replace("$__rate_interval", f"{4 * SCRAPE_SECONDS}s"))
