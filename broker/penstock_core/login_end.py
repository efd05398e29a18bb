"""Why a connection that has logged in may not stay, and what its peer is told.

What a login stands on can end while the connection is open: a token's time, the key that signed it, the user, the
password. Must not know files, tokens or clocks. Source: docs/security.md, "When a login ends".
"""

from __future__ import annotations

from enum import Enum, auto
from typing import assert_never

from penstock_core.reason import Reason, Refuse

__all__ = ["LoginEnd", "refusal"]


class LoginEnd(Enum):
    """What has become of that on which a login stood."""

    EXPIRED = auto()
    """The token's time is over, leeway included."""
    KEY_REMOVED = auto()
    """The issuer's keys do not hold the one any more that signed the token."""
    USER_REMOVED = auto()
    SECRET_CHANGED = auto()


def refusal(end: LoginEnd, user: str) -> Refuse:
    """What the connection is closed with."""
    match end:
        case LoginEnd.EXPIRED:
            told = f"The token by which {user!r} logged in has expired: connect again with a new one."
            return Refuse(Reason.LOGIN_EXPIRED, told)
        case LoginEnd.KEY_REMOVED:
            told = f"The key that signed the token of {user!r} is not trusted any more: connect again with a new token."
        case LoginEnd.USER_REMOVED:
            told = f"The user {user!r} was removed: ask those who run this broker."
        case LoginEnd.SECRET_CHANGED:
            told = f"The password of {user!r} was changed: connect again with the new one."
        case _:
            assert_never(end)
    return Refuse(Reason.LOGIN_WITHDRAWN, told)
