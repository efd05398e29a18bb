"""Whether an attach takes over the link that is attached now under its (container, link name).

First decide, then steal: the caller decides as if the live link were gone, and only a success ends it (decision 5).
Source: AMQP 1.0 part 2, section 2.6.1 ("link stealing"); QPIDJMS-220 "Server handling";
docs/decisions/005-decide-then-steal.md, docs/decisions/016-owner-user.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock_core.existing_subscription import LinkKind, LiveLink, QueueLink
from penstock_core.reason import Reason, Refuse

__all__ = ["STOLEN", "NothingLive", "Steal", "decide_steal"]

STOLEN: Final = Refuse(
    Reason.LINK_STOLEN,
    "The same container attached a link of this name elsewhere; give links different names if both shall live.",
)
"""What the link that loses is told."""


@dataclass(frozen=True, slots=True)
class NothingLive:
    """No link of this name is attached."""


@dataclass(frozen=True, slots=True)
class Steal:
    """The live link is the same link: a successful attach ends it."""


def decide_steal(
    asked: LinkKind, live: LiveLink | None, user: str, may_use_others: bool
) -> NothingLive | Steal | Refuse:
    """Compare an attach with the link that is live under the same (container, link name), if any."""
    if live is None:
        return NothingLive()
    if asked != live.kind:
        return Refuse(
            Reason.LINK_LIVE_FOR_OTHER_KIND,
            f"This container has a link of this name attached as {_words(live.kind)}, and this attach asks for "
            f"{_words(asked)}; close that link or use another name.",
        )
    if live.user != user and not may_use_others:
        return Refuse(
            Reason.OTHER_USER,
            "Another user has a link of this name attached under this container-id; use another container-id.",
        )
    return Steal()


def _words(kind: LinkKind) -> str:
    if isinstance(kind, QueueLink):
        return f"a consumer of queue {kind.queue!r}" if kind.queue else "a consumer of a temporary queue"
    shared = "shared" if kind.shared else "not shared"
    return f"{shared}, {'global' if kind.global_ else 'container'}, {'durable' if kind.durable else 'volatile'}"
