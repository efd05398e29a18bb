"""What recovery has read of segments is freed with its last reference: nothing collects cycles during a start."""

# pyright: reportPrivateUsage=false
# What keeps the bytes is private.

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
from broker.log.log_steps import opened
from broker.log.simulated_files import SimulatedFiles
from broker.log.test_log_disk_faults import Sixteen, segment

from penstock_broker.log import FileLayer
from penstock_broker.log.scan import segment_files


@pytest.mark.parametrize("damaged", [False, True])
def test_no_cycle_keeps_the_bytes_of_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, damaged: bool
) -> None:
    """They may be 64 MiB."""
    files: SimulatedFiles = Sixteen(tmp_path).files
    if damaged:
        files.content(segment(tmp_path, 3))[6000] ^= 1
    made: list[weakref.ref[object]] = []

    class Watched(segment_files._Contents):
        def __init__(self, layer: FileLayer) -> None:
            super().__init__(layer)
            made.append(weakref.ref(self))

    monkeypatch.setattr(segment_files, "_Contents", Watched)
    gc.disable()
    try:
        log, recovered = opened(tmp_path, files)
        assert bool(recovered.damage) is damaged
        assert [each() for each in made] == [None]
    finally:
        gc.enable()
    log.close()
