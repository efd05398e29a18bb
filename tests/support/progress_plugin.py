"""The plugin of pytest that tells hack/test which tests start and end; tests/conftest.py loads it."""

from __future__ import annotations

import pytest
from support.progress import note_end, note_start

__all__ = ["pytest_configure"]


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that prints notes: it hears of each test of its workers (pytest-xdist)."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Notes(), "penstock-test-progress")


class _Notes:
    """The hooks."""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        note_start(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        note_end(nodeid)
