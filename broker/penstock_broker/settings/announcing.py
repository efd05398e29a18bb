"""What the properties of our Open tell clients beyond who we are: other servers to go to, and prefixes of addresses.

Source: the Qpid JMS client, which reads ``failover-server-list``, ``queue-prefix`` and ``topic-prefix``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from penstock_amqp.types.values import Symbol, Value
from penstock_broker.settings.security import Model

__all__ = ["Announcements", "FailoverServer", "open_properties"]


class FailoverServer(Model):
    """Another server that clients of this one may go to when they lose it."""

    hostname: Annotated[str, Field(min_length=1)]
    """Name for TLS and for the Open; also where to connect, unless `network_host` says otherwise."""
    port: int = Field(ge=1, le=65_535)
    scheme: Literal["amqp", "amqps", "amqpws", "amqpwss"] | None = None
    network_host: str | None = None
    path: str | None = None
    """Of a WebSocket."""

    def to_wire(self) -> Value:
        """One entry of ``failover-server-list``."""
        entry: dict[Value, Value] = {
            Symbol("hostname"): self.hostname,
            Symbol("network-host"): self.network_host or self.hostname,
            Symbol("port"): self.port,
        }
        if self.scheme is not None:
            entry[Symbol("scheme")] = self.scheme
        if self.path is not None:
            entry[Symbol("path")] = self.path
        return entry


class Announcements(Model):
    """What the Open tells."""

    failover_servers: tuple[FailoverServer, ...] = ()
    """Clients replace the list of their failover URI by these: name this server too if they shall come back."""
    prefixes: bool = False
    """Have JMS clients write `queue://` and `topic://` before their addresses, also in messages and for replies."""


def open_properties(announcements: Announcements) -> dict[str, Value]:
    """The properties that announce it."""
    properties: dict[str, Value] = {}
    if announcements.failover_servers:
        properties["failover-server-list"] = [each.to_wire() for each in announcements.failover_servers]
    if announcements.prefixes:
        properties |= {"queue-prefix": "queue://", "topic-prefix": "topic://"}
    return properties
