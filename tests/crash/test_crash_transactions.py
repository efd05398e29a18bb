"""kill -9 under transactions over several queues: by the clients' own record each is there as a whole or not at all."""

import os
from pathlib import Path

import pytest
from crash.transfers import TOKENS, Found, Record, carry_often, violations

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("PENSTOCK_SEED", "20"))
KILLS = 8
SECONDS = 8.0


@pytest.mark.parametrize("files", ["aio", "lossy"])
def test_a_transaction_holds_as_a_whole_or_not_at_all(tmp_path: Path, files: str) -> None:
    record, found = carry_often(tmp_path, files, kills=KILLS, seconds=SECONDS, seed=SEED)
    print(record.kills, record.unsynced, len(record.committed), len(record.unheard))  # noqa: T201
    assert violations(record, found) == []
    assert record.kills >= KILLS
    if files == "lossy":
        assert record.unsynced >= record.kills * 3 // 10, "too few kills with a block written and not synced"


def test_the_check_sees_what_a_torn_transaction_leaves() -> None:
    whole = [(str(token), "-") for token in range(TOKENS)]
    record = Record(moved={"a": frozenset({"1"})}, committed={"a"})
    moved = [("1", "a") if token == "1" else (token, name) for token, name in whole]
    assert violations(record, Found(moved, ["a"])) == []
    assert violations(record, Found(moved, [])) == [
        "a was committed and has no receipt",
        "token 1 was moved by a, which has no receipt",
    ]
    assert violations(record, Found([*moved, ("2", "-")], ["a"])) == ["token 2 is there 2 times"]
    assert violations(record, Found(moved[1:], ["a", "a"])) == ["token 0 is there 0 times", "a has 2 receipts"]
    assert violations(Record(), Found(moved, ["a"])) == ["a has a receipt and was neither committed nor cut off"]
