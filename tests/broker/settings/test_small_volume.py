"""How large the log's segments are on a small volume, and which volume is too small."""

from __future__ import annotations

import pytest

from penstock_api.failure import CannotRun, Misuse
from penstock_broker.settings.settings import BrokerSettings
from penstock_broker.settings.small_volume import fitted

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("volume", "segment"),
    [(8 * MIB, 1), (31 * MIB, 1), (40 * MIB, 2), (40_000_000, 2), (100 * MIB, 6), (1023 * MIB, 63), (1024 * MIB, 64)],
)
def test_a_segment_is_a_sixteenth_of_the_volume_in_whole_mebibytes(volume: int, segment: int) -> None:
    assert fitted(BrokerSettings(), volume).log.segment_bytes == segment * MIB


def test_what_fits_or_has_no_known_size_is_left_alone() -> None:
    given = BrokerSettings.model_validate({"log": {"segmentBytes": 2 * MIB, "maxUnsyncedBytes": 3 * MIB}})
    assert fitted(given, 40 * MIB) is given
    assert fitted(BrokerSettings(), 0) == BrokerSettings()
    smaller = fitted(given, 16 * MIB).log
    assert (smaller.segment_bytes, smaller.max_unsynced_bytes) == (MIB, 3 * MIB)


def test_the_least_volume_is_told() -> None:
    with pytest.raises(CannotRun, match="has 8388607 bytes, and a broker needs at least 8388608"):
        fitted(BrokerSettings(), 8 * MIB - 1)


def test_transactions_that_no_longer_fit_are_told() -> None:
    given = BrokerSettings.model_validate({"transactions": {"maxBytes": 4 * MIB}})
    with pytest.raises(Misuse, match=r"has 41943040 bytes, so that log segments have 2097152; transactions of 4194304"):
        fitted(given, 40 * MIB)
