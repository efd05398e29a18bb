"""How one subscription went over the last minutes or hours, from the ledger's segments and the rows not in one yet.

Reads files; the caller keeps it off the event loop. At most `MOST_ROWS` rows are read, the newest ones, so that no
reader of the page can occupy the observer: `penstock lag report` reads everything.
"""

from __future__ import annotations

from typing import Final

from penstock_api.ledger_format import HOUR_MS, SegmentName
from penstock_lag_rules.history import Snapshot
from penstock_observer.ledger import Ledger
from penstock_page.segment_rows import UnreadableSegment, snapshots_in, snapshots_in_rows
from penstock_page.text import clock
from penstock_page.time_series import TimeSeries, time_series_of

__all__ = ["MOST_ROWS", "RECENT_MS", "time_series"]

RECENT_MS: Final = 900_000
"""What is shown unless hours are asked for."""
MOST_ROWS: Final = 1_000_000


def time_series(
    ledger: Ledger, queue_name: str, end_ms: int, hours: int, most_rows: int = MOST_ROWS
) -> tuple[TimeSeries, str | None]:
    """The time series until `end_ms`, and what is missing in it, a sentence without its full stop; None: nothing."""
    begin_ms = end_ms - (hours * HOUR_MS or RECENT_MS)
    waiting, segments = ledger.waiting(queue_name), ledger.segments
    # Sealed between the two, rows would come twice, and the second time as if the clock had been set back.
    sealed = SegmentName.parse(segments[-1].name) if segments else None
    unsealed = snapshots_in_rows(row for row in waiting if sealed is None or row["seq"] > sealed.last)
    read: list[list[Snapshot]] = []
    problems: list[str] = []
    left = most_rows
    for segment in reversed(segments):
        if segment.last_ms < begin_ms or segment.first_ms > end_ms:
            continue
        path = ledger.path_of(segment.name)
        left -= segment.rows
        if left < 0:
            problems.append(
                f"the plot begins at {clock(segment.last_ms)}, because more than {most_rows:,} rows of the ledger "
                "would have to be read; `penstock lag report` reads all of them"
            )
            break
        if path is None:  # past its retention since the loop began
            continue
        try:
            read.append([snapshot for _, snapshot in snapshots_in(path, [queue_name])])
        except UnreadableSegment as error:
            problems.append(f"the segment {segment.name} can't be read: {error}")
    found = [snapshot for part in reversed(read) for snapshot in part] + unsealed
    return time_series_of(found, begin_ms, end_ms, ledger.interval_ms), "; ".join(problems) or None
