"""Whose ledger, results and rollups are on a volume: those of another Broker are not taken for one's own.

Two namespaces may have a Broker of the same name, with queues of the same names.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from observer.samples import START_MS, a_poll, a_subscription

from penstock_api.lag_result import LagResult
from penstock_api.rollup_format import RollupAbout
from penstock_lag.rollups.files import write_rollup
from penstock_lag_rules.rollups import Rollup
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.parquet import outline_of
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.retention import RetentionLimits
from penstock_observer.rollups import RollupStore
from penstock_observer.rows import RowOrigin

SHOP = RowOrigin("main", 0, 10_000, "shop")
ROLLING = SealLimits(seconds=3_600, rows=4, bytes=10**9)
KEEP = RetentionLimits(age_ms=10**12, bytes=10**12)
NAMES = (
    "0000000003-000000000001-000000000004.parquet",
    "0000000003-000000000005-000000000008.parquet",
)
OWN_NAME = "0000000003-000000000009-000000000012.parquet"


def fill(folder: Path, writer: RowOrigin, polls: int = 4) -> Ledger:
    """A ledger with so many polls of one subscription, two in a segment."""
    ledger = Ledger(folder, writer, ROLLING, KEEP)
    for number in range(polls):
        ledger.append(a_poll(START_MS + 10_000 * number, a_subscription()))
    ledger.close()
    return ledger


def test_a_segment_says_whose_it_is_and_so_does_one_that_was_merged(tmp_path: Path) -> None:
    ledger = fill(tmp_path, SHOP)
    assert [info.name for info in ledger.segments] == [*NAMES]
    outline = outline_of(tmp_path / NAMES[0])
    assert (outline.namespace, outline.broker, outline.ordinal) == ("shop", "main", 0)
    later = Ledger(tmp_path, replace(SHOP, interval_ms=3 * 3_600_000), ROLLING, KEEP)
    for second in range(3 * 3_600, 3 * 3_600 + 40, 10):
        later.append(a_poll(START_MS + 1000 * second, a_subscription()))
    assert later.merge_old()
    later.close()
    merged = outline_of(tmp_path / "0000000003-000000000001-000000000008.parquet")
    assert (merged.namespace, merged.broker, merged.ordinal, merged.thinned) == ("shop", "main", 0, True)


@pytest.mark.parametrize(
    ("own", "named"),
    [
        (replace(SHOP, namespace="test"), "test/main-0"),
        (replace(SHOP, broker="orders"), "shop/orders-0"),
        (replace(SHOP, ordinal=1), "shop/main-1"),
    ],
    ids=["namespace", "broker", "ordinal"],
)
def test_the_segments_of_another_broker_are_told_and_never_listed(
    own: RowOrigin, named: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its volume was mounted here. They count as damaged, which the alert tells, and their numbers stay used."""
    fill(tmp_path, SHOP)
    with caplog.at_level(logging.ERROR):
        ledger = Ledger(tmp_path, own, ROLLING, KEEP)
    assert (ledger.segments, ledger.damaged) == ((), NAMES)
    said = f"{NAMES[0]}: it is of broker shop/main-0, and this ledger is of {named}"
    assert f"a segment is left out of the ledger: {said}" in caplog.text
    ledger.append(a_poll(START_MS, a_subscription()))
    ledger.append(a_poll(START_MS + 10_000, a_subscription()))
    assert [info.name for info in ledger.segments] == [OWN_NAME]
    assert ledger.path_of(NAMES[0]) is None
    ledger.close()
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == [*NAMES, OWN_NAME]


def test_the_segments_of_an_earlier_release_stay_one_s_own(tmp_path: Path) -> None:
    """They do not say their namespace."""
    fill(tmp_path, replace(SHOP, namespace=""))
    ledger = Ledger(tmp_path, SHOP, ROLLING, KEEP)
    assert [info.name for info in ledger.segments] == [*NAMES]
    assert ledger.damaged == ()
    ledger.close()


@pytest.mark.parametrize("place", [BrokerPod("main", "test", 0), BrokerPod("orders", "shop", 0)])
def test_results_of_another_broker_are_left_out_and_stay(
    place: BrokerPod, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    moment = datetime(2023, 11, 14, 22, tzinfo=UTC)
    result = LagResult(
        broker="main", namespace="shop", run_name="run-1", window_start=moment, window_end=moment, expected_brokers=1,
        reporting_brokers=1,
    )  # fmt: skip
    assert ResultStore(tmp_path, BrokerPod("main", "shop", 0), 5).put("run-1", result.to_json().encode(), moment)
    with caplog.at_level(logging.ERROR):
        store = ResultStore(tmp_path, place, 5)
    assert (store.latest_result(), store.get("run-1")) == (None, None)
    said = f"the result is of broker shop/main, but this observer belongs to {place.namespace}/{place.broker}"
    assert f"result run-1.json is left out: {said}" in caplog.text
    assert (tmp_path / "run-1.json").exists()
    assert ResultStore(tmp_path, BrokerPod("main", "shop", 0), 5).latest_run() == "run-1"


@pytest.mark.parametrize("place", [BrokerPod("main", "test", 0), BrokerPod("orders", "shop", 0)])
def test_rollups_of_another_broker_are_left_out_until_an_own_one_takes_their_name(
    place: BrokerPod, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a run would compare with what another broker has done, whose subscriptions have the same names."""
    name, noon_ms = "hour-2023-11-15T11.parquet", 1_700_049_600_000

    def a_rollup(broker: str, namespace: str) -> bytes:
        about = RollupAbout(broker=broker, namespace=namespace, name=name, ordinals=(0,), hours=1)
        return write_rollup(Rollup(), about)

    RollupStore(tmp_path, BrokerPod("main", "shop", 0), 10**6).put(name, a_rollup("main", "shop"), noon_ms)
    with caplog.at_level(logging.ERROR):
        store = RollupStore(tmp_path, place, 10**6)
    assert (store.rollups, store.path_of(name)) == ((), None)
    said = f"the rollup is of broker shop/main, but this observer belongs to {place.namespace}/{place.broker}"
    assert f"rollup {name} is left out: {said}" in caplog.text
    assert (tmp_path / name).exists()
    assert store.put(name, a_rollup(place.broker, place.namespace), noon_ms)
    again = RollupStore(tmp_path, place, 10**6)
    assert [info.name for info in again.rollups] == [name]
