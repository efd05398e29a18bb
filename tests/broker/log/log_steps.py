"""Steps that tests of the log take again and again."""

from __future__ import annotations

import itertools
from pathlib import Path

from broker.log.naive_log import NaiveMessage, NaiveState
from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import LargePayload, Log, LogOptions, Recovered, SyncChoice
from penstock_broker.log.disk.spare_segments import number_of
from penstock_broker.log.format.blocks import seed_of
from penstock_broker.log.scan.block_scan import SegmentData, find_blocks

__all__ = ["SMALL", "a_queue", "end_of_log", "opened", "recovered_state", "settle", "whole"]

SMALL = LogOptions(segment_bytes=16384, inline_bytes=2000, sync=SyncChoice.INLINE)


def opened(folder: Path, files: SimulatedFiles) -> tuple[Log, Recovered]:
    """A log in small segments, by whose clock a millisecond passes at each look."""
    return Log.open(folder, files=files, options=SMALL, clock=itertools.count(1).__next__)


def a_queue(log: Log, key: str = "q") -> tuple[int, int]:
    """(incarnation, route set) of a new queue."""
    incarnation = log.next_incarnation()
    log.topology("queue", key, b"", incarnation)
    return incarnation, log.route_set((incarnation,))


def settle(log: Log) -> None:
    """Turns without traffic, until there is nothing left to do."""
    log.write()
    log.sync()
    while log.wants_maintenance:
        log.maintain(1000)
        log.request_sync()
        log.collect()


def whole(payload: bytes) -> bytes:
    """All of a payload, what lies in segments included."""
    return payload.read(0, len(payload)) if isinstance(payload, LargePayload) else payload


def recovered_state(recovered: Recovered) -> NaiveState:
    """What was recovered, in the oracle's terms (delivered-up-to numbers and counts are compared by message)."""
    return NaiveState(
        {(item.kind, item.key): (item.incarnation, item.payload) for item in recovered.documents},
        {
            incarnation: {
                item.number: NaiveMessage(item.number, whole(item.payload), item.flags, item.arrival) for item in queue
            }
            for incarnation, queue in recovered.messages.items()
        },
    )


def end_of_log(files: SimulatedFiles, log_id: bytes) -> int:
    """The offset in the newest segment at which the next block will be written."""
    disk = files.copy()  # to look at a file makes its content durable
    newest = max(path for path in disk.paths() if path.name.startswith("segment-"))
    content = bytes(disk.content(newest))
    segment = SegmentData(number_of(newest.name), len(content), lambda number: content)
    return list(find_blocks(segment, seed_of(log_id)))[-1].end
