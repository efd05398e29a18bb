"""How many permanent subscriptions clients have made by attaching, in all and by user.

Only these stay when their clients are gone for good; what a resource or an administrator declared is not counted. Told
of each subscription that is made, changed or ended. Source: docs/reference/security.md, "Limits".
"""

from __future__ import annotations

from collections import Counter

from penstock_broker.topology.records import Subscription
from penstock_core.identity import Identity
from penstock_core.terms import Lifetime

__all__ = ["ClientSubscriptions"]


class ClientSubscriptions:
    """Of one broker."""

    __slots__ = ("_by_user", "_makers")

    def __init__(self) -> None:
        self._makers: dict[Identity, str] = {}
        self._by_user: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._makers)

    def made_by(self, user: str) -> int:
        """How many are there that this user made."""
        return self._by_user[user]

    def note(self, subscription: Subscription) -> None:
        """It is there, or has changed; may be called more than once."""
        self.forget(subscription)
        if subscription.user is not None and subscription.lifetime is Lifetime.PERMANENT:
            self._makers[subscription.identity] = subscription.user
            self._by_user[subscription.user] += 1

    def forget(self, subscription: Subscription) -> None:
        """It has ended; one that does not count is ignored."""
        user = self._makers.pop(subscription.identity, None)
        if user is None:
            return
        self._by_user[user] -= 1
        if not self._by_user[user]:
            del self._by_user[user]
