"""Who may use what of another namespace, and which of two resources that want the same thing has it. Pure.

A message must not tell a person of one namespace what is in another: "not there" and "not allowed" read the same.
Source: section 5 of the design (allow lists, duplicates).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TypeVar

from penstock_api.resources import Broker, Exchange, Subscription

__all__ = ["is_allowed", "oldest"]

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)

Declaring = TypeVar("Declaring", Exchange, Subscription)


def is_allowed(namespace: str, target: Broker | Exchange) -> bool:
    """Whether resources in `namespace` may refer to `target`: its own namespace always may."""
    allowed = target.spec.allowed_namespaces
    return namespace == target.metadata.namespace or "*" in allowed or namespace in allowed


def oldest(candidates: Iterable[Declaring]) -> Declaring | None:
    """The one that wins: made first; of the same second, the lower uid, so that all operators agree."""
    return min(
        candidates, key=lambda it: (it.metadata.creation_timestamp or _BEGINNING, it.metadata.uid, it.key), default=None
    )
