"""Frames where the process may have little memory."""

from __future__ import annotations

import pytest

from penstock_broker.settings.settings import BrokerSettings
from penstock_broker.settings.small_memory import fitted

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("limit", "given", "expected"),
    [
        (256 * MIB, 65_536, 16_384),
        (512 * MIB - 1, 65_536, 16_384),
        (512 * MIB, 65_536, 65_536),
        (256 * MIB, 8192, 8192),
    ],
)
def test_frames(limit: int, given: int, expected: int) -> None:
    assert fitted(BrokerSettings(max_frame_bytes=given), limit).max_frame_bytes == expected
