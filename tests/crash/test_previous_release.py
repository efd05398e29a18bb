"""An upgrade and a rollback of a broker, each by kill -9: every release reads the log of the other.

The release before is that of hack/releasing/previous-release. Segments are small, so that whole ones are sealed and
recycled.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.previous_release import ReleasedBroker, previous_release
from support.proton_client import Subscribed, arrived, connected, is_empty, publish, take

pytestmark = pytest.mark.crash

LONG = "x" * 700_000
"""Twelve of them fill a segment."""
NEW = None
"""This release."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ReleasedBroker]:
    made = ReleasedBroker(tmp_path / "data")
    yield made
    made.kill()


def numbered(prefix: str, first: int, last: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(first, last + 1)]


def received(broker: ReleasedBroker, queue: str, count: int) -> list[tuple[object, int]]:
    with connected(broker.url) as connection:
        return take(connection.create_receiver(queue), count)


def send(broker: ReleasedBroker, address: str, *bodies: str) -> None:
    with connected(broker.url) as connection:
        publish(connection.create_sender(address), bodies)


def with_counts(bodies: list[str], count: int = 0) -> list[tuple[object, int]]:
    return [(body, count) for body in bodies]


def test_a_queue_survives_upgrade_rollback_and_upgrade(broker: ReleasedBroker) -> None:
    """What was accepted is there and in order, what was consumed is not, and what was delivered says so."""
    broker.start(previous_release())
    send(broker, "orders", *numbered("old", 1, 100))
    send(broker, "long", *(f"{number}{LONG}" for number in range(30)))
    assert received(broker, "orders", 30) == with_counts(numbered("old", 1, 30))
    with connected(broker.url) as connection:
        held = connection.create_receiver("orders", credit=5)
        assert arrived(held, 5) == numbered("old", 31, 35)
        broker.kill()

    broker.start(NEW)  # the upgrade
    assert received(broker, "orders", 10) == [*with_counts(numbered("old", 31, 35), 1),
                                              *with_counts(numbered("old", 36, 40))]  # fmt: skip
    send(broker, "orders", *numbered("new", 1, 20))
    assert [str(body)[:2] for body, _ in received(broker, "long", 15)] == [f"{number}x"[:2] for number in range(15)]
    send(broker, "long", *(f"{number}{LONG}" for number in range(30, 50)))
    broker.kill()

    broker.start(previous_release())  # the rollback
    assert received(broker, "orders", 60) == with_counts(numbered("old", 41, 100))
    assert [str(body)[:2] for body, _ in received(broker, "long", 35)] == [str(number) for number in range(15, 50)]
    send(broker, "orders", *numbered("again", 1, 5))
    broker.kill()

    broker.start(NEW)
    assert received(broker, "orders", 25) == with_counts([*numbered("new", 1, 20), *numbered("again", 1, 5)])
    with connected(broker.url) as connection:
        assert is_empty(connection.create_receiver("orders", credit=0))
        assert is_empty(connection.create_receiver("long", credit=0))


def test_a_durable_subscription_survives_with_its_messages(broker: ReleasedBroker) -> None:
    def subscribed(count: int) -> list[tuple[object, int]]:
        with connected(broker.url) as connection:
            return take(connection.create_receiver("topic://news", name="billing", options=Subscribed()), count)

    broker.start(previous_release())
    assert subscribed(0) == []
    send(broker, "topic://news", *numbered("old", 1, 40))
    assert subscribed(10) == with_counts(numbered("old", 1, 10))
    broker.kill()

    broker.start(NEW)
    send(broker, "topic://news", *numbered("new", 1, 10))
    assert subscribed(20) == with_counts(numbered("old", 11, 30))
    broker.kill()

    broker.start(previous_release())
    send(broker, "topic://news", *numbered("again", 1, 5))
    assert subscribed(25) == with_counts([*numbered("old", 31, 40), *numbered("new", 1, 10), *numbered("again", 1, 5)])
