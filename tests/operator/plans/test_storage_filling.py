"""The condition of a volume that fills: its reasons, whom it names, and when its text changes."""

from __future__ import annotations

import pytest
from support.resources import broker_state

from penstock_api.state_documents import BrokerState, LargeQueue
from penstock_operator.plans.storage_filling import storage_facts, storage_filling

GIB = 1024**3


def filling(level: str, *sizes: int, volume: int = 10 * GIB, consumers: int = 0) -> BrokerState:
    queues = tuple(
        LargeQueue(queue_name=f"q{at}", is_subscription=True, depth_bytes=size, consumers=consumers)
        for at, size in enumerate(sizes)
    )
    return broker_state(storage_level=level, volume_bytes=volume, largest_queues=queues)


@pytest.mark.parametrize(
    ("level", "status", "reason"),
    [
        ("High", "True", "StorageHigh"),
        ("Critical", "True", "StorageCritical"),
        ("HeldBack", "True", "StorageCritical"),
        ("Full", "True", "StorageCritical"),
        ("Frozen", "Unknown", "OperatorTooOld"),
    ],
)
def test_one_reason_per_level(level: str, status: str, reason: str) -> None:
    found = storage_filling(filling(level))
    assert found is not None
    assert (found.type, found.status.value, found.reason) == ("StorageFilling", status, reason)


def test_a_volume_with_room_has_no_such_condition() -> None:
    assert storage_filling(filling("Ok")) is None
    assert storage_filling(broker_state()) is None, "a broker of an earlier release says nothing of its volume"


def test_the_largest_queues_are_named_with_their_shares_and_a_cure() -> None:
    found = storage_filling(filling("High", 4 * GIB, 3 * GIB // 2, 1000))
    assert found is not None
    assert found.message.endswith(
        "The largest queues: 'q0' (about 40 % of the volume, without a consumer), 'q1' (about 15 % of the volume, "
        "without a consumer), 'q2' (less than 5 %, without a consumer)."
    )
    assert "`limits.maxBytes` with an `overflow`" in found.message
    assert "`delivery.idleExpirySeconds`" in found.message


def test_the_sizes_of_an_unknown_volume_are_left_out() -> None:
    found = storage_filling(filling("Full", 4 * GIB, volume=0, consumers=2))
    assert found is not None
    assert found.message.endswith("The largest queues: 'q0' (consumed).")


def test_a_backlog_that_grows_by_little_changes_nothing_that_is_written() -> None:
    """Or the status would be written at each poll."""
    assert storage_facts(filling("High", 4 * GIB)) == storage_facts(filling("High", 4 * GIB + 100_000_000))
    assert storage_facts(filling("High", 4 * GIB)) != storage_facts(filling("High", 5 * GIB))
    assert storage_facts(filling("High", 4 * GIB)) != storage_facts(filling("High", 4 * GIB, consumers=1))
    assert storage_facts(filling("High", 4 * GIB)) != storage_facts(filling("Critical", 4 * GIB))
