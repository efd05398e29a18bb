"""Who is at the other end of a connection: how it logged in, and what its Open said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock_amqp.sasl.server import SaslServer
from penstock_broker.access.users import Proof
from penstock_core.connection_open import Enforcement
from penstock_core.permissions import Need
from penstock_core.reason import Refuse

__all__ = ["NOT_OPENED", "ClientOpen", "ConnectionLogin"]


@dataclass(slots=True, eq=False)
class ConnectionLogin:
    """Who logged in on a connection, and by what. The SASL dialogue fills it in."""

    deadline_ms: int
    """When the connection has to be open at the latest, milliseconds of the monotonic clock."""
    dialogue: SaslServer | None = None
    """While the dialogue runs: from the peer's first byte on."""
    is_authenticated: bool = False
    """The dialogue is over and the peer has logged in: what comes now is AMQP."""
    user: str = ""
    groups: frozenset[str] = frozenset()
    """The groups that the user's token names; those of the settings come with the permissions."""
    proof: Proof | None = None
    """What the login depends on; None if nothing can take it back."""
    granted: dict[Need, Refuse | None] = field(default_factory=dict[Need, Refuse | None])
    """Answers of `access.permissions`, kept while its version is `granted_version`."""
    granted_version: int = 0


@dataclass(frozen=True, slots=True)
class ClientOpen:
    """What the client's Open said."""

    container_id: str = ""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    asks_sole: bool = False
    """It asked to be the only connection of its container-id."""
    enforcement: Enforcement = Enforcement.REFUSE
    """If it asked for that: what is to happen to another connection of its container-id."""


NOT_OPENED: Final = ClientOpen()
"""What a connection has in this place until the Open has come."""
