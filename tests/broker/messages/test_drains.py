"""A consumer that asks for what there is, or its credit back, is answered while its queue is busy with others."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false
# proton's own types are not complete.

from __future__ import annotations

import pytest
from proton import Message, symbol
from support.proton_client import SelectedBy
from support.stepped_broker import SteppedBroker

from penstock_api.management import DeliveryPolicy as Policy
from penstock_broker.messages import drains

MANY = 100
"""A visit sends 64."""


def publish(timed: SteppedBroker) -> None:
    peer = timed.connect()
    for number in range(MANY):
        assert peer.send("q", Message(body=number)) == ["accepted"]


@pytest.mark.parametrize("how", ["standing by", "ranking lower", "selecting"])
def test_who_gets_nothing_is_told_at_once_though_others_are_being_served(timed: SteppedBroker, how: str) -> None:
    timed.make_queue("q", Policy(exclusive_consumer=True) if how == "standing by" else None, durable=False)
    busy, idle = timed.connect(), timed.connect()
    served = busy.session.receiver("busy")
    served.source.address = "q"
    if how == "ranking lower":
        served.properties = {symbol("priority"): 1}
    served.open()
    busy.pump()
    asking = idle.session.receiver("idle")
    asking.source.address = "q"
    if how == "selecting":
        SelectedBy("colour = 'red'").apply(asking)
    asking.open()
    idle.pump()
    publish(timed)
    served.flow(MANY)
    asking.drain(5)
    busy.flush()
    idle.flush()
    timed.step_seconds = 0.0019  # a turn has time for two connections, and for one visit of a queue
    timed.turn()
    timed.step_seconds = 0.0
    idle.read()
    assert (asking.credit, idle.got) == (0, [])
    assert timed.queue("q").waiting > 0
    assert len(busy.bodies()) == MANY


def test_who_shares_a_queue_is_told_once_nothing_waits(timed: SteppedBroker) -> None:
    timed.make_queue("q", durable=False)
    busy, other = timed.connect(), timed.connect()
    served = busy.receive("q", 0)
    asking = other.receive("q", 0)
    publish(timed)
    served.flow(MANY)
    asking.drain(MANY)
    other.flush()
    busy.flush()
    timed.step_seconds = 0.0019  # a turn has time for two connections, and for one visit of a queue
    timed.turn()
    timed.step_seconds = 0.0
    other.read()
    assert (asking.credit, asking.draining()) == (MANY - len(other.got), True)
    assert len(busy.bodies()) + len(other.bodies()) == MANY
    assert asking.credit == 0


def test_a_drain_that_can_not_be_answered_costs_its_connection_and_no_other(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours, before the endpoint is asked."""

    def fail(*_: object) -> bool:
        raise RuntimeError("a mistake")

    timed.make_queue("q", durable=False)
    busy, other = timed.connect(), timed.connect()
    served = busy.receive("q", 0)
    asking = other.session.receiver("asks")
    asking.source.address = "q"
    SelectedBy("colour = 'red'").apply(asking)
    asking.open()
    other.pump()
    publish(timed)
    monkeypatch.setattr(drains, "_may_get_more", fail)
    served.flow(MANY)
    asking.drain(5)
    busy.flush()
    other.flush()
    timed.step_seconds = 0.0019  # messages are left when it is looked after the drain
    timed.turn()
    timed.step_seconds = 0.0
    other.read()
    told = other.connection.remote_condition
    assert told is not None
    assert told.name == "amqp:internal-error"
    assert len(busy.bodies()) == MANY
