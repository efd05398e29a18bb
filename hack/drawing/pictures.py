"""Takes a picture of each dashboard that has data in a Prometheus."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from page.browser import browsing, chromium

from drawing.panels import Drawing, drawing
from drawing.prometheus import Prometheus

__all__ = ["UPLOT", "UplotError", "dashboards", "draw", "install_uplot"]

ROOT: Final = Path(__file__).resolve().parent.parent.parent
DASHBOARDS: Final = ROOT / "helm/penstock-operator/files/dashboards"
UPLOT: Final = "uplot@1.6.32"
WIDTH: Final = 1000
PADDING: Final = 12
MOST_POINTS: Final = 240

Say = Callable[[str], None]


class UplotError(Exception):
    """npm could not get uPlot, or uPlot could not draw."""


def install_uplot(folder: Path) -> Path:
    """The folder with uPlot's files, which npm puts into `folder` unless they are there."""
    package = folder / "node_modules" / "uplot"
    described = package / "package.json"
    version = UPLOT.rpartition("@")[2]
    if described.exists() and json.loads(described.read_text(encoding="utf-8"))["version"] == version:
        return package / "dist"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}')
    install = ["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", UPLOT]
    try:
        ran = subprocess.run(install, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise UplotError("there is no npm; apt-get install -y --no-install-recommends npm") from error
    if ran.returncode:
        raise UplotError(f"npm did not get {UPLOT}; is its registry reached? {ran.stdout}{ran.stderr}")
    return package / "dist"


def dashboards(address: str, seconds: float, scrape: int, say: Say) -> dict[str, tuple[Drawing, Prometheus]]:
    """Each dashboard with its figures of the last seconds, by name, if this Prometheus has data for it."""
    step = max(scrape, round(seconds / MOST_POINTS))
    # Grafana asks at multiples of the step, too.
    end = int(time.time()) // step * step
    prometheus = Prometheus(address, end - int(seconds) // step * step, end, step)
    # As Grafana's Prometheus data source counts $__rate_interval.
    rate = max(step + scrape, 4 * scrape)
    found: dict[str, tuple[Drawing, Prometheus]] = {}
    for path in sorted(DASHBOARDS.glob("*.json")):
        say(f"{path.stem}: asks {address}")
        drawn = drawing(json.loads(path.read_text(encoding="utf-8")), prometheus, rate, WIDTH, say)
        if drawn.without_values:
            say(f"{path.stem}: not drawn: no values of {', '.join(drawn.without_values)} in this Prometheus")
        else:
            found[path.stem] = (drawn, prometheus)
    return found


async def draw(found: dict[str, tuple[Drawing, Prometheus]], uplot: Path, folder: Path) -> list[Path]:
    """Draw each in Chromium, with uPlot; the pictures."""
    here = Path(__file__).parent
    environment = Environment(loader=FileSystemLoader(here), autoescape=True, undefined=StrictUndefined)
    shared: dict[str, Any] = {
        "uplot_style": (uplot / "uPlot.min.css").read_text(encoding="utf-8"),
        "uplot_script": (uplot / "uPlot.iife.min.js").read_text(encoding="utf-8"),
        "own_script": (here / "page.js").read_text(encoding="utf-8"),
        "width": WIDTH,
    }
    pictures: list[Path] = []
    async with chromium() as browser, browsing(browser, width=WIDTH + 2 * PADDING) as window:
        for name, (drawn, prometheus) in found.items():
            minutes = round((prometheus.end - prometheus.start) / 60)
            page = environment.get_template("page.html.j2")
            await window.tab.set_content(page.render(drawing=drawn, times=prometheus.times, minutes=minutes, **shared))
            # uPlot draws in a microtask after its constructor; the next frame shows it.
            await window.tab.evaluate("() => new Promise((seen) => requestAnimationFrame(() => setTimeout(seen, 50)))")
            if window.complaints:
                raise UplotError(f"the page of {name} was not drawn: {'; '.join(window.complaints)}")
            picture = folder / f"dashboard-{name}.png"
            await window.tab.screenshot(path=picture, full_page=True)
            pictures.append(picture)
    return pictures
