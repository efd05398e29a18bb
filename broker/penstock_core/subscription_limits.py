"""How many permanent subscriptions clients may make by attaching.

A client that takes another name at each start makes another one each time, and nothing ends the former ones: each
collects messages until the volume is full. Source: docs/decisions/166-limits-of-subscriptions.md.
"""

from __future__ import annotations

from penstock_core.identity import Identity
from penstock_core.reason import Reason, Refuse

__all__ = ["check_subscriptions"]


def check_subscriptions(
    identity: Identity, user: str, *, made: int, limit: int | None, made_by_user: int, user_limit: int | None
) -> Refuse | None:
    """None if the user may make one more permanent subscription, `identity`.

    Args:
        made, made_by_user: how many are there that clients made, and how many of them this user.
        limit, user_limit: the most that there may be; None: any number.
    """
    if limit is not None and made >= limit:
        return _refuse(identity, f"clients have made {made} permanent subscriptions", "limits.subscriptions")
    if user_limit is not None and made_by_user >= user_limit:
        cause = f"user {user!r} has made {made_by_user} permanent subscriptions"
        return _refuse(identity, cause, "limits.subscriptionsPerUser")
    return None


def _refuse(identity: Identity, cause: str, setting: str) -> Refuse:
    return Refuse(
        Reason.LIMIT_EXCEEDED,
        f"The {identity} is not made: {cause}, which is the limit. Give the container and the link the same names at "
        f"each start, end the subscriptions that nobody uses, or ask those who run this broker to raise {setting} or "
        "to set delivery.idleExpirySeconds.",
    )
