"""Which scope each path of the observer's HTTP interface needs.

A path that is not in the table is for the token for everything alone: whoever adds a path and forgets it here gives
away nothing. Source: docs/reference/observer.md, "Tokens".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from penstock_api.message_audit import AUDIT_FILE, AUDITS
from penstock_api.observer_api import (
    LATEST,
    LIVE_LAG,
    METRICS,
    RESULTS,
    SCALE,
    SEGMENT,
    SEGMENTS,
    SUBSCRIPTIONS,
)
from penstock_api.observer_tokens import Scope
from penstock_api.rollup_format import ROLLUP, ROLLUPS

__all__ = ["PATH_SCOPES", "scope_of"]

PATH_SCOPES: Final[Mapping[tuple[str, str], Scope]] = {
    ("GET", METRICS): Scope.METRICS,
    ("GET", SUBSCRIPTIONS): Scope.STATE,
    ("GET", SCALE): Scope.SCALE,
    ("GET", SEGMENTS): Scope.LEDGER,
    ("GET", SEGMENT): Scope.LEDGER,
    ("GET", AUDITS): Scope.LEDGER,
    ("GET", AUDIT_FILE): Scope.LEDGER,
    ("GET", LIVE_LAG): Scope.STATE,
    ("GET", LATEST): Scope.READ_RESULTS,
    ("GET", RESULTS): Scope.READ_RESULTS,
    ("PUT", RESULTS): Scope.WRITE_RESULTS,
    ("GET", ROLLUPS): Scope.READ_ROLLUPS,
    ("GET", ROLLUP): Scope.READ_ROLLUPS,
    ("PUT", ROLLUP): Scope.WRITE_ROLLUPS,
}
"""Method and path, as they are registered: the scope."""


def scope_of(request: web.Request) -> Scope | None:
    """The scope that a request needs; None: all of them, or there is no such path."""
    resource = request.match_info.route.resource
    method = "GET" if request.method == "HEAD" else request.method
    return None if resource is None else PATH_SCOPES.get((method, resource.canonical))
