"""What holds for every attach, whatever its source or target: the limit of links, and what the observer may use.

Must not change anything. Source: docs/reference/security.md; docs/decisions/048-observer.md.
"""

from __future__ import annotations

from penstock_amqp.endpoint.events import Attached
from penstock_amqp.endpoint.links import OutLink
from penstock_amqp.frames.performatives import Source, Target
from penstock_api.management import NODE
from penstock_broker.access.connection import Connection
from penstock_broker.settings.settings import Role
from penstock_core.reason import Reason, Refuse

__all__ = ["check"]


def check(connection: Connection, event: Attached) -> Refuse | None:
    """None if the link may be attached as far as its connection is concerned; its terminus is looked at next."""
    most = connection.listener.max_links
    if len(connection.endpoint.all_links()) > most:
        told = f"The connection has {most} links, which is the limit: close some, or open another connection."
        return Refuse(Reason.LIMIT_EXCEEDED, told)
    if connection.listener.role is Role.OBSERVER and not _is_management(event):
        told = "The observer's socket is for $management; publish and consume on a listener for clients."
        return Refuse(Reason.NOT_PERMITTED, told)
    return None


def _is_management(event: Attached) -> bool:
    terminus = event.attach.source if isinstance(event.link, OutLink) else event.attach.target
    return isinstance(terminus, Source | Target) and not terminus.dynamic and terminus.address == NODE
