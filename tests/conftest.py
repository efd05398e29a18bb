"""Settings of all tests: hack/test hears which of them end, and the long ones may take longer before they are ended."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# No test may fail because the machine is busy: both are about time.
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")

pytest_plugins = ("support.progress_plugin",)

LIMIT_SECONDS = {
    "clients": 900,
    "cluster": 2400,
    "crash": 900,
    "fuzz": 1200,
    "jms": 3600,
    "spark": 900,
}
"""By marker: after how long a test is taken to hang. A test without one of them has the limit in pyproject.toml.

Each is many times what the slowest of its tests takes: a test may fail because it hangs, never because the machine is
slow or busy.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the largest limit among its markers."""
    for item in items:
        limits = [seconds for marker, seconds in LIMIT_SECONDS.items() if item.get_closest_marker(marker)]
        if limits and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(max(limits)))
