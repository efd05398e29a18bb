"""Whether a client may make one more permanent subscription.

Source: docs/decisions/166-limits-of-subscriptions.md.
"""

from __future__ import annotations

import pytest

from penstock_core.identity import GLOBAL, Identity
from penstock_core.subscription_limits import check_subscriptions


@pytest.mark.parametrize(
    ("made", "limit", "made_by_user", "user_limit", "cause"),
    [
        (2, 3, 2, None, None),
        (2, None, 2, 3, None),
        (10**6, None, 10**6, None, None),
        (3, 3, 0, 1, "clients have made 3 permanent subscriptions"),
        (4, 3, 0, 1, "clients have made 4 permanent subscriptions"),
        (2, 3, 1, 1, "user 'ann' has made 1 permanent subscriptions"),
    ],
)
def test_the_rule(made: int, limit: int | None, made_by_user: int, user_limit: int | None, cause: str | None) -> None:
    found = check_subscriptions(
        Identity(GLOBAL, "orders", True),
        "ann",
        made=made,
        limit=limit,
        made_by_user=made_by_user,
        user_limit=user_limit,
    )
    if cause is None:
        assert found is None
        return
    assert found is not None
    setting = "limits.subscriptionsPerUser" if cause.startswith("user") else "limits.subscriptions"
    assert found.description == (
        f"The durable subscription 'orders' (global) is not made: {cause}, which is the limit. Give the container and "
        "the link the same names at each start, end the subscriptions that nobody uses, or ask those who run this "
        f"broker to raise {setting} or to set delivery.idleExpirySeconds."
    )
