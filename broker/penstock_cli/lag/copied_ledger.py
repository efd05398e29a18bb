"""Copies of the segments that a report needs. It reads them twice, which takes minutes if there are thousands of
subscriptions; the observer merges segments and deletes old ones meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final

from penstock_api.observer_api import SegmentInfo, SegmentList
from penstock_cli.lag.past import JUDGED_MS, Ledger
from penstock_cli.progress import Follow, silent
from penstock_lag.observer_client import ObserverError

__all__ = ["copied"]

ATTEMPTS: Final = 5


def copied(
    listed: SegmentList,
    listed_again: Callable[[], SegmentList],
    fetch: Callable[[SegmentInfo], bytes],
    begin_ms: int,
    end_ms: int,
    folder: Path,
    follow: Follow = silent,
) -> Ledger:
    """The ledger from `begin_ms` to `end_ms`, its files in `folder`, which is empty. If a segment is gone since it was
    listed, the segments are listed again. `follow` is told how far it is.

    Raises `ObserverError`, also if a segment is gone each time.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return _copied(listed, fetch, begin_ms, end_ms, folder, follow)
        except ObserverError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        listed = listed_again()
    return _copied(listed, fetch, begin_ms, end_ms, folder, follow)


def _copied(
    listed: SegmentList,
    fetch: Callable[[SegmentInfo], bytes],
    begin_ms: int,
    end_ms: int,
    folder: Path,
    follow: Follow,
) -> Ledger:
    needed = Ledger(listed, fetch).between(min(begin_ms, end_ms - JUDGED_MS), end_ms)
    done = follow("copying the ledger")
    for at, info in enumerate(needed):
        done(at, len(needed))
        (folder / str(at)).write_bytes(fetch(info))
    places = {info.name: folder / str(at) for at, info in enumerate(needed)}
    return Ledger(listed, partial(_read, places))


def _read(places: dict[str, Path], info: SegmentInfo) -> bytes:
    return places[info.name].read_bytes()
