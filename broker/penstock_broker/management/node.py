"""The management node: takes requests from links, sends answers back over links of the same connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_amqp.endpoint_events import Arrival, Held
from penstock_amqp.endpoint_links import InLink, OutLink
from penstock_amqp.performatives import Attach
from penstock_broker.connection import Connection
from penstock_broker.links import Producer
from penstock_core.reason import Reason, Refuse

if TYPE_CHECKING:
    from penstock_broker.broker import Broker

__all__ = ["ManagementNode"]


class ManagementNode:
    """One per broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def admit(self, connection: Connection) -> Refuse | None:
        return Refuse(Reason.NOT_PERMITTED, "Use the management listener.")

    def attach_answers(self, connection: Connection, link: OutLink, attach: Attach) -> Refuse | None:
        return self.admit(connection)

    def receive(self, producer: Producer, batch: list[Arrival]) -> None:
        pass

    def settled(self, held: list[Held]) -> None:
        pass

    def flowed(self, connection: Connection, link: OutLink) -> None:
        pass

    def left(self, link: InLink | OutLink) -> None:
        pass
