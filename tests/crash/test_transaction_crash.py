"""kill -9 while transactions commit: each is there as a whole or not at all, by the books of its client."""

import os
from pathlib import Path

import pytest
from crash.kills import TALLIED
from crash.transaction_load import move_under_kills

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("PENSTOCK_SEED", "20"))
KILLS = 8


@pytest.mark.parametrize("files", ["aio", "counted", "lossy"])
def test_a_transaction_is_there_as_a_whole_or_not_at_all(tmp_path: Path, files: str) -> None:
    books = move_under_kills(tmp_path, files, messages=6_000, kills=KILLS, seed=SEED)
    assert books.faults() == []
    assert books.kills == KILLS
    assert books.committed, "nothing was committed: the kills came too early"
    if files in TALLIED:
        assert books.in_doubt, "no kill met a transaction whose commit was not answered"


def test_without_fdatasync_this_test_is_red(tmp_path: Path) -> None:
    """The same on a disk whose fdatasync returns and does nothing: what was committed is lacking."""
    books = move_under_kills(tmp_path, "forgetful", messages=300, kills=1, seed=SEED)
    assert books.faults()
