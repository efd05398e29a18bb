"""Which watches an operator opens, and after how long each of them is opened again.

Source: docs/decisions/057-lists-are-the-truth.md, docs/decisions/108-each-watch-is-seen.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock_api.resources import GROUP, VERSION

__all__ = ["CHILDREN", "WATCH_SECONDS", "WatchTimes", "watch_paths", "watched_kinds"]

_OWN: Final = tuple((GROUP, VERSION, plural) for plural in ("brokers", "exchanges", "subscriptions", "queues"))
CHILDREN: Final = (("apps", "v1", "statefulsets"), ("", "v1", "services"), ("", "v1", "configmaps"))
"""The kinds of children that are watched: group, version, plural."""


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """The seconds after which a watch is opened again, or all of them are started anew."""

    server: int = 300
    """The server ends it. A whole number: an API server refuses `timeoutSeconds=300.0`."""
    silent: float = 70.0
    """Nothing has come, not even a bookmark, which the server sends every minute."""
    grace: float = 60.0
    """What was just started is not judged."""
    check: float = 5.0
    """Between two looks at whether a watch is overdue."""


WATCH_SECONDS: Final = WatchTimes()


def watched_kinds(namespaces: Sequence[str]) -> Sequence[tuple[str, str, str]]:
    """Group, version and plural of what an operator of these namespaces watches, or of the whole cluster if there are
    none.
    """
    return _OWN if namespaces else (*_OWN, *CHILDREN)


def watch_paths(namespaces: Sequence[str]) -> list[str]:
    """The URL paths of all watches of an operator of these namespaces, or of the whole cluster if there are none."""
    places = [f"namespaces/{namespace}/" for namespace in namespaces] or [""]
    return [
        f"/{f'apis/{group}' if group else 'api'}/{version}/{place}{plural}"
        for group, version, plural in watched_kinds(namespaces)
        for place in places
    ]
