"""Settings of all tests: hack/test hears which of them end, and the long ones may take longer before they are ended."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.marked_files import can_hold, names_marker

# No test may fail because the machine is busy: both are about time.
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")

pytest_plugins = ("support.progress_plugin",)

LIMIT_SECONDS = {
    "built": 2400,
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


@pytest.fixture
def own_collection() -> Iterator[None]:
    """For a test that calls what a whole lag job is: it says when Python looks for garbage. Later tests have Python's
    own times again.
    """
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import only files that name the marker of `-m`: all of them take half a minute, and many stages need few."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if is_test and not can_hold(collection_path, config.option.markexpr) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the largest limit among its markers."""
    for item in items:
        marked = [marker for marker in LIMIT_SECONDS if item.get_closest_marker(marker)]
        for marker in marked:
            if not names_marker(item.path, marker):
                raise pytest.UsageError(f"{item.nodeid} is marked {marker} in another file, and -m would not find it")
        limits = [LIMIT_SECONDS[marker] for marker in marked]
        if limits and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(max(limits)))
