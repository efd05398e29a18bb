"""One Spark session for all tests of the lag job that need one, started when the first of them asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lag.spark_frames import make_session
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The shared session."""
    session = make_session(str(tmp_path_factory.mktemp("spark")))
    yield session
    session.stop()
