"""A few messages that nobody takes do not keep what was written around them. The long form is hack/soak/sparse."""

from pathlib import Path

import pytest
from crash.sparse_load import run_sparse

pytestmark = pytest.mark.crash

SECONDS = 8.0
LEAST = 14_000
"""Messages after which at least two were left of one in 4000 (the seed is fixed)."""


@pytest.mark.parametrize("one_in", [100, 4000])
def test_space_in_use_stays_within_twice_what_is_alive(tmp_path: Path, one_in: int) -> None:
    """Segments of 4 MiB hold some 4000 messages: with one in 4000 left, nearly each would be kept."""
    found = run_sparse(tmp_path, SECONDS, one_in, most=20_000, least=LEAST)
    assert found.returned == found.left > 0
    assert found.is_within_bound, found
