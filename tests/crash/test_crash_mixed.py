"""kill -9 under everything at once: transactions, large messages, delays, time to live, dead letters, management."""

import os
from collections import Counter
from pathlib import Path

import pytest
from crash.mixed_load import PURGED, TOKENS, Books, mix, violations

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("PENSTOCK_SEED", "20"))
KILLS = 2


@pytest.mark.parametrize("files", ["aio", "lossy"])
def test_every_token_is_somewhere_exactly_once(tmp_path: Path, files: str) -> None:
    books = mix(tmp_path, files, kills=KILLS, seconds=0, seed=SEED)
    print(dict(books.did))  # noqa: T201
    assert violations(books) == []


def test_the_check_sees_what_is_lost_doubled_or_torn() -> None:
    whole = Counter(range(TOKENS))
    assert violations(Books(tokens=whole)) == []
    last = TOKENS - PURGED
    assert violations(Books(tokens=whole - Counter([0]) + Counter([1]))) == [
        "token 0 of 1200000 bytes is there 0 times",
        "token 1 of 1500000 bytes is there 2 times",
    ]
    without = whole - Counter([last])
    assert violations(Books(tokens=without, purging={last}, purged={last})) == []
    assert violations(Books(tokens=without, purging={last})) == []
    assert violations(Books(tokens=whole, purging={last}, purged={last})) == [
        f"token {last} of {50 + 997 * last} bytes is there 1 times"
    ]
    books = Books(tokens=whole, committed={"a", "b"}, unheard={"c"}, receipts=Counter(["a", "a", "c", "d"]))
    assert violations(books) == [
        "a has 2 receipts",
        "b was committed and has no receipt",
        "d has a receipt and was neither committed nor cut off",
    ]
