"""A report copies the segments that it reads, and lists them again if one was merged or deleted meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_api.observer_api import SegmentInfo, SegmentList
from penstock_cli.lag.copied_ledger import copied
from penstock_lag.observer_client import ObserverError


def listing(*names: str) -> SegmentList:
    """Segments of a minute each, one after another."""
    segments = tuple(
        SegmentInfo(name=name, bytes=1, rows=1, first_ms=at * 60_000, last_ms=at * 60_000 + 59_999)
        for at, name in enumerate(names)
    )
    return SegmentList(broker="main", namespace="shop", ordinal=0, reachable=True, segments=segments)


class MergingObserver:
    """Has merged its first two segments since it listed them."""

    def __init__(self, status: int = 404) -> None:
        self._status = status
        self.listings = 0

    def listed_again(self) -> SegmentList:
        self.listings += 1
        return listing("both", "third")

    def fetch(self, info: SegmentInfo) -> bytes:
        if info.name == "second":
            raise ObserverError("there is no segment", self._status)
        return info.name.encode()


def test_a_segment_that_is_gone_makes_it_list_them_again(tmp_path: Path) -> None:
    observer = MergingObserver()
    ledger = copied(listing("first", "second", "third"), observer.listed_again, observer.fetch, 0, 200_000, tmp_path)
    assert observer.listings == 1
    assert [ledger.fetch(info) for info in ledger.between(0, 200_000)] == [b"both", b"third"]


def test_what_the_observer_deletes_later_can_still_be_read(tmp_path: Path) -> None:
    kept = {"first": b"1", "second": b"2"}
    whole = listing("first", "second")
    ledger = copied(whole, lambda: whole, lambda info: kept[info.name], 60_000, 119_999, tmp_path)
    kept.clear()
    assert [ledger.fetch(info) for info in ledger.between(60_000, 119_999)] == [b"2"]


@pytest.mark.parametrize("status", [404, 500])
def test_a_segment_that_stays_gone_and_an_observer_in_trouble_are_told(tmp_path: Path, status: int) -> None:
    observer = MergingObserver(status)
    whole = listing("second")
    with pytest.raises(ObserverError, match="there is no segment"):
        copied(whole, lambda: whole, observer.fetch, 0, 200_000, tmp_path)
