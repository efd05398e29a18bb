"""A volume that is smaller than the ledger's setting, as a real file system: the ledger goes on for ever, and results
keep their room.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from observer.samples import END, START_MS, a_poll, a_result, a_subscription
from observer.test_observer_rollups import a_rollup, hour
from support.volumes import make_read_only, make_writable, small_volume

from penstock_api.ledger_format import SegmentName
from penstock_api.observer_api import SegmentInfo
from penstock_observer.audit_files import AuditStore
from penstock_observer.ledger import Ledger, SealLimits, WriteSegment
from penstock_observer.parquet import write_segment
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.retention import RetentionLimits
from penstock_observer.rollups import RollupStore
from penstock_observer.rows import Poll, RowOrigin
from penstock_observer.volume import VolumeSpace, results_limit, room_for_results, volume_space

MIB = 1024 * 1024
WRITER = RowOrigin(broker="main", ordinal=0, interval_ms=10_000)
EACH_POLL = SealLimits(seconds=3600, rows=1, bytes=10**9)
DEFAULT = RetentionLimits(age_ms=48 * 3_600_000, bytes=1024 * MIB)
RESULTS_BYTES = 128 * MIB

Measure = Callable[[Path], VolumeSpace]


def endless(_: Path) -> VolumeSpace:
    """What a volume with a quota may say."""
    return VolumeSpace(total=10**12, free=10**12)


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A mounted file system of 4 MiB."""
    folder = tmp_path / "volume"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "penstock-test", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"to mount a small volume needs root: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def noise(folder: Path, name: SegmentName, rows: Any) -> int:
    """Writes 30 kB in place of a segment: how full the volume is matters here, not what is in the files."""
    assert rows.num_rows
    (folder / str(name)).write_bytes(bytes(30_000))
    return 30_000


def open_on(volume: Path, write: WriteSegment = noise, measure: Measure = volume_space) -> Ledger:
    """A ledger with the default limits, as `main.open_ledger` makes it."""
    folder = volume / "ledger"
    reserve = partial(room_for_results, folder / "results", RESULTS_BYTES)
    return Ledger(folder, WRITER, EACH_POLL, DEFAULT, write, measure, reserve)


def poll_of(chance: random.Random, second: int) -> Poll:
    """A poll whose rows do not compress well: about 40 kB on disk."""
    states = [a_subscription(f"{chance.getrandbits(256):064x}", depth=chance.getrandbits(40)) for _ in range(300)]
    return a_poll(START_MS + second * 1000, *states)


def follow_each_other(segments: tuple[SegmentInfo, ...]) -> bool:
    """No row is missing between the first and the last."""
    names = [SegmentName.parse(info.name) for info in segments]
    return all(a is not None and b is not None and b.first == a.last + 1 for a, b in itertools.pairwise(names))


def test_a_ledger_larger_than_its_volume_never_stops(volume: Path) -> None:
    """Three times as much as the volume holds, under the default limit of 1 GiB. Nothing is given up."""
    ledger = open_on(volume)
    for second in range(3 * 4 * MIB // 30_000):
        ledger.append(a_poll(START_MS + second * 1000))
    assert (ledger.failed_writes, ledger.dropped_rows, ledger.waiting_rows) == (0, 0, 0)
    assert follow_each_other(ledger.segments)
    assert ledger.bytes > 1.5 * MIB  # it uses what there is
    # A quarter of the volume is free for results, and room for the next segment.
    assert volume_space(volume).free >= MIB + ledger.segments[-1].bytes
    ledger.close()


def test_results_have_their_room_on_a_volume_that_the_ledger_would_fill(volume: Path) -> None:
    """Fifty results of 200 kB: the newest are kept, as many as a quarter of the volume holds; none is refused."""
    ledger, chance = open_on(volume), random.Random(7)
    limit = results_limit(RESULTS_BYTES, volume_space(volume).total)
    assert limit == MIB
    results = ResultStore(volume / "ledger" / "results", BrokerPod("main", "shop", 0), 20, limit)
    for number in range(50):
        for step in range(4):
            ledger.append(a_poll(START_MS + (number * 4 + step) * 1000))
        end = END + timedelta(minutes=number)
        body = a_result(f"run-{number}", end, missing=tuple(f"{chance.getrandbits(4000):01000x}" for _ in range(200)))
        assert results.put(f"run-{number}", body, end)
    kept = [path.stat().st_size for path in (volume / "ledger" / "results").iterdir()]
    assert len(kept) == 5
    assert sum(kept) <= MIB
    assert results.latest_run() == "run-49"
    assert (ledger.failed_writes, ledger.dropped_rows) == (0, 0)
    ledger.close()


@pytest.mark.parametrize("measure", [volume_space, endless], ids=["before the write", "when the write fails"])
def test_a_stranger_who_fills_the_volume_takes_old_segments_and_not_new_rows(volume: Path, measure: Measure) -> None:
    """Before the write, if the volume says that it is full; also if only the write itself says so."""
    real = False

    def write(folder: Path, name: SegmentName, rows: Any) -> int:
        return (write_segment if real else noise)(folder, name, rows)

    ledger = open_on(volume, write, measure)
    for second in range(60):
        ledger.append(a_poll(START_MS + second * 1000))
    before = len(ledger.segments)
    real = True
    with (volume / "stranger").open("wb") as stranger:
        stranger.write(bytes(volume_space(volume).free))
        stranger.flush()
        os.fsync(stranger.fileno())
    assert volume_space(volume).free == 0
    ledger.append(poll_of(random.Random(7), 60))
    assert (ledger.failed_writes, ledger.waiting_rows) == (0, 0)
    assert len(ledger.segments) < before
    assert ledger.segments[-1].last_ms == START_MS + 60_000
    assert follow_each_other(ledger.segments)
    ledger.close()


def test_stores_on_a_volume_that_was_read_only_at_the_start_take_what_comes_later(tmp_path: Path) -> None:
    """What is there is served at once, also beside a file that an earlier process left half written."""
    with small_volume(tmp_path / "volume", 4) as folder:
        kept = ResultStore(folder / "kept", BrokerPod("main", "shop", 0), keep=3)
        kept.put("run-1", a_result("run-1", END), END)
        (folder / "kept" / ".run-2.json").write_bytes(b"{")
        make_read_only(folder)
        again = ResultStore(folder / "kept", BrokerPod("main", "shop", 0), keep=3)
        assert again.latest_run() == "run-1"
        results = ResultStore(folder / "results", BrokerPod("main", "shop", 0), keep=3)
        rollups = RollupStore(folder / "rollups", BrokerPod("main", "shop", 0), 10**9)
        AuditStore(folder / "audit", 10**9, 1000)
        assert (results.latest_run(), rollups.rollups) == (None, ())
        with pytest.raises(OSError, match="Read-only"):
            results.put("run-1", a_result("run-1", END), END)
        make_writable(folder)
        assert results.put("run-1", a_result("run-1", END), END)
        assert rollups.put(str(hour(0)), a_rollup(str(hour(0))), 10**13)
