"""What clients may hold at once, so that one of them can't take what the others need.

The broker has the defaults. A resource leaves out what it does not change, so that a later release of the broker may
have better ones. Its fields may therefore be absent, and the two models have only their keys in common. Source:
docs/reference/configuration.md, "limits".
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from penstock_api import schema

__all__ = ["ClientLimitsSpec", "ConnectionLimits"]


class ConnectionLimits(schema.Spec):
    """The limits in the broker's configuration. A limit of None is no limit."""

    connections: Annotated[int, Field(ge=1)] = 10_000
    """Connections to the whole broker; those of management and observer are not counted."""
    connections_per_user: Annotated[int, Field(ge=1)] | None = None
    connections_per_peer: Annotated[int, Field(ge=1)] | None = None
    """Connections from one network address."""
    unauthenticated: Annotated[int, Field(ge=1)] = 1000
    """Connections that have not logged in yet; more wait in the system's queue until some have."""
    unauthenticated_per_peer: Annotated[int, Field(ge=1)] | None = 200
    login_seconds: Annotated[int, Field(ge=1)] = 30
    """Longest time from the first byte to the Open."""
    sessions_per_connection: Annotated[int, Field(ge=1, le=256)] = 256
    links_per_connection: Annotated[int, Field(ge=1)] = 1024
    subscriptions: Annotated[int, Field(ge=1)] | None = 20_000
    """Permanent subscriptions that clients have made by attaching."""
    subscriptions_per_user: Annotated[int, Field(ge=1)] | None = None


Count = Annotated[int, Field(ge=1, le=1_000_000)]


class ClientLimitsSpec(schema.Spec):
    """What clients may hold at once, so that one of them can't take what the others need."""

    connections: Count | None = None
    """Connections that are open; left out: 10,000."""
    connections_per_user: Count | None = None
    """Connections of one user; left out: no limit."""
    connections_per_peer: Count | None = None
    """Connections from one network address; left out: no limit. Clients behind a proxy or a load balancer share one
    address.
    """
    unauthenticated: Count | None = None
    """Connections that have not logged in yet; left out: 1,000. Further ones wait until there is room."""
    unauthenticated_per_peer: Count | None = None
    """Connections from one network address that have not logged in yet; left out: 200. Further ones are closed."""
    login_seconds: Annotated[int, Field(ge=1, le=3600)] | None = None
    """How long a log-in may take; left out: 30."""
    sessions_per_connection: Annotated[int, Field(ge=1, le=256)] | None = None
    """Sessions of one connection; left out: 256."""
    links_per_connection: Count | None = None
    """Links of one connection; left out: 1,024."""
    subscriptions: Count | None = None
    """Permanent subscriptions that clients have made by attaching, not those of resources; left out: 20,000. Further
    ones are refused.
    """
    subscriptions_per_user: Count | None = None
    """Those that one user has made; left out: no limit."""
