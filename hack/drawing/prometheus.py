"""Asks a Prometheus by its HTTP API."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Prometheus", "PrometheusError"]


class PrometheusError(Exception):
    """Prometheus cannot be asked, or refuses the question."""


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus, and the time that a picture shows."""

    address: str
    start: int
    end: int
    step: int
    """Seconds between two points."""

    @property
    def times(self) -> list[int]:
        """The times of all points."""
        return list(range(self.start, self.end + 1, self.step))

    def values(self, selector: str, label: str) -> list[str]:
        """The values that a label has in series which the selector finds."""
        asked = {"match[]": selector, "start": self.start, "end": self.end}
        return list(self._ask(f"label/{label}/values", asked))

    def now(self, expression: str) -> list[dict[str, Any]]:
        """Series with one `value` each, at the end of the time."""
        return list(self._ask("query", {"query": expression, "time": self.end})["result"])

    def range(self, expression: str) -> list[dict[str, Any]]:
        """Series with their `values`."""
        asked = {"query": expression, "start": self.start, "end": self.end, "step": self.step}
        return list(self._ask("query_range", asked)["result"])

    def _ask(self, path: str, asked: Mapping[str, object]) -> Any:
        url = f"{self.address.rstrip('/')}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            raise PrometheusError(f"{self.address} refuses {path}: {error.code}: {said}") from error
        except (OSError, ValueError, KeyError) as error:
            cure = "give the address of a Prometheus that answers, such as http://127.0.0.1:9090"
            raise PrometheusError(f"{self.address} does not answer as Prometheus does ({error}); {cure}") from error
