"""A real Prometheus, from the PATH, with a configuration of its own; and questions to it."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from support.waiting import until

from penstock_cli.up.layout import free_endpoint

__all__ = ["ask", "prometheus"]

START_SECONDS = 120.0


@contextmanager
def prometheus(work: Path, settings: Mapping[str, Any]) -> Generator[str]:
    """A Prometheus whose `prometheus.yml` has these settings; its address. Its log is prometheus.log in the folder.

    Raises RuntimeError if it does not take them.
    """
    (work / "prometheus.yml").write_text(yaml.safe_dump(dict(settings)))
    endpoint = free_endpoint("127.0.0.1", 0)
    options = [f"--config.file={work}/prometheus.yml", f"--storage.tsdb.path={work}/tsdb"]
    with (work / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            ["prometheus", *options, f"--web.listen-address={endpoint}"], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            ready = lambda: process.poll() is not None or _is_ready(f"http://{endpoint}")  # noqa: E731
            until(ready, "Prometheus to be ready", START_SECONDS)
            if process.poll() is not None:
                raise RuntimeError(f"Prometheus has ended: {(work / 'prometheus.log').read_text()[-1000:]}")
            yield f"http://{endpoint}"
        finally:
            process.terminate()
            process.wait()


def ask(address: str, path: str, **asked: object) -> Any:
    """The `data` of an answer of its HTTP API. Raises OSError."""
    with urllib.request.urlopen(f"{address}/api/v1/{path}?{urllib.parse.urlencode(asked)}", timeout=60) as answer:
        return json.load(answer)["data"]


def _is_ready(address: str) -> bool:
    try:
        urllib.request.urlopen(f"{address}/-/ready", timeout=5).close()
    except OSError:
        return False
    return True
