"""A look at very many unsettled deliveries, a few at a time, while others come and go."""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from proton import Delivery, Message
from support.stepped_broker import Peer, SteppedBroker

from penstock_amqp.endpoint import unsettled_deliveries
from penstock_amqp.endpoint.endpoint import Endpoint
from penstock_amqp.endpoint.engine import Engine
from penstock_amqp.endpoint.events import Held
from penstock_amqp.endpoint.freed_parts import EndpointFreed
from penstock_broker.messages import delivery_returns


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Iterator[SteppedBroker]:
    monkeypatch.setattr(unsettled_deliveries, "MOST_COPIED", 5)
    monkeypatch.setattr(delivery_returns, "AT_ONCE", 4)
    made = SteppedBroker()
    made.make_queue("q")
    made.make_queue("other")
    yield made
    made.close()


def holding(timed: SteppedBroker, count: int) -> tuple[Peer, Endpoint]:
    sender, peer = timed.connect("sender"), timed.connect("holding")
    peer.receive("q", credit=100)
    sender.send("q", *(Message(number, durable=True) for number in range(count)))
    assert len(peer.bodies()) == count
    return peer, next(reversed(timed.broker.clients.connections.values())).endpoint


def left(walk: Iterator[object]) -> list[object]:
    return [each for part in walk for each in part if each is not None]  # type: ignore[attr-defined]


def test_a_long_table_is_not_copied_while_nothing_changes(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, endpoint = holding(timed, 12)
    looked_at: list[int] = []

    def counted(iterator: Iterator[object], most: int) -> Iterator[object]:
        for _, each in zip(range(most), iterator, strict=False):
            looked_at.append(1)
            yield each

    monkeypatch.setattr(unsettled_deliveries, "islice", counted)
    held = endpoint.unsettled.held_now()
    walk = endpoint.unsettled.walk(5)
    assert list(next(walk)) == held[:5]
    assert len(looked_at) == 5
    timed.turn()
    assert list(next(walk)) == held[5:10]
    assert left(walk) == held[10:]


@pytest.mark.parametrize("settled", [0, 7, 11], ids=["behind", "in the middle", "before the end"])
def test_all_is_found_although_deliveries_come_and_go(timed: SteppedBroker, settled: int) -> None:
    """One is settled and two come behind the first part: what is there all the time is found, and what came."""
    peer, endpoint = holding(timed, 12)
    always = [each for at, each in enumerate(endpoint.unsettled.held_now()) if at != settled]
    walk = endpoint.unsettled.walk(3)
    found = list(next(walk))
    _, delivery = peer.got.pop(settled)
    delivery.update(Delivery.ACCEPTED)
    delivery.settle()
    timed.connect("late").send("q", Message("late"), Message("later"))
    peer.pump()
    now = endpoint.unsettled.held_now()
    assert len(now) == 13
    found += left(walk)  # type: ignore[arg-type]
    assert {id(each) for each in (*always, *now)} <= {id(each) for each in found}


@pytest.mark.parametrize("parts", [0, 1, 2, 20])
@pytest.mark.parametrize("turns", range(6))
def test_all_is_found_while_another_link_is_leaving(timed: SteppedBroker, parts: int, turns: int) -> None:
    """Twelve deliveries of a link that stays are looked at while those of another one go back four per turn: after so
    many turns, and with so many parts between two turns."""
    peer, endpoint = holding(timed, 12)
    link = peer.receive("other", credit=20)
    timed.connect("again").send("other", *(Message(number) for number in range(8)))
    peer.pump()
    stays = [each for each in endpoint.unsettled.held_now() if each[0].name == "from q"]
    assert len(endpoint.unsettled.held_now()) == 20
    link.close()
    peer.flush()
    timed.turn()
    assert timed.broker.work.delivery_returns
    for _ in range(turns):
        timed.turn()
    walk = endpoint.unsettled.walk(3)
    found: list[object] = []
    for _ in range(8):
        for _ in range(parts):
            found += next(walk, ())
        timed.turn()
    found += left(walk)
    assert {id(each) for each in stays} <= {id(each) for each in found}


def test_all_is_found_when_one_pass_follows_another_between_two_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second pass has set aside what the first gave back, and has looked at none of it."""
    monkeypatch.setattr(unsettled_deliveries, "MOST_COPIED", 5)
    held = {number: cast(Held, (None, (number, b"", 0, 0, 0), 0)) for number in range(8)}
    engine = SimpleNamespace(aside=held, unsettled={number + 8: each for number, each in held.items()})
    walk = unsettled_deliveries.walk_held(cast(Engine, engine), 2)
    found = [*next(walk)]
    engine.aside, engine.unsettled = held.copy(), {}
    found += left(walk)  # type: ignore[arg-type]
    assert {id(each) for each in held.values()} <= {id(each) for each in found}


def test_a_table_is_not_copied_when_a_pass_begins_to_look_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then two would be found twice."""
    monkeypatch.setattr(unsettled_deliveries, "MOST_COPIED", 5)
    held = {number: cast(Held, (None, (number, b"", 0, 0, 0), 0)) for number in range(8)}
    engine = SimpleNamespace(aside={}, unsettled=held)
    walk = unsettled_deliveries.walk_held(cast(Engine, engine), 2)
    found = [*next(walk)]
    engine.aside, engine.unsettled = held, {}
    found += left(walk)  # type: ignore[arg-type]
    assert found == list(held.values())


def test_whoever_goes_on_when_the_connection_is_freed_is_told(timed: SteppedBroker) -> None:
    peer, endpoint = holding(timed, 12)
    kept = endpoint.unsettled
    begun = kept.walk(5)
    assert len(next(begun)) == 5
    peer.drop()
    timed.turn()
    while timed.broker.work.delivery_returns:
        timed.turn()
    for ask in (lambda: left(begun), lambda: left(kept.walk(5)), kept.held_now, lambda: kept.withdrawn(1)):
        with pytest.raises(EndpointFreed):
            ask()
