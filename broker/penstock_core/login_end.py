"""Why a connection that has logged in may not stay, and what its peer is told.

A login can become invalid while the connection is open: the token expires, the key that signed it is removed, the user
is removed, the password changes. It must not know files, tokens or clocks. Source: docs/reference/security.md, "When a
login ends".
"""

from __future__ import annotations

from enum import Enum, auto
from typing import assert_never

from penstock_core.reason import Reason, Refuse

__all__ = ["LoginEnd", "refusal"]


class LoginEnd(Enum):
    """Why a login is no longer valid."""

    EXPIRED = auto()
    """The token has expired, with the leeway included."""
    KEY_REMOVED = auto()
    """The key that signed the token is not among the issuer's keys any more."""
    USER_REMOVED = auto()
    SECRET_CHANGED = auto()


def refusal(end: LoginEnd, user: str) -> Refuse:
    """The error with which the connection is closed."""
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
