"""What a connection is told whose login has ended."""

from __future__ import annotations

import pytest

from penstock_core.login_end import LoginEnd, refusal
from penstock_core.reason import ErrorCondition


@pytest.mark.parametrize(
    ("end", "reason", "cure"),
    [
        (LoginEnd.EXPIRED, "LoginExpired", "connect again with a new one"),
        (LoginEnd.KEY_REMOVED, "LoginWithdrawn", "connect again with a new token"),
        (LoginEnd.USER_REMOVED, "LoginWithdrawn", "ask those who run this broker"),
        (LoginEnd.SECRET_CHANGED, "LoginWithdrawn", "connect again with the new one"),
    ],
)
def test_the_peer_learns_cause_and_cure(end: LoginEnd, reason: str, cure: str) -> None:
    told = refusal(end, "ann")
    assert told.condition is ErrorCondition.UNAUTHORIZED_ACCESS
    assert told.error_info() == {"penstock:reason": reason}
    assert "'ann'" in told.description
    assert cure in told.description
