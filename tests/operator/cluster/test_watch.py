"""Which Broker a changed child belongs to."""

from __future__ import annotations

from penstock_operator.cluster.cache import ResourceKey
from penstock_operator.cluster.watch import broker_of


def test_a_child_belongs_to_the_broker_of_its_labels() -> None:
    main = {"penstock.dev/broker": "main"}
    assert broker_of(main, "shop") == ResourceKey("Broker", "shop", "main")
    assert broker_of({**main, "penstock.dev/broker-namespace": "hub"}, "shop") == ResourceKey("Broker", "hub", "main")
    assert broker_of({"penstock.dev/broker-namespace": "hub"}, "shop") is None
